"""Sanitized builds for the CPU: a block's read of what it has not written is a fault, with two lines."""

import re

import numpy as np
import pytest

from tileyard.artifacts.manifest import Artifact
from tileyard.base.errors import KernelFault
from tileyard.base.model import SourceLine
from tileyard.ir.interpret import interpret
from tileyard.ir.printer import print_statement
from tileyard.ir.reader import read_program
from tileyard.ir.walk import number_statements
from tileyard.targets.cpu.loaded import CpuLoaded
from tileyard.targets.cpu.target import CpuTarget
from tileyard.testing.target_cases import make_source, store_artifact

# Each is the body of one branch of a kernel with tiles of its own: the buffer that is read too early, its
# last write (none is its allocation), and the statement that reads it, both as they begin in the text.
TOO_EARLY = {
    "a product adds to it": ("c", "", "gemm(m", "copy(Q, m)\ngemm(m, m, c)"),
    "a product multiplies it": ("m", "", "gemm(m", "fill(c, 0.0)\ngemm(m, m, c)"),
    "another block has written it": (
        "f",
        "",
        "Y[bx] = float32(f",
        "if bx == 0:\n    f[0] = 3\nY[bx] = float32(f[0])",
    ),
    "a copy reads it": ("t", "", "copy(t", "copy(t, Y[0 : +64])"),
    "a copy reads the half that is not written": (
        *("t", "fill(t", "copy(t"),
        "fill(t[0 : +32], 0.0)\ncopy(t, Y[0 : +64])",
    ),
    "a reduction reads it": ("t", "", "reduce(t", 'reduce(t, s, kind="max", axis=0)'),
    "a reduction adds to it": (
        *("s", "", "reduce(t"),
        'fill(t, 0.0)\nreduce(t, s, kind="sum", axis=0, clear=False)',
    ),
    "a parallel loop reads one element too far": (
        *("t", "t[i", "Y[j"),
        "for i in parallel(63):\n    t[i] = 1.0\nfor j in parallel(64):\n    Y[j] = t[j]",
    ),
    "a branch of a loop reads it": (
        *("t", "t[i", "Y[j"),
        "for i in parallel(64):\n    if i < 9:\n        t[i] = 1.0\nfor j in parallel(64):\n    Y[j] = t[j]",
    ),
    "a condition reads it": ("f", "", "if f", "if f[0] > 0:\n    Y[0] = 1.0"),
    "a loop runs as often as it says": ("f", "", "for i", "for i in serial(f[0]):\n    Y[i] = 1.0"),
    "a loop runs as long as it says": ("f", "", "while f", "while f[0] != 1:\n    Y[0] = 1.0"),
    "an index reads it": ("f", "", "Y[f", "Y[f[0]] = 1.0"),
    "a region begins where it says": ("f", "", "copy(X[f", "copy(X[f[0] : +64], t)"),
    "a binding reads it": ("f", "", "x", "x = f[0]\nY[0] = 1.0"),
    "an atomic update adds to it": ("t", "", "atomic_add(t", "atomic_add(t[3], 1.0)"),
    "it is read by another name": (
        "v",
        "fill(t",
        "Y[0] = v",
        "fill(t[0 : +32], 0.0)\nY[0] = v[7, 7]",
    ),
}
TILES = {
    "t": "shared.float32[64]",
    "v": "shared.float32[8, 8] = t",
    "f": "shared.int32[1]",
    "s": "fragment.float32[1]",
    "m": "shared.float32[16, 16]",
    "c": "fragment.float32[16, 16]",
}
RIGHT = """
copy(X[bx * 64 : +64], t)
for i in parallel(64):
    if i % 2 == 0:
        t[i] = t[i] + 1.0
fill(c, 0.0)
copy(Q, m)
gemm(m, m, c)
reduce(c, m[0, :], kind="sum", axis=1)
f[0] = bx
atomic_add(f[0], 1)
for j in parallel(64):
    Y[bx * 64 + j] = v[j // 8, j % 8] * float32(f[0]) + m[0, j % 16]"""
NAMES = re.compile(r"\b[a-z]\b")


def _make_text() -> str:
    """A kernel whose scalar ``which`` selects the body; one-letter names of each are its own."""
    tiles, body = [], []
    for number, text in enumerate((*(case[-1] for case in TOO_EARLY.values()), RIGHT)):
        numbered = rf"\g<0>{number}"
        lines = (NAMES.sub(numbered, line) for line in text.strip().split("\n"))
        body += [f"if which == {number}:", *(f"    {line}" for line in lines)]
        tiles += [NAMES.sub(numbered, f"{name}: {kind}") for name, kind in TILES.items()]
    inside = "\n".join(f"    {line}" for line in ["bx: grid[2]", *tiles, *body])
    head = "X: float32[128], Q: float32[16, 16], which: int32, Y: out.float32[128]"
    return f"def too_early({head}):\n{inside}\n"


PROGRAM = read_program(_make_text())
ARRAYS = [np.ones(shape, np.float32) for shape in ((128,), (16, 16))]
LINES = {
    **{number: SourceLine(file="k.py", line=number) for number, _ in number_statements(PROGRAM)},
    **{-1 - i: SourceLine(file="k.py", line=5000 + i) for i in range(len(PROGRAM.buffers))},
}


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """The kernel, built sanitized."""
    target, folder = CpuTarget("native,optimize=1,sanitize=1"), tmp_path_factory.mktemp("sanitized")
    (build,) = target.build([make_source(PROGRAM)], folder)
    return store_artifact(target, build, folder)


@pytest.fixture
def sanitized(artifact: Artifact) -> CpuLoaded:
    """The kernel, with a line for each statement and each tile."""
    loaded = CpuLoaded(artifact, (), is_pinned=False)
    loaded.know_lines(LINES)
    return loaded


@pytest.mark.parametrize("name", TOO_EARLY)
def test_a_read_of_what_the_block_has_not_written_has_both_lines(
    sanitized: CpuLoaded, name: str
) -> None:
    """That of the read, and that of the tile's last write, or of its allocation if there was none."""
    number = list(TOO_EARLY).index(name)
    buffer, written, read, _ = TOO_EARLY[name]
    with pytest.raises(KernelFault) as found:
        sanitized.bind(ARRAYS, (number,)).run()
    own = [NAMES.sub(rf"\g<0>{number}", text) for text in (read, buffer, written or buffer)]
    expected = (
        f"k.py:{_line(own[0])}: {own[1]} is read where nothing has been written in this block; "
        f"k.py:{_line(own[2])}: "
    )
    assert str(found.value).startswith(expected)


def _line(beginning: str) -> int:
    """The line of the first statement whose text begins so, or of the tile of this name."""
    tiles = [buffer.name for buffer in PROGRAM.buffers]
    if beginning in tiles:
        return LINES[-1 - tiles.index(beginning)].line
    texts = ((n, print_statement(PROGRAM, one).strip()) for n, one in number_statements(PROGRAM))
    return next(number for number, text in texts if text.startswith(beginning))


def test_a_kernel_that_writes_first_gives_what_it_gives_otherwise(sanitized: CpuLoaded) -> None:
    """Poison and checks change no result."""
    launch = sanitized.bind(ARRAYS, (len(TOO_EARLY),))
    launch.run()
    (want,) = interpret(PROGRAM, ARRAYS, (len(TOO_EARLY),))
    np.testing.assert_array_equal(launch.read()[0], want)


def test_without_lines_only_the_read_is_reported(artifact: Artifact) -> None:
    """The allocation of a tile would say nothing."""
    loaded = CpuLoaded(artifact, (), is_pinned=False)
    with pytest.raises(KernelFault) as found:
        loaded.bind(ARRAYS, (0,)).run()
    assert str(found.value) == "too_early: c0 is read where nothing has been written in this block"
