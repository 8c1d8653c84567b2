"""Statements over the same rows that the CPU target does in one pass: results, and what is left out."""

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import msgspec
import numpy as np
import pytest

from tileyard.devices.cpu import plain_cpu
from tileyard.ir.interpret import interpret
from tileyard.ir.nodes import Tensor
from tileyard.ir.reader import read_program
from tileyard.targets.cpu.emit import overlap
from tileyard.targets.cpu.emit.program import generate
from tileyard.targets.cpu.loaded import CpuLoaded
from tileyard.targets.cpu.machine import Machine
from tileyard.targets.cpu.target import CpuTarget
from tileyard.testing.target_cases import load_program

Load = Callable[..., CpuLoaded]

SOFTMAX = """
def softmax(X: {dtype}[rows, 203], Y: out.{dtype}[rows, 203], M: out.float32[rows]):
    rows: dim
    bx: grid[(rows + 3) // 4]
    s: shared.{dtype}[4, 203]
    x: fragment.float32[4, 203]
    largest: fragment.float32[4]
    total: fragment.float32[4]

    copy(X[bx * 4 : +4, :], s)
    copy(s, x)
    reduce(x, largest, kind="max", axis=1)
    for i, j in parallel(4, 203):
        x[i, j] = exp2((x[i, j] - largest[i]) * 1.5)
    reduce(x, total, kind="sum", axis=1)
    for k, l in parallel(4, 203):
        x[k, l] = x[k, l] / total[k]
    copy(x, Y[bx * 4 : +4, :])
    copy(largest, M[bx * 4 : +4])
"""

READERS = """
def readers(X: float16[6, 96], B: int8[6, 96], Y: out.float16[6, 96], Z: inout.float32[6, 96], \
S: out.float32[6, 3]):
    bx: grid[6]
    x: shared.float16[96]
    y: fragment.float32[96]
    z: fragment.float32[96]
    low: fragment.float32[1]
    size: fragment.float32[1]
    all: fragment.float32[1]

    copy(X[bx, :], x)
    for j in parallel(96):
        y[j] = select(j % 3 == 0, float32(x[j]) * 2.0, max(float32(x[j]), float32(B[bx, j]) + Z[bx, j]))
    for n in parallel(96):
        x[n] = select(y[n] < 0.5, x[n], float16(y[n]))
        y[n] = select(x[n] < 0.0, y[n] - 1.0, float32(x[n]))
    for o in parallel(96):
        y[o] = select(y[o] < -2.0, -2.0, y[o])
    reduce(y, low, kind="min", axis=0)
    for k in parallel(96):
        z[k] = y[k] - float32(x[k])
        Z[bx, k] = Z[bx, k] + exp(min(z[k], 3.0))
    reduce(z, size, kind="absmax", axis=0)
    for l in parallel(96):
        x[l] = float16(z[l] + low[0])
    reduce(x, all, kind="abssum", axis=0)
    for m in parallel(96):
        Y[bx, m] = x[95 - m]
    S[bx, 0] = low[0]
    S[bx, 1] = size[0]
    S[bx, 2] = all[0]
"""

TURNS = """
def turns(X: bfloat16[4, 160], I: inout.bfloat16[4, 80], Y: out.float32[4, 160], Z: out.float32[4, 40], \
S: out.float32[4]):
    bx: grid[4]
    x: shared.bfloat16[40]
    y: fragment.float32[40]
    old: fragment.float32[40]
    total: fragment.float32[1]

    fill(total, 1.0)
    fill(old, 0.0)
    fill(x, 0.0)
    for n in serial(4):
        copy(X[bx, n * 40 : +40], x)
        for j in parallel(40):
            y[j] = float32(x[j]) * 3.0 + old[j]
        reduce(y, total, kind="sum", axis=0, clear=False)
        for k in parallel(40):
            old[k] = y[k]
        copy(y, Y[bx, n * 40 : +40])
    copy(I[bx, 40 : +40], x)
    total[0] = total[0] + 1.0
    for l in parallel(40):
        Z[bx, l] = float32(x[l]) + y[l]
        I[bx, l + 40] = x[l]
    S[bx] = total[0]
"""

CODES = """
def codes(X: uint8[4, 100], B: int8[4, 200], S: float32[4], L: float32[16], P: bfloat16[4, 150], \
W: inout.bfloat16[4, 200], Y: out.float16[4, 200], Z: out.bfloat16[4, 200], T: out.float32[4, 200], \
R: out.bfloat16[4, 150], M: out.float32[4]):
    bx: grid[4]
    r: fragment.bfloat16[150]
    total: fragment.float32[1]

    for j in parallel(200):
        Y[bx, j] = float16(L[int32(X[bx, j // 2] >> uint8(j % 2 * 4) & 15)] * S[bx])
    for k in parallel(200):
        Z[bx, k] = bfloat16(float32(B[bx, k] % 16 - 8) / S[bx])
    for l in parallel(200):
        W[bx, l] = bfloat16(float32(X[bx, l // 2] >> uint8(l % 2 * 4) & 15) + S[bx])
        T[bx, l] = float32(W[bx, l]) * 2.0
    for m in parallel(150):
        r[m] = select(m % 3 == 0, bfloat16(P[bx, m]), bfloat16(float32(P[bx, m]) * S[bx] + float32(B[bx, m])))
    copy(r, R[bx, :])
    reduce(r, total, kind="sum", axis=0)
    M[bx] = total[0]
"""

BLOCKS = """
def blocks(X: {dtype}[24, 96], S: float32[6], Y: out.{dtype}[24, 96], M: out.float32[24]):
    bx: grid[2]
    by: grid[3]
    x: fragment.float32[4, 96]
    largest: fragment.float32[4]
    total: fragment.float32[4]

    copy(X[(by * 2 + bx) * 4 : +4, :], x)
    reduce(x, largest, kind="max", axis=1)
    for i, j in parallel(4, 96):
        x[i, j] = exp2((x[i, j] - largest[i]) * 1.5)
    reduce(x, total, kind="sum", axis=1)
    for m in parallel(4):
        M[(by * 2 + bx) * 4 + m] = total[m]
    for k, l in parallel(4, 96):
        x[k, l] = x[k, l] / total[k] * S[by * 2 + bx]
    copy(x, Y[(by * 2 + bx) * 4 : +4, :])
"""

TYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def check(load_text: Load, text: str, arrays: list[np.ndarray], ulps: dict[type, float]) -> None:
    """Fail where the CPU gives something else than the interpreter."""
    program = read_program(text)
    with np.errstate(all="ignore"):
        expected = interpret(program, [array.copy() for array in arrays])
    fresh = load_text(text).as_callable()(*arrays)
    outs, inputs = iter(fresh if isinstance(fresh, tuple) else (fresh,)), iter(arrays)
    got = []
    for param in program.params:
        role = param.role if isinstance(param, Tensor) else "in"
        array = next(outs) if role == "out" else next(inputs)
        got += [array] if role != "in" else []
    for mine, want in zip(got, expected, strict=True):
        rtol = ulps.get(want.dtype.type, 0.0)
        a, b = mine.astype(np.float64), want.astype(np.float64)
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-7)


def text_of(text: str, vector_bytes: int = 32) -> str:
    """The C of a Program, for a machine with vectors of 256 bits, or of others."""
    machine = Machine(arch="x86_64", vector_bytes=vector_bytes, registers=vector_bytes // 2)
    return generate(read_program(text), machine, {}).text


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TYPES)
def test_rows_of_blocks_at_the_edge_are_what_the_interpreter_gives(
    dtype: str, load_text: Load
) -> None:
    """Whole blocks in one pass and the last one row by row give the same, NaN and infinities too."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((10, 203), np.float32) * 4
    x[1, 7], x[2, 202], x[5, 3], x[6, 200] = -np.inf, np.nan, -300.0, np.inf
    x[9, :] = -np.inf
    ulps = {np.float32: 3e-6, np.float16: 2e-3, ml_dtypes.bfloat16: 1e-2}
    check(load_text, SOFTMAX.format(dtype=dtype), [x.astype(TYPES[dtype])], ulps)


@pytest.mark.slow
def test_values_with_several_readers_are_what_the_interpreter_gives(load_text: Load) -> None:
    """Tiles that are read again, written anew and turned round, and arrays that are read and written."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((6, 96)).astype(np.float16)
    b = rng.integers(-3, 4, (6, 96)).astype(np.int8)
    z = rng.standard_normal((6, 96)).astype(np.float32)
    x[3, 5] = np.nan
    check(load_text, READERS, [x, b, z], {np.float32: 1e-5, np.float16: 1e-3})


@pytest.mark.slow
def test_what_one_turn_leaves_to_the_next_is_written(load_text: Load) -> None:
    """Tiles that a loop's next turn or what follows the loop reads are kept, though its body does not."""
    rng = np.random.default_rng(2)
    x, i = (rng.standard_normal((4, n)).astype(ml_dtypes.bfloat16) for n in (160, 80))
    check(load_text, TURNS, [x, i], {np.float32: 1e-5})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "columns"), [("float32", 96), ("float16", 128), ("bfloat16", 128)]
)
def test_blocks_that_overlap_give_the_same_bits(
    dtype: str, columns: int, load_text: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows written while the next block computes are the same, whichever blocks a thread has."""
    rng = np.random.default_rng(4)
    x = rng.standard_normal((24, columns), np.float32) * 4
    x[1, 7], x[2, 90], x[5, 3], x[6, 20] = -np.inf, np.nan, -300.0, np.inf
    arrays = [x.astype(TYPES[dtype]), rng.standard_normal(6, np.float32)]
    found = []
    for name, wide in (("blocks", 0), ("apart", 1 << 20)):
        monkeypatch.setattr(overlap, "WIDE", wide)
        text = BLOCKS.format(dtype=dtype).replace("blocks", name).replace("96", str(columns))
        assert ("if (block > first)" in text_of(text)) == (name == "blocks")
        check(
            load_text, text, arrays, {np.float32: 3e-6, np.float16: 2e-3, ml_dtypes.bfloat16: 1e-2}
        )
        for cores in ((), tuple(os.sched_getaffinity(0))[:1]):
            outs = load_text(text, cores).as_callable()(*arrays)
            found.append([array.tobytes() for array in outs])
    assert found == found[:1] * 4


def test_blocks_overlap_only_if_the_result_cannot_change() -> None:
    """Nothing else may need what a pass reads or writes that runs earlier or later, and no index may fail."""
    whole, rows = BLOCKS.format(dtype="float16"), "X[24 // (2 - by) % 6 * 4 : +4, :]"
    changes = {
        "total[k] *": "total[k] * largest[k] *",
        "total[k] ": "total[3 - k] ",
        "= total[m]": "= largest[m]",
        "+ m] = total[m]": "+ m] = total[m]\n        Y[0, m] = float16(total[m])",
        "S: float32[6]": "S: inout.float32[6]",
        "x[k, l] = x[k, l]": "Y[(by * 2 + bx) * 4 + k, l] = x[k, 95 - l]",
        "reduce(x, largest": f"reduce({rows}, low, kind='min', axis=1)\n    reduce({rows}, largest",
        ", Y[(by * 2 + bx) * 4": ", Y[24 // (2 - by) % 6 * 4",
        "exp2(": "(",
        "96": "100",
    }
    texts = {part: whole.replace(part, other) for part, other in changes.items()}
    texts["S: float32[6]"] = texts["S: float32[6]"].replace(
        "total[m]\n", "total[m]\n        S[m] = 0.0\n"
    )
    low = texts["reduce(x, largest"].replace("total:", "low: fragment.float32[4]\n    total:")
    texts["reduce(x, largest"] = low.replace("float16", "float32")
    line = "    copy(x, Y[(by * 2 + bx) * 4 : +4, :])\n"
    texts["x[k, l] = x[k, l]"] = texts["x[k, l] = x[k, l]"].replace(line, "")
    found = {part: "(block > first)" in text_of(text, 64) for part, text in texts.items()}
    assert found == dict.fromkeys(changes, False)
    assert "(block > first)" in text_of(whole, 64)


def test_what_only_a_pass_reads_is_not_written() -> None:
    """Neither a copy of an array's rows nor values between two statements are kept in memory."""
    whole = SOFTMAX.format(dtype="float16").replace("    rows: dim\n", "")
    text = text_of(whole.replace("(rows + 3) // 4", "250").replace("rows", "1000"))
    expected = {"ty_quad_store_f32(&x[": 1, "ty_quad_store_f16(&Y[": 1, "&s[": 0}
    assert {part: text.count(part) for part in expected} == expected


@pytest.mark.slow
def test_looked_up_and_laced_values_are_what_the_interpreter_gives(load_text: Load) -> None:
    """Four bits of an element, and rows of bfloat16, at their ends too: NaN, infinities, numbers below 0."""
    rng = np.random.default_rng(3)
    x = rng.integers(0, 256, (4, 100)).astype(np.uint8)
    b = rng.integers(-128, 128, (4, 200)).astype(np.int8)
    scales = np.float32([0.3, np.nan, np.inf, -1e-6])
    codes = rng.standard_normal(16, np.float32)
    p = rng.standard_normal((4, 150)).astype(ml_dtypes.bfloat16)
    old = np.zeros((4, 200), ml_dtypes.bfloat16)
    check(load_text, CODES, [x, b, scales, codes, p, old], {np.float32: 1e-5})


def test_values_of_four_bits_are_looked_up() -> None:
    """Where rows are long, four bits are all that changes along them, and nothing reads the value again."""
    expected = {"": 2, "200": 0, "% 16": 1, "S[bx])\n    for k": 1}
    others = {"": "", "200": "96", "% 16": "% 17", "S[bx])\n    for k": "S[j % 4])\n    for k"}
    texts = {part: CODES.replace(part, other) for part, other in others.items()}
    assert {
        part: text_of(text).count("ty_quad_look_up(") for part, text in texts.items()
    } == expected


def test_rows_of_bfloat16_are_laced() -> None:
    """Unless most rows are of other floats, or one is of float16; sums are in the usual order at the end."""
    expected = {"bfloat16": 1, "float32": 0, "float16": 0}
    texts = {dtype: text_of(CODES.replace("P: bfloat16", f"P: {dtype}")) for dtype in expected}
    assert {
        dtype: text.count("ty_laced_store_bf16(&R") for dtype, text in texts.items()
    } == expected
    assert {dtype: text.count("(ty_unlaced(totals") for dtype, text in texts.items()} == expected


def test_a_pass_that_writes_an_array_prefetches_only_if_the_others_are_short() -> None:
    """It waits for its writes, and fetches a share only where one other pass could not fetch everything."""
    texts = {dtype: text_of(SOFTMAX.format(dtype=dtype)) for dtype in ("float16", "float32")}
    counts = {dtype: text.count("const char *ahead") for dtype, text in texts.items()}
    assert counts == {"float16": 1, "float32": 2}


def test_arguments_of_exp2_are_computed_early_from_what_no_step_has_written() -> None:
    """A turn of two quads ahead, where vectors are wide and rows are whole turns; not if the pass itself
    writes what they are computed from.
    """
    whole = SOFTMAX.format(dtype="float16").replace("203", "192")
    doubled = whole.replace(
        "        x[i, j] = exp2", "        x[i, j] = x[i, j] * 2.0\n        x[i, j] = exp2"
    )
    texts = [whole, doubled, whole.replace("192", "224")]
    assert [text_of(text, 64).count("ty_pair_exp2(soon)") for text in texts] == [1, 0, 0]
    assert "ty_pair" not in text_of(whole)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["exp", "exp2"])
def test_passes_for_wide_vectors_build_with_every_compiler(name: str, tmp_path: Path) -> None:
    """Also with one for which the header has no names of instructions of 512 bits, such as Clang."""
    target = CpuTarget()
    machine = msgspec.structs.replace(target.toolchain.machine, vector_bytes=64)
    flags = tuple(flag for flag in target.toolchain.flags if not flag.startswith("-DTY_VECTOR"))
    target.__dict__["toolchain"] = dataclasses.replace(
        target.toolchain, machine=machine, flags=flags
    )
    text = SOFTMAX.format(dtype="float16").replace("203", "192").replace("exp2", name)
    assert f"ty_pair_{name}(soon)" in text_of(text, 64)
    x = (np.random.default_rng(5).standard_normal((10, 192), np.float32) * 4).astype(np.float16)

    def load(text: str) -> CpuLoaded:
        loaded = load_program(target, plain_cpu((0,)), read_program(text), tmp_path)
        assert isinstance(loaded, CpuLoaded)
        return loaded

    check(load, text, [x], {np.float16: 2e-3})


def test_rows_of_a_block_that_does_not_exist_cannot_fail_the_kernel() -> None:
    """Rows of the next block are not prefetched if their place has a divisor that may be 0 there."""
    texts = [
        BLOCKS.format(dtype="float16").replace("X[(by", f"X[24 // ({n} - bx) + (by") for n in (2, 3)
    ]
    texts = [text_of(text.replace("X: float16[24", "X: float16[999")) for text in texts]
    assert [text.count("ty_divisor") for text in texts] == [0, 0]
    assert ["const char *ahead" in text for text in texts] == [False, True]


def test_a_divisor_under_a_condition_is_not_computed_before_it() -> None:
    """Whether all of a loop is inside its arrays is not tested first if that could divide by 0."""
    whole = """
def guarded(X: float32[24, 96], n: int32, Y: inout.float32[24, 96]):
    for i, j in parallel(4, 96):
        if n > 0:
            Y[24 // n + i, j] = X[0, j]
"""
    counted = whole.replace("4, 96)", "n, 96)").replace("if n > 0", "if j >= 0")
    bare = whole.replace("if n > 0", "if j >= 0").replace("24 // n", "n")
    texts = [text_of(text) for text in (whole, counted, bare)]
    assert ["all of it inside" in text for text in texts] == [False, False, True]
