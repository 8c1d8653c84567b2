"""Row reductions: softmax in one and in several tiles, RMSNorm, every kind of reduction."""

import numpy as np
import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def softmax(M, N, block_M=8, block_N=32, dtype="float32"):
    """Rows longer than a tile: a running maximum and sum, then a second pass."""
    log2e = 1.4426950408889634

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, block_M), threads=128) as bx:
            x = T.alloc_fragment((block_M, block_N), "float32")
            tile_max = T.alloc_fragment((block_M,), "float32")
            tile_sum = T.alloc_fragment((block_M,), "float32")
            row_max = T.alloc_fragment((block_M,), "float32")
            row_sum = T.alloc_fragment((block_M,), "float32")
            T.fill(row_max, -T.infinity("float32"))
            T.clear(row_sum)
            for n in T.serial(T.ceildiv(N, block_N)):
                T.copy(X[bx * block_M, n * block_N], x)
                for i, j in T.Parallel(block_M, block_N):
                    x[i, j] = T.if_then_else(n * block_N + j < N, x[i, j], -T.infinity("float32"))
                T.reduce_max(x, tile_max, dim=1)
                for i in T.Parallel(block_M):
                    tile_max[i] = T.max(tile_max[i], row_max[i])
                for i, j in T.Parallel(block_M, block_N):
                    x[i, j] = T.exp2((x[i, j] - tile_max[i]) * log2e)
                T.reduce_sum(x, tile_sum, dim=1)
                for i in T.Parallel(block_M):
                    row_sum[i] = (
                        row_sum[i] * T.exp2((row_max[i] - tile_max[i]) * log2e) + tile_sum[i]
                    )
                    row_max[i] = tile_max[i]
            for n in T.serial(T.ceildiv(N, block_N)):
                T.copy(X[bx * block_M, n * block_N], x)
                for i, j in T.Parallel(block_M, block_N):
                    x[i, j] = T.exp2((x[i, j] - row_max[i]) * log2e) / row_sum[i]
                T.copy(x, Y[bx * block_M, n * block_N])

    return main


def softmax_reference(X):
    wide = X.astype(np.float64)
    weights = np.exp(wide - wide.max(axis=1, keepdims=True))
    return (weights / weights.sum(axis=1, keepdims=True)).astype(X.dtype)


@tilelang.jit(out_idx=[-1])
def rms_norm(M, N, block_M=4, eps=1e-6, dtype="float32"):
    """A row of weights scales each normalised row."""

    @T.prim_func
    def main(
        X: T.Tensor((M, N), dtype),
        W: T.Tensor((N,), dtype),
        Y: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(M, block_M), threads=128) as bx:
            x = T.alloc_fragment((block_M, N), "float32")
            square = T.alloc_fragment((block_M, N), "float32")
            scale = T.alloc_fragment((block_M,), "float32")
            w = T.alloc_shared((N,), dtype)
            T.copy(W, w)
            T.copy(X[bx * block_M : (bx + 1) * block_M, :], x)
            for i, j in T.Parallel(block_M, N):
                square[i, j] = x[i, j] * x[i, j]
            T.reduce_sum(square, scale, dim=1)
            for i in T.Parallel(block_M):
                scale[i] = T.rsqrt(scale[i] / N + eps)
            for i, j in T.Parallel(block_M, N):
                x[i, j] = x[i, j] * scale[i] * w[j]
            T.copy(x, Y[bx * block_M : (bx + 1) * block_M, :])

    return main


def rms_norm_reference(X, W, eps=1e-6):
    wide = X.astype(np.float64)
    scale = 1.0 / np.sqrt((wide**2).mean(axis=1, keepdims=True) + eps)
    return (wide * scale * W.astype(np.float64)).astype(X.dtype)


@tilelang.jit(out_idx=[-1])
def columns(M, N):
    """Reduces columns in every kind, and rows on top of what is already there."""

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((6, N), "float32")):
        with T.Kernel(1, threads=64):
            x = T.alloc_fragment((M, N), "float32")
            y = T.alloc_fragment((N,), "float32")
            T.copy(X, x)
            T.reduce_sum(x, y, dim=0)
            T.copy(y, Y[0, 0:N])
            T.reduce_max(x, y, dim=0)
            T.copy(y, Y[1, 0:N])
            T.reduce_min(x, y, dim=0)
            T.copy(y, Y[2, 0:N])
            T.reduce_abssum(x, y, dim=0)
            T.copy(y, Y[3, 0:N])
            T.reduce_absmax(x, y, dim=0)
            T.copy(y, Y[4, 0:N])
            T.fill(y, 0.5)
            T.reduce_max(x, y, dim=0, clear=False)
            T.copy(y, Y[5, 0:N])

    return main


def columns_reference(X):
    size = np.abs(X)
    rows = [X.sum(0), X.max(0), X.min(0), size.sum(0), size.max(0), np.maximum(X.max(0), 0.5)]
    return np.stack(rows).astype(np.float32)
