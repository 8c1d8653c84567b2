"""Convolutions: as a GEMM over unfolded windows, and channel by channel."""

import numpy as np
import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[2])
def conv2d(n, h, w, c, f, kernel, stride, dilation, padding, block_M=16, block_N=16, block_K=16):
    """Images (n, h, w, c), filters (k, k, c, f)."""
    out_h = (h + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
    out_w = (w + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1

    @T.prim_func
    def main(
        X: T.Tensor((n, h, w, c), "float16"),
        W: T.Tensor((kernel, kernel, c, f), "float16"),
        Y: T.Tensor((n, out_h, out_w, f), "float32"),
    ):
        with T.Kernel(
            T.ceildiv(f, block_N), T.ceildiv(n * out_h * out_w, block_M), threads=128
        ) as (bx, by):
            x = T.alloc_shared((block_M, block_K), "float16")
            weights = T.alloc_shared((block_K, block_N), "float16")
            y = T.alloc_fragment((block_M, block_N), "float32")
            filters = T.Tensor((kernel * kernel * c, f), "float16", W.data)
            pixels = T.Tensor((n * out_h * out_w, f), "float32", Y.data)
            T.clear(y)
            for k in T.Pipelined(T.ceildiv(kernel * kernel * c, block_K), num_stages=3):
                T.im2col(X, x, by, k, kernel, stride, dilation, padding)
                T.copy(filters[k * block_K, bx * block_N], weights)
                T.gemm(x, weights, y)
            T.copy(y, pixels[by * block_M, bx * block_N])

    return main


def conv2d_inputs(rng):
    return [rng.standard_normal(s).astype("f2") for s in ((2, 9, 7, 4), (3, 3, 4, 5))]


def conv2d_reference(X, W):
    padded = np.pad(X.astype("f4"), ((0, 0), (1, 1), (1, 1), (0, 0)))
    Y = np.zeros((2, 5, 4, 5), np.float32)
    for y in range(5):
        for x in range(4):
            window = padded[:, 2 * y : 2 * y + 3, 2 * x : 2 * x + 3, :].reshape(2, -1)
            Y[:, y, x] = window @ W.astype("f4").reshape(-1, 5)
    return [Y]


@tilelang.jit(out_idx=[2])
def causal_conv1d(length, channels, width, block=16):
    """Each channel by itself; what lies before the beginning is zero."""

    @T.prim_func
    def main(
        X: T.Tensor((length, channels), "float32"),
        W: T.Tensor((width, channels), "float32"),
        Y: T.Tensor((length, channels), "float32"),
    ):
        with T.Kernel(T.ceildiv(length, block), threads=64) as bx:
            x = T.alloc_shared((block + width - 1, channels), "float32")
            y = T.alloc_fragment((block, channels), "float32")
            T.copy(X[bx * block - (width - 1) : bx * block + block, :], x)
            T.clear(y)
            for tap in T.unroll(width):
                for i, j in T.Parallel(block, channels):
                    y[i, j] += x[i + tap, j] * W[tap, j]
            T.copy(y, Y[bx * block, 0])

    return main


def causal_conv1d_inputs(rng):
    return [rng.standard_normal(s).astype("f4") for s in ((41, 6), (4, 6))]


def causal_conv1d_reference(X, W):
    padded = np.concatenate([np.zeros((3, 6), np.float32), X])
    return [sum(padded[tap : tap + 41] * W[tap] for tap in range(4))]
