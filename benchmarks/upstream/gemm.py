"""A matrix product, tuned with the chain."""

import tilelang.language as T
from tilelang.autotuner import AutoTuner

CONFIGS = [
    {"block_M": m, "block_N": n, "num_stages": stages}
    for m in (64, 128)
    for n in (64, 128)
    for stages in (2, 3)
]


def matmul(M, N, K):
    def kernel(block_M=None, block_N=None, num_stages=None):
        @T.prim_func
        def main(
            A: T.Tensor((M, K), "float16"),
            B: T.Tensor((N, K), "float16"),
            C: T.Tensor((M, N), "float16"),
        ):
            with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
                A_shared = T.alloc_shared((block_M, 32), "float16")
                B_shared = T.alloc_shared((block_N, 32), "float16")
                C_local = T.alloc_fragment((block_M, block_N), "float32")
                T.clear(C_local)
                for k in T.Pipelined(T.ceildiv(K, 32), num_stages=num_stages):
                    T.copy(A[by * block_M, k * 32], A_shared)
                    T.copy(B[bx * block_N, k * 32], B_shared)
                    T.gemm(A_shared, B_shared, C_local, transpose_B=True)
                T.copy(C_local, C[by * block_M, bx * block_N])

        return main

    return kernel


def tune():
    return (
        AutoTuner.from_kernel(matmul(1024, 1024, 1024), CONFIGS)
        .set_compile_args(out_idx=[-1], target={"kind": "cuda", "arch": "sm_90a"})
        .set_profile_args(skip_check=True)
        .run(warmup=5, rep=50)
    )
