"""Ten kernels of everyday models, to compare versions of with each other.

    tileyard regress HEAD . examples/layers.py

Change one of them and run that: it says which one became slower, and how sure that is. The default
arguments are the shapes.
"""

import numpy as np
import tilelang.language as T

import tileyard

ROWS, COLUMNS = 1024, 1024


def sigmoid(x):
    """1 / (1 + exp(-x)) in NumPy."""
    return 1 / (1 + np.exp(-x))


@tileyard.kernel(reference=lambda X, bias: X + bias)
def add_bias(M=ROWS, N=COLUMNS, block=16):
    """A number for each column."""

    @T.prim_func
    def main(
        X: T.Tensor((M, N), "float32"),
        bias: T.Tensor((N,), "float32"),
        Y: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(M, block), threads=128) as bx:
            for i, j in T.Parallel(block, N):
                Y[bx * block + i, j] = X[bx * block + i, j] + bias[j]

    return main


@tileyard.kernel(reference=lambda X: np.maximum(X, 0) ** 2)
def squared_relu(M=ROWS, N=COLUMNS, block=16):
    """The square of what is above 0."""

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(M, block), threads=128) as bx:
            x = T.alloc_fragment((block, N), "float32")
            T.copy(X[bx * block, 0], x)
            for i, j in T.Parallel(block, N):
                x[i, j] = T.max(x[i, j], 0.0) * T.max(x[i, j], 0.0)
            T.copy(x, Y[bx * block, 0])

    return main


@tileyard.kernel(reference=lambda A, B: A * sigmoid(A) * B)
def gated_silu(M=ROWS, N=COLUMNS, block=16):
    """One matrix, passed through SiLU, lets the other one through."""

    @T.prim_func
    def main(
        A: T.Tensor((M, N), "float32"),
        B: T.Tensor((M, N), "float32"),
        Y: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(M, block), threads=128) as bx:
            for i, j in T.Parallel(block, N):
                a = A[bx * block + i, j]
                Y[bx * block + i, j] = a / (1.0 + T.exp(-a)) * B[bx * block + i, j]

    return main


def softmax_reference(X):
    """Each row in NumPy."""
    shifted = np.exp(X - X.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


@tileyard.kernel(reference=softmax_reference)
def softmax(M=ROWS, N=COLUMNS, block=4):
    """Each row becomes probabilities."""

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(M, block), threads=128) as bx:
            x = T.alloc_fragment((block, N), "float32")
            largest = T.alloc_fragment((block,), "float32")
            total = T.alloc_fragment((block,), "float32")
            T.copy(X[bx * block, 0], x)
            T.reduce_max(x, largest, dim=1)
            for i, j in T.Parallel(block, N):
                x[i, j] = T.exp(x[i, j] - largest[i])
            T.reduce_sum(x, total, dim=1)
            for i, j in T.Parallel(block, N):
                x[i, j] = x[i, j] / total[i]
            T.copy(x, Y[bx * block, 0])

    return main


@tileyard.kernel(reference=lambda X, W: X / np.sqrt((X**2).mean(axis=1, keepdims=True) + 1e-6) * W)
def rms_norm(M=ROWS, N=COLUMNS, block=4):
    """Rows of one length, with a weight for each column."""

    @T.prim_func
    def main(
        X: T.Tensor((M, N), "float32"), W: T.Tensor((N,), "float32"), Y: T.Tensor((M, N), "float32")
    ):
        with T.Kernel(T.ceildiv(M, block), threads=128) as bx:
            x = T.alloc_fragment((block, N), "float32")
            square = T.alloc_fragment((block, N), "float32")
            scale = T.alloc_fragment((block,), "float32")
            T.copy(X[bx * block, 0], x)
            for i, j in T.Parallel(block, N):
                square[i, j] = x[i, j] * x[i, j]
            T.reduce_sum(square, scale, dim=1)
            for i in T.Parallel(block):
                scale[i] = T.rsqrt(scale[i] / N + 1e-6)
            for i, j in T.Parallel(block, N):
                x[i, j] = x[i, j] * scale[i] * W[j]
            T.copy(x, Y[bx * block, 0])

    return main


def layer_norm_reference(X):
    """Each row in NumPy."""
    return (X - X.mean(axis=1, keepdims=True)) / np.sqrt(X.var(axis=1, keepdims=True) + 1e-5)


@tileyard.kernel(reference=layer_norm_reference)
def layer_norm(M=ROWS, N=COLUMNS, block=4):
    """Rows with a mean of 0 and a variance of 1."""

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(M, block), threads=128) as bx:
            x = T.alloc_fragment((block, N), "float32")
            square = T.alloc_fragment((block, N), "float32")
            mean = T.alloc_fragment((block,), "float32")
            variance = T.alloc_fragment((block,), "float32")
            T.copy(X[bx * block, 0], x)
            T.reduce_sum(x, mean, dim=1)
            for i, j in T.Parallel(block, N):
                x[i, j] = x[i, j] - mean[i] / N
                square[i, j] = x[i, j] * x[i, j]
            T.reduce_sum(square, variance, dim=1)
            for i in T.Parallel(block):
                variance[i] = T.rsqrt(variance[i] / N + 1e-5)
            for i, j in T.Parallel(block, N):
                x[i, j] = x[i, j] * variance[i]
            T.copy(x, Y[bx * block, 0])

    return main


@tileyard.kernel(reference=lambda X, W: X @ W)
def linear(M=512, N=512, K=512, block_M=128, block_N=128, block_K=64):
    """A product of matrices."""

    @T.prim_func
    def main(
        X: T.Tensor((M, K), "float32"),
        W: T.Tensor((K, N), "float32"),
        Y: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            x = T.alloc_shared((block_M, block_K), "float32")
            w = T.alloc_shared((block_K, block_N), "float32")
            y = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(y)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                T.copy(X[by * block_M, k * block_K], x)
                T.copy(W[k * block_K, bx * block_N], w)
                T.gemm(x, w, y)
            T.copy(y, Y[by * block_M, bx * block_N])

    return main


@tileyard.kernel(reference=lambda X: X.T)
def transpose(M=ROWS, N=COLUMNS, block=32):
    """Tile by tile."""

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((N, M), "float32")):
        with T.Kernel(T.ceildiv(N, block), T.ceildiv(M, block), threads=128) as (bx, by):
            x = T.alloc_shared((block, block), "float32")
            y = T.alloc_shared((block, block), "float32")
            T.copy(X[by * block, bx * block], x)
            T.transpose(x, y)
            T.copy(y, Y[bx * block, by * block])

    return main


@tileyard.kernel(reference=lambda X: np.cumsum(X, axis=1))
def running_sums(M=ROWS, N=COLUMNS, block=8):
    """Of each row."""

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(M, block), threads=128) as bx:
            x = T.alloc_shared((block, N), "float32")
            T.copy(X[bx * block, 0], x)
            T.cumsum(x, dim=1)
            T.copy(x, Y[bx * block, 0])

    return main


@tileyard.kernel(reference=lambda X: X.max(axis=1))
def row_max(M=ROWS, N=COLUMNS, block=16):
    """The largest element of each row."""

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M,), "float32")):
        with T.Kernel(T.ceildiv(M, block), threads=128) as bx:
            x = T.alloc_fragment((block, N), "float32")
            largest = T.alloc_fragment((block,), "float32")
            T.copy(X[bx * block, 0], x)
            T.reduce_max(x, largest, dim=1)
            T.copy(largest, Y[bx * block])

    return main
