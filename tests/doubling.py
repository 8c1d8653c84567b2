"""A file with a kernel that doubles numbers, in several shapes, for runs over several hosts."""

from collections.abc import Mapping
from pathlib import Path

KERNEL = """
import tilelang.language as T
import tileyard


@tileyard.kernel(shapes=SHAPES, reference=lambda A: A * 2)
def double(N, block=32):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block), threads=32) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] * 2

    return main
"""


def write_doubling(folder: Path, sizes: Mapping[str, int]) -> None:
    """Write ``double.py`` with a shape of each name for this many numbers, a multiple of 32."""
    shapes = {name: {"N": size} for name, size in sizes.items()}
    text = KERNEL.replace("SHAPES", repr(shapes))
    (folder / "double.py").write_text(text, encoding="utf-8")
