"""A matrix product with weights of four bits, two in a byte, tuned with the decorator."""

import tilelang
import tilelang.language as T

CONFIGS = {"block_M": [64, 128], "block_N": [64, 128], "num_stages": [1, 2]}


@tilelang.autotune(
    configs=[
        {"block_M": m, "block_N": n, "num_stages": stages}
        for m in CONFIGS["block_M"]
        for n in CONFIGS["block_N"]
        for stages in CONFIGS["num_stages"]
    ],
    warmup=5,
    rep=50,
    skip_check=True,
)
@tilelang.jit(out_idx=[2], target={"kind": "cuda", "arch": "sm_90a"})
def dequantized(M, N, K, block_M=64, block_N=64, num_stages=1):
    block_K = 64

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float16"),
        packed: T.Tensor((N, K // 2), "uint8"),
        C: T.Tensor((M, N), "float16"),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), "float16")
            packed_shared = T.alloc_shared((block_N, block_K // 2), "uint8")
            packed_local = T.alloc_fragment((block_N, block_K // 2), "uint8")
            B_local = T.alloc_fragment((block_N, block_K), "float16")
            B_shared = T.alloc_shared((block_N, block_K), "float16")
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(packed[bx * block_N, k * block_K // 2], packed_shared)
                T.copy(packed_shared, packed_local)
                for i, j in T.Parallel(block_N, block_K):
                    nibble = (packed_local[i, j // 2] >> ((j % 2) * 4).astype("uint8")) & T.uint8(
                        15
                    )
                    B_local[i, j] = nibble.astype("float16") - T.float16(8)
                T.copy(B_local, B_shared)
                T.gemm(A_shared, B_shared, C_local, transpose_B=True)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return main


def tune():
    return dequantized(1024, 1024, 1024)
