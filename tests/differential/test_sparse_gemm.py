"""TileLang's sparse products, lowered and run on what the documented format makes of a matrix."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.compressed import compress, draw_sparse
from tests.conftest import ROOT
from tests.differential.conftest import load_module

from tileyard.base.errors import UnsupportedError
from tileyard.ir.interpret import interpret
from tileyard.targets.cpu.emit.program import generate
from tileyard.targets.cpu.target import CpuTarget

if TYPE_CHECKING:
    from tileyard.frontend.tilelang import Lowered

pytestmark = pytest.mark.slow

SPARSE = ROOT / "tests" / "sync" / "sparse.py"
Lower = Callable[..., "Lowered"]


def lower(lower_prim_func: Lower, *, by_wgmma: bool = False) -> "Lowered":
    """The kernel of tests/sync/sparse.py."""
    kernel = load_module(SPARSE).matmul_sp
    func = getattr(kernel, "jit_impl", kernel).get_tir(M=32, N=16, K=64, by_wgmma=by_wgmma)
    return lower_prim_func(func, [-1])


@pytest.mark.parametrize("by_wgmma", [False, True])
def test_sparse_product_is_that_of_the_whole_matrix(lower_prim_func: Lower, by_wgmma: bool) -> None:
    """As the kernel is written, and settled."""
    lowered = lower(lower_prim_func, by_wgmma=by_wgmma)
    dense = draw_sparse((32, 64), "float16", seed=2)
    b = np.random.default_rng(2).integers(-3, 4, (64, 16)).astype(np.float16)
    expected = dense.astype(np.float32) @ b.astype(np.float32)
    for program in (lowered.program, lowered.written):
        (got,) = interpret(program, [*compress(dense, "int16"), b])
        np.testing.assert_array_equal(got, expected)


def test_the_cpu_target_refuses_it_at_its_line(lower_prim_func: Lower) -> None:
    """By its name."""
    lowered = lower(lower_prim_func)
    with pytest.raises(UnsupportedError, match=r"^gemm_sp is not covered$") as caught:
        generate(lowered.program, CpuTarget().toolchain.machine, lowered.lines)
    assert caught.value.file.endswith("sparse.py")
    assert caught.value.line > 0
