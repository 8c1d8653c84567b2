"""Matrix multiplication, C = A @ B: a TileLang GPU kernel that tunes on a CPU as it is.

    tileyard tune examples/gemm.py
    tileyard tune examples/gemm.py --shape small
    tileyard tune examples/gemm.py --arg M=512 --config block_M=64,128

Each block of the grid computes one tile of C, block_M x block_N. It walks along K in steps of
block_K: tiles of A and B are copied to shared memory and multiplied into an accumulator that stays
in registers. How large the tiles should be depends on the machine; finding that out is the search.
"""

import tilelang.language as T

import tileyard


def fits(M, N, K, block_M, block_N, block_K):
    """Keep tiles that lie within the matrices and whose three buffers take at most 640 KiB.

    Cutting tiles that hang over an edge is the kernel's business (T.copy does it), but a tile wider
    than its matrix only wastes work.
    """
    within = block_M <= M and block_N <= N and block_K <= K
    elements = block_M * block_K + block_K * block_N + block_M * block_N
    return within and 4 * elements <= 640 * 1024


@tileyard.kernel(
    space={
        "block_M": [64, 128, 256],
        "block_N": [64, 128, 256],
        "block_K": [32, 64, 128, 256],
    },
    where=fits,
    # The first shape is the default.
    shapes={
        "large": {"M": 1024, "N": 1024, "K": 1024},
        "small": {"M": 256, "N": 256, "K": 256},
        "ragged": {"M": 500, "N": 300, "K": 700},
    },
    reference=lambda A, B: A @ B,
    flops=lambda M, N, K: 2 * M * N * K,
)
def gemm(M, N, K, block_M=128, block_N=128, block_K=32, num_stages=2):
    """C (M x N) = A (M x K) @ B (K x N), all float32."""

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

            T.clear(C_tile)
            # On a GPU the next tiles are copied while the current ones are multiplied.
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, k * block_K], A_tile)
                T.copy(B[k * block_K, bx * block_N], B_tile)
                T.gemm(A_tile, B_tile, C_tile)
            T.copy(C_tile, C[by * block_M, bx * block_N])

    return main
