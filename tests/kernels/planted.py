"""Kernels with one wrong statement each. Nothing here says which: pages show this source."""

import numpy as np
import tilelang.language as T

import tileyard


def _softmax(X):
    shifted = np.exp(X - X.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


def _attention(Q, K, V):
    scores = Q @ K.T / np.sqrt(Q.shape[1])
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True) @ V


@tileyard.kernel(reference=lambda A, B: A @ B, shapes={"large": {"M": 1024, "N": 1024, "K": 1024}})
def product(M, N, K, block=128, depth=32):
    """C = A @ B."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float32"),
        B: T.Tensor((K, N), "float32"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, block), T.ceildiv(M, block), threads=128) as (bx, by):
            a = T.alloc_shared((block, depth), "float32")
            b = T.alloc_shared((depth, block), "float32")
            c = T.alloc_fragment((block, block), "float32")
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, depth), num_stages=2):
                T.copy(A[by * block, k * depth], a)
                T.copy(B[k * depth, by * block], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * block, bx * block])

    return main


@tileyard.kernel(reference=lambda X: X.mean(axis=1))
def mean(M, N, rows=8):
    """The mean of each row."""

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M,), "float32")):
        with T.Kernel(T.ceildiv(M, rows), threads=128) as bx:
            x = T.alloc_fragment((rows, N), "float32")
            y = T.alloc_fragment((rows,), "float32")
            T.copy(X[bx * rows, 0], x)
            T.reduce_sum(x, y, dim=1)
            T.copy(y, Y[bx * rows])

    return main


@tileyard.kernel(reference=_softmax, shapes={"large": {"M": 1024, "N": 1024}})
def softmax(M, N, rows=4):
    """Softmax of each row."""

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(M, rows), threads=128) as bx:
            x = T.alloc_fragment((rows, N), "float32")
            most = T.alloc_fragment((rows,), "float32")
            total = T.alloc_fragment((rows,), "float32")
            T.copy(X[bx * rows, 0], x)
            T.reduce_max(x, most, dim=1)
            for i, j in T.Parallel(rows, N):
                x[i, j] = T.exp(x[i, j] - most[i])
            T.reduce_sum(x, total, dim=1)
            for i, j in T.Parallel(rows, N):
                x[i, j] = x[i, j] / most[i]
            T.copy(x, Y[bx * rows, 0])

    return main


@tileyard.kernel(reference=_attention, shapes={"large": {"length": 1024, "dim": 64}})
def attention(length, dim, rows=64, columns=64):
    """Attention, with the softmax as the tiles of K and V come."""
    scale = 1.4426950408889634 / dim**0.5

    @T.prim_func
    def main(
        Q: T.Tensor((length, dim), "float32"),
        K: T.Tensor((length, dim), "float32"),
        V: T.Tensor((length, dim), "float32"),
        O: T.Tensor((length, dim), "float32"),
    ):
        with T.Kernel(T.ceildiv(length, rows), threads=128) as bx:
            q = T.alloc_shared((rows, dim), "float32")
            k = T.alloc_shared((columns, dim), "float32")
            v = T.alloc_shared((columns, dim), "float32")
            scores = T.alloc_fragment((rows, columns), "float32")
            out = T.alloc_fragment((rows, dim), "float32")
            most = T.alloc_fragment((rows,), "float32")
            before = T.alloc_fragment((rows,), "float32")
            shrink = T.alloc_fragment((rows,), "float32")
            tile_sum = T.alloc_fragment((rows,), "float32")
            total = T.alloc_fragment((rows,), "float32")
            T.copy(Q[bx * rows, 0], q)
            T.clear(out)
            T.clear(total)
            T.fill(most, -T.infinity("float32"))
            for step in T.Pipelined(T.ceildiv(length, columns), num_stages=1):
                T.copy(K[step * columns, 0], k)
                T.clear(scores)
                T.gemm(q, k, scores, transpose_B=True)
                T.copy(most, before)
                T.reduce_max(scores, most, dim=1, clear=False)
                for i in T.Parallel(rows):
                    shrink[i] = T.exp2((before[i] - most[i]) * 0.25)
                for i, j in T.Parallel(rows, columns):
                    scores[i, j] = T.exp2((scores[i, j] - most[i]) * scale)
                T.reduce_sum(scores, tile_sum, dim=1)
                for i in T.Parallel(rows):
                    total[i] = total[i] * shrink[i] + tile_sum[i]
                for i, j in T.Parallel(rows, dim):
                    out[i, j] *= shrink[i]
                T.copy(V[step * columns, 0], v)
                T.gemm(scores, v, out)
            for i, j in T.Parallel(rows, dim):
                out[i, j] /= total[i]
            T.copy(out, O[bx * rows, 0])

    return main
