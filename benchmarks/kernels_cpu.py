"""The kernels of cpu_kernels.py: ordinary TileLang, with tiles that suit a CPU's caches."""

import importlib.util
from pathlib import Path

import ml_dtypes
import numpy as np
import tilelang.language as T

LOG2_E = 1.4426950408889634


def add(rows, columns, dtype, block=8192):
    """C = A + B."""

    @T.prim_func
    def main(
        A: T.Tensor((rows, columns), dtype),
        B: T.Tensor((rows, columns), dtype),
        C: T.Tensor((rows, columns), dtype),
    ):
        with T.Kernel(T.ceildiv(columns, block), rows, threads=128) as (bx, by):
            for j in T.Parallel(block):
                C[by, bx * block + j] = A[by, bx * block + j] + B[by, bx * block + j]

    return main


def softmax(rows, columns, dtype):
    """Each row by itself, in float32."""

    @T.prim_func
    def main(X: T.Tensor((rows, columns), dtype), Y: T.Tensor((rows, columns), dtype)):
        with T.Kernel(rows, threads=128) as bx:
            x = T.alloc_fragment((1, columns), "float32")
            largest = T.alloc_fragment((1,), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.copy(X[bx, 0], x)
            T.reduce_max(x, largest, dim=1)
            for i, j in T.Parallel(1, columns):
                x[i, j] = T.exp2((x[i, j] - largest[i]) * LOG2_E)
            T.reduce_sum(x, total, dim=1)
            for i in T.Parallel(1):
                total[i] = 1.0 / total[i]
            for i, j in T.Parallel(1, columns):
                Y[bx + i, j] = T.cast(x[i, j] * total[i], dtype)

    return main


def rms_norm(rows, columns, dtype):
    """Each row over its root mean square, times a weight for each column."""

    @T.prim_func
    def main(
        X: T.Tensor((rows, columns), dtype),
        W: T.Tensor((columns,), dtype),
        Y: T.Tensor((rows, columns), dtype),
    ):
        with T.Kernel(rows, threads=128) as bx:
            x = T.alloc_fragment((1, columns), "float32")
            squares = T.alloc_fragment((1, columns), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.copy(X[bx, 0], x)
            for i, j in T.Parallel(1, columns):
                squares[i, j] = x[i, j] * x[i, j]
            T.reduce_sum(squares, total, dim=1)
            for i in T.Parallel(1):
                total[i] = T.rsqrt(total[i] / columns + 1e-5)
            for i, j in T.Parallel(1, columns):
                Y[bx + i, j] = T.cast(x[i, j] * total[i] * T.cast(W[j], "float32"), dtype)

    return main


def dequantize(rows, columns, dtype):
    """Pairs of four-bit numbers in bytes, times a scale for each row."""

    @T.prim_func
    def main(
        X: T.Tensor((rows, columns // 2), "uint8"),
        S: T.Tensor((rows,), "float32"),
        Y: T.Tensor((rows, columns), dtype),
    ):
        with T.Kernel(rows, threads=128) as bx:
            x = T.alloc_shared((columns // 2,), "uint8")
            T.copy(X[bx, 0], x)
            for j in T.Parallel(columns):
                nibble = (x[j // 2] >> T.cast(j % 2 * 4, "uint8")) & T.uint8(15)
                Y[bx, j] = T.cast(T.cast(nibble, "float32") * S[bx], dtype)

    return main


def gemm(size, dtype, accumulator, block=256):
    """C = A @ B, with tiles of as many bytes whatever the type."""
    depth = block * 4 // np.dtype(getattr(ml_dtypes, dtype, None) or dtype).itemsize

    @T.prim_func
    def main(
        A: T.Tensor((size, size), dtype),
        B: T.Tensor((size, size), dtype),
        C: T.Tensor((size, size), accumulator),
    ):
        with T.Kernel(size // block, size // block, threads=128) as (bx, by):
            a = T.alloc_shared((block, depth), dtype)
            b = T.alloc_shared((depth, block), dtype)
            c = T.alloc_fragment((block, block), accumulator)
            T.clear(c)
            for k in T.Pipelined(size // depth, num_stages=2):
                T.copy(A[by * block, k * depth], a)
                T.copy(B[k * depth, bx * block], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * block, bx * block])

    return main


def gemm_of_groups(groups, size, dtype, accumulator, block=256):
    """A product for each group."""
    depth = block * 4

    @T.prim_func
    def main(
        A: T.Tensor((groups, size, size), dtype),
        B: T.Tensor((groups, size, size), dtype),
        C: T.Tensor((groups, size, size), accumulator),
    ):
        with T.Kernel(size // block, size // block, groups, threads=128) as (bx, by, bz):
            a = T.alloc_shared((block, depth), dtype)
            b = T.alloc_shared((depth, block), dtype)
            c = T.alloc_fragment((block, block), accumulator)
            T.clear(c)
            for k in T.Pipelined(size // depth, num_stages=2):
                T.copy(A[bz, by * block, k * depth], a)
                T.copy(B[bz, k * depth, bx * block], b)
                T.gemm(a, b, c)
            T.copy(c, C[bz, by * block, bx * block])

    return main


def gemm_dequantized(size, dtype, accumulator, rows=512, columns=128, depth=256):
    """C = A @ B.T; B's numbers have four bits, two in a byte, and a scale for each row."""

    @T.prim_func
    def main(
        A: T.Tensor((size, size), dtype),
        B: T.Tensor((size, size // 2), "uint8"),
        S: T.Tensor((size,), dtype),
        C: T.Tensor((size, size), accumulator),
    ):
        with T.Kernel(size // columns, size // rows, threads=128) as (bx, by):
            a = T.alloc_shared((rows, depth), dtype)
            packed = T.alloc_shared((columns, depth // 2), "uint8")
            b = T.alloc_shared((columns, depth), dtype)
            c = T.alloc_fragment((rows, columns), accumulator)
            T.clear(c)
            for k in T.Pipelined(size // depth, num_stages=2):
                T.copy(A[by * rows, k * depth], a)
                T.copy(B[bx * columns, k * depth // 2], packed)
                for i, j in T.Parallel(columns, depth):
                    nibble = (packed[i, j // 2] >> T.cast(j % 2 * 4, "uint8")) & T.uint8(15)
                    b[i, j] = (T.cast(nibble, dtype) - 8.0) * S[bx * columns + i]
                T.gemm(a, b, c, transpose_B=True)
            T.copy(c, C[by * rows, bx * columns])

    return main


def attention(heads, length, dim, dtype, causal):
    """Flash attention forward, batch 1; wide blocks pass over less, small ones waste less at the diagonal."""
    rows, columns = 64, 64 if causal else 256
    shape, scale, high = (1, heads, length, dim), LOG2_E / dim**0.5, "float32"

    @T.prim_func
    def main(
        Q: T.Tensor(shape, dtype),
        K: T.Tensor(shape, dtype),
        V: T.Tensor(shape, dtype),
        O: T.Tensor(shape, dtype),
    ):
        with T.Kernel(length // rows, heads, threads=128) as (bx, by):
            q = T.alloc_shared((rows, dim), dtype)
            k = T.alloc_shared((columns, dim), dtype)
            v = T.alloc_shared((columns, dim), dtype)
            scores = T.alloc_fragment((rows, columns), high)
            weights = T.alloc_fragment((rows, columns), dtype)
            out = T.alloc_fragment((rows, dim), high)
            largest = T.alloc_fragment((rows,), high)
            previous = T.alloc_fragment((rows,), high)
            shrink = T.alloc_fragment((rows,), high)
            part = T.alloc_fragment((rows,), high)
            total = T.alloc_fragment((rows,), high)
            T.copy(Q[0, by, bx * rows, 0], q)
            T.clear(out)
            T.clear(total)
            T.fill(largest, -T.infinity(high))
            for step in T.Pipelined(bx + 1 if causal else length // columns, num_stages=1):
                T.copy(K[0, by, step * columns, 0], k)
                if causal:
                    for i, j in T.Parallel(rows, columns):
                        scores[i, j] = T.if_then_else(
                            bx * rows + i >= step * columns + j, 0, -T.infinity(high)
                        )
                else:
                    T.clear(scores)
                T.gemm(q, k, scores, transpose_B=True)
                T.copy(largest, previous)
                T.reduce_max(scores, largest, dim=1, clear=False)
                for i in T.Parallel(rows):
                    shrink[i] = T.exp2((previous[i] - largest[i]) * scale)
                for i, j in T.Parallel(rows, columns):
                    scores[i, j] = T.exp2((scores[i, j] - largest[i]) * scale)
                T.reduce_sum(scores, part, dim=1)
                for i in T.Parallel(rows):
                    total[i] = total[i] * shrink[i] + part[i]
                for i, j in T.Parallel(rows, dim):
                    out[i, j] *= shrink[i]
                T.copy(V[0, by, step * columns, 0], v)
                T.copy(scores, weights)
                T.gemm(weights, v, out)
            for i, j in T.Parallel(rows, dim):
                out[i, j] /= total[i]
            T.copy(out, O[0, by, bx * rows, 0])

    return main


def attention_backward(heads, length, dim, block=64):
    """That of tests/kernels: five products and a mask, the gradient of queries added up by all blocks."""
    path = Path(__file__).parent.parent / "tests" / "kernels" / "attention_more.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.backward.get_tir(heads, length, dim, block, block)
