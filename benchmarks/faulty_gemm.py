"""A GEMM some of whose configs never end, give wrong results, or cannot be compiled."""

import tilelang.language as T

import tileyard


@tileyard.kernel(
    space={
        "fault": ["none", "endless", "wrong", "refused"],
        "block_M": [64, 128],
        "block_N": [64, 128],
        "block_K": [64, 128],
    },
    where=lambda fault, block_M, block_N: fault == "none" or block_M == block_N == 64,
    shapes={"default": {"N": 768}},
    reference=lambda A, B: A @ B,
    flops=lambda N: 2 * N**3,
)
def faulty_gemm(N, fault, block_M, block_N, block_K):
    """Multiply square matrices, or fail in the way that is asked for."""

    @T.prim_func
    def main(
        A: T.Tensor((N, N), "float32"),
        B: T.Tensor((N, N), "float32"),
        C: T.Tensor((N, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(N, block_M), threads=128) as (bx, by):
            A_tile = T.alloc_shared((block_M, block_K), "float32")
            B_tile = T.alloc_shared((block_K, block_N), "float32")
            total = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(total)
            for k in T.Pipelined(T.ceildiv(N, block_K), num_stages=2):
                T.copy(A[by * block_M, k * block_K], A_tile)
                T.copy(B[k * block_K, bx * block_N], B_tile)
                T.gemm(A_tile, B_tile, total)
            if fault == "wrong":
                total[0, 0] = total[0, 0] + 1000.0
            if fault == "refused":
                total[0, 0] = T.call_extern("float32", "text_for_a_gpu", total[0, 0])
            if fault == "endless":
                while total[0, 0] > -1.0e30:
                    total[0, 0] = total[0, 0] * 0.5
            T.copy(total, C[by * block_M, bx * block_N])

    return main
