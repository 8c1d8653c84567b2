"""The CPU target against the interpreter."""

import dataclasses
import os
from itertools import cycle
from pathlib import Path

import ml_dtypes
import msgspec
import numpy as np
import pytest
from tests.samples import choose_cases, list_contents, sampled

from tileyard.base.model import Device
from tileyard.ir.interpret import interpret
from tileyard.ir.nodes import Tensor
from tileyard.ir.reader import read_program
from tileyard.ir.verify import verify
from tileyard.targets.base import Target
from tileyard.targets.cpu.emit import keeping
from tileyard.targets.cpu.emit.program import generate
from tileyard.targets.cpu.loaded import CpuLoaded
from tileyard.targets.cpu.target import CpuTarget
from tileyard.testing.target_cases import GEMMS, explain_difference, load_program
from tileyard.testing.targets import CASES, TargetContract
from tileyard.testing.tile_cases import TILES

_TARGET = CpuTarget()


def _list_contents(name: str) -> set[str]:
    """What is in a case, and which types a product has."""
    found = list_contents(CASES[name].program)
    if name in GEMMS:
        types = [
            param.buffer.dtype for param in CASES[name].program.params if isinstance(param, Tensor)
        ]
        found.add(f"product of {types[0]} into {types[-1]}")
    return found


_SAMPLE = choose_cases({name: _list_contents(name) for name in CASES})
"""Cases that together have every operation, scalar type, statement and product of types."""


class TestCpuTarget(TargetContract):
    """The contract, on two threads where there are two cores."""

    @pytest.fixture
    def target(self) -> Target:
        """One compiler for the whole session."""
        return _TARGET

    @pytest.fixture
    def device(self) -> Device:
        """Up to two cores of this host."""
        cores = tuple(sorted(os.sched_getaffinity(0)))[:2]
        return Device(name="cpu:0", kind="cpu", identity="test", cores=cores)

    @pytest.mark.slow
    @pytest.mark.parametrize("name", sampled(CASES, _SAMPLE))
    def test_gives_what_the_interpreter_gives(
        self, name: str, target: Target, device: Device, tmp_path: Path
    ) -> None:
        """Outputs equal the interpreter's, within what the case allows for the order of sums."""
        super().test_gives_what_the_interpreter_gives(name, target, device, tmp_path)


@pytest.mark.parametrize("name", CASES)
def test_every_case_becomes_c(name: str) -> None:
    """The same text each time, with nothing refused."""
    machine = _TARGET.toolchain.machine
    first, second = (generate(CASES[name].program, machine, {}) for _ in range(2))
    assert first == second


class _Reshaped(CpuTarget):
    """Generates for a machine with other vectors; the compiler makes this host's of them."""

    def __init__(self, vector_bytes: int, registers: int) -> None:
        super().__init__()
        real = _TARGET.toolchain
        machine = msgspec.structs.replace(
            real.machine, vector_bytes=vector_bytes, registers=registers
        )
        self.__dict__["toolchain"] = dataclasses.replace(real, machine=machine)


_OTHERS = {"128 bits": _Reshaped(16, 16), "512 bits": _Reshaped(64, 32)}
_SIZES = ("float32 13x37x29", "float32 70x20x600", "float16 33x24x40", "float64 14x19x23")
_GEMMS = {
    name: case
    for name, case in {**GEMMS, **TILES}.items()
    if name.startswith(_SIZES) or (name in TILES and "gemm(" in case.text)
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "vectors"),
    sampled(
        [(name, vectors) for name in _GEMMS for vectors in _OTHERS],
        zip(sorted(_GEMMS), cycle(sorted(_OTHERS)), strict=False),
    ),
)
def test_every_width_of_vectors_gives_the_same(name: str, vectors: str, tmp_path: Path) -> None:
    """Gemms that are shaped for other machines compute what the interpreter computes."""
    case = _GEMMS[name]
    cores = tuple(sorted(os.sched_getaffinity(0)))[:1]
    device = Device(name="cpu:0", kind="cpu", identity="test", cores=cores)
    loaded = load_program(_OTHERS[vectors], device, case.program, tmp_path)
    launch = loaded.bind(case.arrays(), case.scalars)
    launch.run()
    expected = interpret(case.program, case.arrays(), case.scalars)
    for got, want in zip(launch.read(), expected, strict=True):
        assert explain_difference(got, want, case) == ""


@pytest.mark.slow
@pytest.mark.parametrize("memory", [0, 20 << 10, 42 << 10, 1 << 20])
def test_whatever_is_kept_the_result_is_the_same(
    memory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keeping no tiles, those of rows, of some columns too, or all gives the same, launch after launch."""
    monkeypatch.setattr(keeping, "MOST_BYTES", memory)
    case = TILES["ragged gemm over a grid, constant sizes"]
    cores = tuple(sorted(os.sched_getaffinity(0)))[:2]
    device = Device(name="cpu:0", kind="cpu", identity="test", cores=cores)
    arrays = case.arrays()
    launch = load_program(_TARGET, device, case.program, tmp_path).bind(arrays, [])
    launch.run()
    arrays[0][:] = arrays[0][::-1].copy()
    launch.run()
    (expected,) = interpret(case.program, arrays, [])
    assert explain_difference(launch.read()[0], expected, case) == ""


SEVERAL_GRIDS = """
def steps(A: float32[n, 64], B: float32[64, 32], s: float32, C: inout.float32[n, 32], D: out.float32[4]):
    n: dim
    middle: memory.float32[256, 32]
    half: memory.float32[4]
    a: shared.float32[16, 64]
    b: shared.float32[64, 32]
    c: fragment.float32[16, 32]
    row: fragment.float32[32]
    sum: fragment.float32[1]
    part: fragment.float32[1]
    twice = s * 2.0
    for by in blocks((n + 15) // 16):
        fill(c, 0.0)
        copy(A[by * 16 : +16, :], a)
        copy(B, b)
        gemm(a, b, c)
        for i, j in parallel(16, 32):
            c[i, j] = c[i, j] * twice
        copy(c, middle[by * 16 : +16, :])
    half[0] = middle[0, 0] * 0.5
    half[1] = twice
    for bx in blocks(n):
        for by2 in blocks(2):
            copy(middle[n - 1 - bx, :], row)
            for e in parallel(16):
                C[bx, by2 * 16 + e] = C[bx, by2 * 16 + e] + row[by2 * 16 + e]
    for last in blocks(1):
        D[0] = half[0]
        D[1] = half[1] + twice
        D[2] = C[0, 0]
        D[3] = 7.0
"""
"""Four grids, one of them what stands between two launches; the second reads what the first writes."""


@pytest.mark.slow
def test_grids_of_one_program_run_one_after_the_other(tmp_path: Path) -> None:
    """Each sees all that the ones before it have written, on whichever core, launch after launch."""
    program = read_program(SEVERAL_GRIDS)
    verify(program)
    rng = np.random.default_rng(0)
    shapes = ((100, 64), (64, 32), (100, 32))
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    cores = tuple(sorted(os.sched_getaffinity(0)))[:2]
    device = Device(name="cpu:0", kind="cpu", identity="test", cores=cores)
    loaded = load_program(_TARGET, device, program, tmp_path)
    assert isinstance(loaded, CpuLoaded)
    assert loaded.binary.details.grids == 4
    launch = loaded.bind(arrays, [1.5])
    expected = interpret(program, arrays, [1.5])
    for _ in range(3):
        launch.reset()
        launch.run()
        for got, want in zip(launch.read(), expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_modes_of_the_caller_change_nothing(tmp_path: Path) -> None:
    """Numbers below the normal ones stay as they are in a process that takes them for 0."""
    torch = pytest.importorskip("torch")
    program = read_program("""
def widen(X: float8_e4m3fn[64], Y: out.float32[64]):
    x: shared.float32[64]
    copy(X, x)
    copy(x, Y)
""")
    expected = np.arange(64, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn)
    cores = tuple(sorted(os.sched_getaffinity(0)))[:1]
    device = Device(name="cpu:0", kind="cpu", identity="test", cores=cores)
    launch = load_program(_TARGET, device, program, tmp_path).bind([expected], [])
    torch.set_flush_denormal(True)
    try:
        launch.run()
    finally:
        torch.set_flush_denormal(False)
    (got,) = launch.read()
    np.testing.assert_array_equal(got, expected.astype(np.float32))


UPDATES = """
def updates(X: float32[64, 48], I: int32[64], S: inout.float32[8, 48], L: inout.float16[8], \
N: inout.int32[8], O: out.int32[64]):
    by: grid[64]
    x: shared.float32[48]
    copy(X[by, :], x)
    for j in parallel(48):
        atomic_add(S[I[by], j], x[j])
    atomic_max(L[I[by]], cast(x[0], float16))
    before = atomic_add(N[I[by]], 1)
    O[by] = before * 8 + I[by]
"""


@pytest.mark.slow
def test_updates_count_once_on_one_core_and_on_two(tmp_path: Path) -> None:
    """Sums, largest values and what was there before are right with and without other threads."""
    rng = np.random.default_rng(0)
    given = rng.integers(-4, 4, (64, 48)).astype(np.float32)
    rows = rng.integers(0, 8, 64).astype(np.int32)
    sums, counts = np.zeros((8, 48), np.float32), np.zeros(8, np.int32)
    arrays = [given, rows, sums, np.full(8, -9, np.float16), counts]
    program = read_program(UPDATES)
    verify(program)
    expected = [*interpret(program, arrays, [])[:3], np.arange(64)]
    for count in (1, 2):
        cores = tuple(sorted(os.sched_getaffinity(0)))[:count]
        device = Device(name="cpu:0", kind="cpu", identity="test", cores=cores)
        launch = load_program(_TARGET, device, program, tmp_path / str(count)).bind(arrays, [])
        for _ in range(3):
            launch.reset()
            launch.run()
            *got, places = launch.read()
            found = [
                *got,
                np.sort(places // 8 + np.cumsum([0, *np.bincount(rows, minlength=8)])[places % 8]),
            ]
            for one, want in zip(found, expected, strict=True):
                np.testing.assert_array_equal(one, want)


LARGE_TILE = """
def matmul(A: float32[64, 512], B: float32[512, 256], C: out.float32[64, 256]):
    by: grid[8]
    a: shared.float32[8, 512]
    b: shared.float32[512, 256]
    c: fragment.float32[8, 256]
    fill(c, 0.0)
    copy(A[by * 8 : +8, :], a)
    copy(B, b)
    gemm(a, b, c)
    copy(c, C[by * 8 : +8, :])
"""


@pytest.mark.slow
def test_threads_wait_for_a_tile_that_another_fills(tmp_path: Path) -> None:
    """All threads begin with the same tile: one fills it, and the others find it whole."""
    cores = tuple(sorted(os.sched_getaffinity(0)))[:2] * 4
    device = Device(name="cpu:0", kind="cpu", identity="test", cores=cores)
    generator = np.random.default_rng(0)
    a = generator.standard_normal((64, 512), dtype=np.float32)
    loaded = load_program(_TARGET, device, read_program(LARGE_TILE), tmp_path)
    for _ in range(20):
        b = generator.standard_normal((512, 256), dtype=np.float32)
        launch = loaded.bind([a, b], [])
        launch.run()
        expected = a @ b
        np.testing.assert_allclose(launch.read()[0], expected, rtol=1e-3, atol=1e-3)
