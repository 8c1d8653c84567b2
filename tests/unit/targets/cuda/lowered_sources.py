"""What TileLang's passes make of a few kernels, to compare processes. Imports TileLang: import it late."""

import hashlib

from benchmarks import cuda_gemm
from tests.kernels import elementwise, reductions

from tileyard.base.model import Elaborated
from tileyard.frontend.tilelang import make_kernel
from tileyard.targets.cuda.lowering import lower


def lower_sources() -> list[str]:
    """Digests of the CUDA sources of a gemm, an elementwise kernel and a reduction."""
    kernels = [
        cuda_gemm.gemm(**cuda_gemm.CONFIGS[0]),
        elementwise.add.get_tir(M=64, N=512),
        reductions.softmax.get_tir(M=16, N=256),
    ]
    sources = []
    for func in kernels:
        made = make_kernel(func, name="kernel", with_tir=True)
        source = lower(Elaborated(kernel=made.kernel, tir=made.tir), "sm_80").source
        sources.append(hashlib.sha256(source.encode()).hexdigest())
    return sources
