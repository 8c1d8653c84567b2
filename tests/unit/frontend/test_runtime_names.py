"""Sizes and numbers that a call brings can be given, wherever the kernel's source names them."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tileyard.artifacts.objects import ObjectStore
from tileyard.workers.author import Author
from tileyard.workers.protocol import (
    DescribeKernels,
    ElaborateConfig,
    ElaboratedConfig,
    Failed,
    Kernels,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:T.symbolic:DeprecationWarning"),
]

ROWS = """
import tilelang.language as T

def copy(block, n):
    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, block), threads=32) as bx:
            s = T.alloc_shared((block,), "float32")
            T.copy(A[bx * block], s)
            T.copy(s, B[bx * block])
    return main

def copy_rows(block):
    return copy(block, T.symbolic("rows"))
"""
KERNELS = """
import functools
import tilelang
import tilelang.language as T
import tileyard
import rows_of_ours
from rows_of_ours import copy, copy_rows

width = T.dynamic("width")

def size(name):
    return T.dynamic(name)

def closed_over():
    depth = T.symbolic("depth")
    return lambda block: copy(block, depth)

in_closure = closed_over()
by_name = {"plain": lambda block: copy(block, T.dynamic("length"))}
part = functools.partial(copy_rows, 32)

class Maker:
    @staticmethod
    def make(block):
        return copy(block, T.dynamic("count"))

maker = Maker()

def scale(block):
    @T.prim_func
    def main(A: T.Tensor((32,), "float32"), factor: T.float32, B: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=32) as bx:
            for i in T.Parallel(32):
                B[i] = A[i] * factor
    return main

@tilelang.jit
def imported(block=32):
    return copy_rows(block)

@tileyard.kernel()
def of_module(block=32):
    return rows_of_ours.copy_rows(block)

@tileyard.kernel()
def imports_later(block=32):
    from rows_of_ours import copy_rows as later
    return later(block)

@tileyard.kernel()
def partial(block=32):
    return part()

@tileyard.kernel()
def global_size(block=32):
    return copy(block, width)

@tileyard.kernel()
def closure(block=32):
    return in_closure(block)

@tileyard.kernel()
def table(block=32):
    return by_name["plain"](block)

@tileyard.kernel()
def method(block=32):
    return maker.make(block)

@tileyard.kernel()
def number(block=32):
    return scale(block)

@tileyard.kernel()
def computed(block=32):
    return copy(block, size("n"))

@tileyard.kernel()
def stride(block=32):
    step = T.dynamic("step")

    @T.prim_func
    def main(A: T.StridedTensor((4, block), (step, 1), "float32"), B: T.Tensor((4, block), "float32")):
        with T.Kernel(1, threads=32) as bx:
            T.copy(A, B)
    return main
"""
TAKEN = {
    **dict.fromkeys(("imported", "of_module", "imports_later", "partial"), "rows"),
    "global_size": "width",
    "closure": "depth",
    "table": "length",
    "method": "count",
    "number": "factor",
    "computed": "n",
    "stride": "step",
}


@pytest.fixture
def author(tmp_path: Path) -> Iterator[Author]:
    """The author of a file whose kernels name their sizes elsewhere."""
    (tmp_path / "rows_of_ours.py").write_text(ROWS)
    (tmp_path / "kernels.py").write_text(KERNELS)
    yield Author.of_file(tmp_path / "kernels.py", ObjectStore(tmp_path))
    sys.modules.pop("rows_of_ours", None)


def test_a_size_that_is_named_in_a_called_function_can_be_given(author: Author) -> None:
    """Helpers, closures, methods, tables and modules are read; elaboration knows computed names."""
    described = author.answer(DescribeKernels())
    assert isinstance(described, Kernels)
    known = {info.name: info for info in described.kernels}
    assert known.keys() == TAKEN.keys()
    for kernel, size in TAKEN.items():
        assert known[kernel].may_take(size), kernel
        assert (size in known[kernel].parameters) is (kernel != "computed"), kernel
        request = ElaborateConfig(kernel=kernel, arguments={size: 64}, config={})
        reply = author.answer(request)
        assert isinstance(reply, ElaboratedConfig), reply


def test_a_size_that_a_kernel_does_not_have_is_refused(author: Author) -> None:
    """Before anything is elaborated if all names are known, afterwards if one is computed."""
    described = author.answer(DescribeKernels())
    assert isinstance(described, Kernels)
    assert [info.name for info in described.kernels if info.may_take("nn")] == ["computed"]
    for kernel in ("closure", "computed"):
        request = ElaborateConfig(kernel=kernel, arguments={"nn": 64}, config={})
        reply = author.answer(request)
        assert isinstance(reply, Failed)
        assert f"{kernel} has no argument 'nn'" in reply.message
