"""Kernels whose shapes are known only when they run."""

import numpy as np
import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def linear(N, K, block_M=16, block_N=16, block_K=16, dtype="float32"):
    """``X @ W.T + b`` for any number of rows."""
    M = T.dynamic("m")

    @T.prim_func
    def main(
        X: T.Tensor((M, K), dtype),
        W: T.Tensor((N, K), dtype),
        b: T.Tensor((N,), dtype),
        Y: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=64) as (bx, by):
            X_shared = T.alloc_shared((block_M, block_K), dtype)
            W_shared = T.alloc_shared((block_N, block_K), dtype)
            Y_local = T.alloc_fragment((block_M, block_N), "float32")
            for i, j in T.Parallel(block_M, block_N):
                Y_local[i, j] = b[bx * block_N + j]
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                T.copy(X[by * block_M, k * block_K], X_shared)
                T.copy(W[bx * block_N, k * block_K], W_shared)
                T.gemm(X_shared, W_shared, Y_local, transpose_B=True)
            T.copy(Y_local, Y[by * block_M, bx * block_N])

    return main


def linear_reference(X, W, b):
    return (X.astype(np.float64) @ W.T.astype(np.float64) + b).astype(X.dtype)
