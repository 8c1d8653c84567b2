"""TileLang as kernels are elaborated with it where there is no GPU."""

import subprocess
import sys
from pathlib import Path

import pytest

KERNEL = """
import tilelang.language as T


@T.macro
def tell(x):
    T.print(x, msg="inside")


@T.prim_func
def main(X: T.Tensor((8,), "float32"), Y: T.Tensor((8,), "float32")):
    with T.Kernel(1, threads=32) as bx:
        x = T.alloc_fragment((8,), "float32")
        T.copy(X, x); T.print(x[0], msg="first"); T.print(x[1], msg="second")
        # T.print(x[2]) is a comment
        T.device_assert(x[0] < 1)
        tell(x[3])
        T.copy(x, Y)
"""

LOWER = """
from tileyard.frontend.no_device import adjust_tilelang
from tileyard.frontend.no_device import on_import

on_import(
    "tilelang.cuda.target",
    lambda module: vars(module).update(check_cuda_availability=lambda: False),
)
adjust_tilelang()

from pathlib import Path

import kernel
from tileyard.frontend.tilelang import lower_prim_func
from tileyard.ir.walk import number_statements

lowered = lower_prim_func(kernel.main)
for number, stmt in number_statements(lowered.program):
    where = lowered.lines[number]
    print(stmt.__struct_config__.tag, f"{Path(where.file).name}:{where.line}")
"""


@pytest.mark.slow
def test_lines_are_the_callers_and_assertions_stay_without_cuda(tmp_path: Path) -> None:
    """Several calls on one line, comments and macros of the user's: each statement has its own line."""
    (tmp_path / "kernel.py").write_text(KERNEL)
    done = subprocess.run(
        [sys.executable, "-c", LOWER], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    expected = ["copy 14", "print 14", "print 14", "assert 16", "let 6", "print 7", "copy 18"]
    told = done.stdout.replace("kernel.py:", "").splitlines()
    assert told == expected, done.stderr
