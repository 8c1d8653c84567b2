"""Accesses past the end of a tile that the CPU target stores otherwise, or not at all, are faults."""

import re

import numpy as np
import pytest

from tileyard.base.errors import KernelFault
from tileyard.ir.interpret import interpret
from tileyard.ir.reader import read_program
from tileyard.targets.cpu.loaded import CpuLoaded
from tileyard.targets.cpu.target import CpuTarget
from tileyard.testing.target_cases import make_source, store_artifact

# Each is the body of one branch of a kernel, with tiles of its own.
PAST_THE_END = {
    "a parallel loop reads": "for i in parallel(128):\n    Y[i] = t[i]",
    "a second statement of a pass reads": """
for i in parallel(64):
    Y[i] = t[i] + 1.0
for j in parallel(64):
    Y[j + 64] = Y[j + 64] * t[j + 1]""",
    "a tile that repeats another is read": "copy(t, u)\nfor i in parallel(64):\n    Y[i] = u[i + 1]",
    "only one side of a select reads": """
for i in parallel(64):
    Y[i] = t[i + 64] if i < 4 else 1.0""",
    "a binding that nothing uses reads": """
for i in parallel(64):
    x = t[i + 1]
    Z[i] = float16(2.0)""",
    "a binding of a binding reads": """
for i in parallel(64):
    x = t[i + 1]
    y = x + 1.0
    Z[i] = float16(2.0)""",
    "an index is read": "for i in parallel(64):\n    Y[i] = X[int32(t[i + 1])]",
    "a branch of a loop reads": "for i in parallel(64):\n    if i > 4:\n        Y[i] = t[i + 1]",
    "a copy reads": "copy(t[past : +64], Y[0 : +64])",
    "a copy between tiles reads": "copy(t[past : +64], u)\ncopy(u, Y[0 : +64])",
    "a reduction reads": 'reduce(t[past : +64], s, kind="max", axis=0)\nY[0] = s[0]',
    "a condition reads": "if t[63 + past] > 0.0:\n    Y[0] = 1.0",
    "a parallel loop writes": "for i in parallel(64):\n    t[i + past] = 1.0\ncopy(t, Y[0 : +64])",
    "a copy writes": "copy(X[0 : +64], t[past : +64])",
    "a fill writes": "fill(t[past : +64], 0.0)",
    "a reduction writes": 'reduce(m, t[past + 48 : +16], kind="sum", axis=1)',
    "an atomic update writes": "for i in parallel(64):\n    atomic_add(t[i + 1], 1.0)",
    "a product reads one of several left operands": """
copy(G, a)
gemm(a[past + 1, :, :], m, c)""",
    "a copy writes one of several right operands": """
copy(G[0, :, :], a[past + 1, :, :])
gemm(m, a[0, :, :], c)""",
    "a fill with ones writes one of several operands": """
fill(a[past + 1, :, :], 1.0)
gemm(a[0, :, :], m, c)""",
    "a fill with zeros writes one of several operands": """
fill(a[past + 1, :, :], 0.0)
gemm(a[0, :, :], m, c)""",
    "a product writes": "gemm(m, m, w[past + 16 : +16, 16 : +16])",
}

TILES = {
    "t": "shared.float32[64]",
    "u": "fragment.float32[64]",
    "s": "fragment.float32[1]",
    "m": "shared.float32[16, 16]",
    "c": "fragment.float32[16, 16]",
    "w": "fragment.float32[32, 32]",
    "a": "shared.float32[2, 16, 16]",
}
FILLED = ("copy(X[bx * 64 : +64], t)", "copy(Q, m)", "fill(c, 0.0)", "fill(w, 0.0)")
NAMES = re.compile(r"\b[a-z]\b")


def _make_text() -> str:
    """A kernel whose scalar ``which`` selects the access; one-letter names of each are its own."""
    tiles, body = [], []
    for number, access in enumerate(PAST_THE_END.values()):
        lines = [*FILLED, *access.strip().split("\n")]
        numbered = rf"\g<0>{number}"
        body += [f"if which == {number}:", *(f"    {NAMES.sub(numbered, line)}" for line in lines)]
        tiles += [f"{name}{number}: {kind}" for name, kind in TILES.items()]
    head = "X: float32[1024], Q: float32[16, 16], G: float32[2, 16, 16], past: int32, which: int32"
    inside = "\n".join(f"    {line}" for line in ["bx: grid[2]", *tiles, *body])
    return f"def past_the_end({head}, Y: out.float32[128], Z: out.float16[64]):\n{inside}\n"


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> CpuLoaded:
    """The kernel, built without the C compiler's optimizations, which decide nothing here."""
    target, folder = CpuTarget("native,debug=1"), tmp_path_factory.mktemp("past")
    (build,) = target.build([make_source(read_program(_make_text()))], folder)
    return CpuLoaded(store_artifact(target, build, folder), (), is_pinned=False)


@pytest.mark.parametrize("access", PAST_THE_END)
def test_an_access_past_the_end_of_a_tile_is_a_fault(past: CpuLoaded, access: str) -> None:
    """A tile that is left out, or stored as gemms read it, keeps its bounds."""
    arrays = [np.ones(shape, np.float32) for shape in ((1024,), (16, 16), (2, 16, 16))]
    scalars = (1, list(PAST_THE_END).index(access))
    with pytest.raises(KernelFault, match="outside its shape"):
        interpret(read_program(_make_text()), arrays, scalars)
    with pytest.raises(KernelFault, match="outside its shape"):
        past.bind(arrays, scalars).run()
