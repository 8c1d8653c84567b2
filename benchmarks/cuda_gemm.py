"""A space of 24 configs of a half-precision GEMM on 4096 x 4096 matrices, for ``cuda_build.py``."""

import itertools

import tilelang.language as T

import tileyard

TILES = [(64, 64, 32), (64, 128, 32), (128, 64, 64), (128, 128, 32), (128, 128, 64), (128, 256, 32)]
CONFIGS = [
    {"block_M": m, "block_N": n, "block_K": k, "num_stages": stages, "threads": threads}
    for (m, n, k), stages, threads in itertools.product(TILES, (2, 3), (128, 256))
]


@tileyard.kernel(space=CONFIGS)
def gemm(
    M=4096,
    N=4096,
    K=4096,
    block_M=128,
    block_N=128,
    block_K=32,
    num_stages=3,
    threads=128,
):
    """C (M x N) = A (M x K) @ B (K x N) in float16, accumulated in float32."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        C: T.Tensor((M, N), "float16"),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_tile = T.alloc_shared((block_M, block_K), "float16")
            B_tile = T.alloc_shared((block_K, block_N), "float16")
            C_tile = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(C_tile)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, k * block_K], A_tile)
                T.copy(B[k * block_K, bx * block_N], B_tile)
                T.gemm(A_tile, B_tile, C_tile)
            T.copy(C_tile, C[by * block_M, bx * block_N])

    return main
