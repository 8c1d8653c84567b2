"""A matrix product, one version of which computes it more often than another."""

import tilelang.language as T

import tileyard


@tileyard.kernel(
    space={"block_M": [64, 32], "block_N": [64, 32]},
    shapes={"small": {"M": 128, "N": 128, "K": 128}},
    reference=lambda A, B: A @ B,
)
def gemm(M, N, K, block_M=64, block_N=64, block_K=32, num_stages=2):
    """C (M x N) = A (M x K) @ B (K x N)."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float32"),
        B: T.Tensor((K, N), "float32"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_tile = T.alloc_shared((block_M, block_K), "float32")
            B_tile = T.alloc_shared((block_K, block_N), "float32")
            C_tile = T.alloc_fragment((block_M, block_N), "float32")
            for _ in T.serial(4):
                T.clear(C_tile)
                for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                    T.copy(A[by * block_M, k * block_K], A_tile)
                    T.copy(B[k * block_K, bx * block_N], B_tile)
                    T.gemm(A_tile, B_tile, C_tile)
                T.copy(C_tile, C[by * block_M, bx * block_N])

    return main
