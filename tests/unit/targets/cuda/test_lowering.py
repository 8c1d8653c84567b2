"""How TileLang's refusals are told."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from tileyard.artifacts.objects import ObjectStore
from tileyard.base.model import Elaborated, Value
from tileyard.workers.author import Author
from tileyard.workers.protocol import ElaborateConfig, ElaboratedConfig

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"tl.enable_fast_mth": True},
            r"TileLang has no pass option 'tl.enable_fast_mth' \(near to it: tl.enable_fast_math",
        ),
        ({"zzzzzz": 1}, "TileLang has no pass option 'zzzzzz'$"),
        ({"tl.enable_fast_math": "yes"}, "TileLang: Expect config tl.enable_fast_math"),
    ],
)
def test_pass_options_that_make_no_sense_are_one_line(
    gelu: Callable[[int, int], Elaborated],
    lowering: ModuleType,
    options: dict[str, Value],
    expected: str,
) -> None:
    """An option that TileLang does not have is named with what is near to it, and not with all there are."""
    whole = gelu(1024, 64)
    kernel = msgspec.structs.replace(whole.kernel, pass_options=options)
    with pytest.raises(lowering.LoweringError, match=expected) as caught:
        lowering.lower(msgspec.structs.replace(whole, kernel=kernel), "sm_80")
    assert len(caught.value.diagnostic.message) < 200


def test_what_marks_the_outputs_is_not_lowered(
    gelu: Callable[[int, int], Elaborated], lowering: ModuleType
) -> None:
    """Host code of TileLang 0.1.14 would make them itself, and could not be followed."""
    whole = gelu(1024, 64)
    assert "tilelang_out_idx" in whole.tir
    assert "tilelang_out_idx" not in lowering.lower(whole, "sm_80").host


HUNGRY = """
import resource
import tilelang.language as T
from tileyard.frontend.tilelang import make_kernel
from tileyard.base.model import Elaborated
from tileyard.targets.cuda.lowering import lower

@T.prim_func
def main(A: T.Tensor((256,), "float32"), B: T.Tensor((256,), "float32")):
    with T.Kernel(1, threads=128) as bx:
        for i in T.unroll(30_000_000, explicit=True):
            B[i % 256] = A[i % 256] + 1.0

made = make_kernel(main, with_tir=True)
status = open("/proc/self/statm").read().split()
limit = int(status[0]) * resource.getpagesize() + (64 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    lower(Elaborated(kernel=made.kernel, tir=made.tir), "sm_80")
except MemoryError as error:
    print(f"refused: {error}")
"""


def test_passes_that_eat_memory_are_no_error_of_the_kernel(tmp_path: Path) -> None:
    """Thirty million statements of one loop are more than a process may take: that is want of memory."""
    script = tmp_path / "hungry.py"
    script.write_text(HUNGRY)
    target = {"TILELANG_DEFAULT_TARGET": '{"kind": "cuda", "arch": "sm_80"}'}
    expected = "refused: "
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, **target},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.stdout.splitlines()[-1:] == [f"{expected}std::bad_alloc"], done.stderr


TILES = """
import tilelang.language as T
import tileyard

@tileyard.kernel()
def tiles(M=64):
    @T.prim_func
    def main(A: T.Tensor((M, 64), "float16"), O: T.Tensor((M, 64), "float32")):
        with T.Kernel(1, threads=128) as bx:
            a = T.alloc_shared((M, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((M, 64), "float32")
            d = T.alloc_fragment((M, 64), "float32")
            T.copy(A, a)
            T.fill(b, 1)
            T.clear(c)
            T.gemm(a, b, c)
            {lines}
            T.copy(c, O)
    return main
"""
REFUSED = {
    "for i, j in T.Parallel(M, 64):\n    d[i, j] = c[j, i] + 1\nT.gemm(a, b, d)": (
        64,
        1,
        "TileLang: c and d lie on different threads: let one of them pass through shared memory, in "
        "`d[i, j] = c[j, i] + 1` (Layout infer conflict between c and d in T.Parallel loop:)",
    ),
    "": (
        3,
        -1,
        "TileLang: M must be divisible by 16, but got 3, in `T.gemm(a, b, c)` (Check failed: ",
    ),
}


@pytest.mark.parametrize("lines", REFUSED)
def test_what_tilelang_refuses_is_told_with_a_line_of_the_kernel(
    lowering: ModuleType, tmp_path: Path, lines: str
) -> None:
    """A layout for which there is none, and a tile of a wrong size: TileLang names neither line."""
    rows, below, expected = REFUSED[lines]
    file = tmp_path / f"tiles{rows}.py"
    file.write_text(TILES.format(lines=lines.replace("\n", "\n" + 12 * " ")))
    author = Author.of_file(file, ObjectStore(tmp_path))
    request = ElaborateConfig(kernel="tiles", arguments={"M": rows}, config={}, with_tir=True)
    reply = author.answer(request)
    assert isinstance(reply, ElaboratedConfig), reply
    with pytest.raises(lowering.LoweringError) as caught:
        lowering.lower(reply.elaborated, "sm_90a")
    found = caught.value.diagnostic
    assert found.message.startswith(expected), found.message
    assert "\n" not in found.message
    assert found.where.line == TILES[: TILES.index("{lines}")].count("\n") + 1 + below
