"""A matrix product whose configs are a function of its sizes, and have compiler options of their own."""

import tilelang
import tilelang.language as T

OFF = {"tl.disable_warp_specialized": True}


def list_configs(M, N, K):
    tiles = (64, 128) if min(M, N) >= 512 else (32,)
    return [
        {"tile": tile, "block_K": block_K, "pass_configs": options}
        for tile in tiles
        for block_K in (32, 64)
        for options in ({}, OFF)
    ]


@tilelang.autotune(configs=list_configs, warmup=5, rep=50, skip_check=True)
@tilelang.jit(out_idx=[2], target={"kind": "cuda", "arch": "sm_90a"})
def matmul(M, N, K, tile=64, block_K=32):
    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        C: T.Tensor((M, N), "float16"),
    ):
        with T.Kernel(T.ceildiv(N, tile), T.ceildiv(M, tile), threads=128) as (bx, by):
            A_shared = T.alloc_shared((tile, block_K), "float16")
            B_shared = T.alloc_shared((block_K, tile), "float16")
            C_local = T.alloc_fragment((tile, tile), "float32")
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                T.copy(A[by * tile, k * block_K], A_shared)
                T.copy(B[k * block_K, bx * tile], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C[by * tile, bx * tile])

    return main


def tune():
    return matmul(1024, 1024, 1024)
