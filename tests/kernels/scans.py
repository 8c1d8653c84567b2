"""Scans, transposes, reductions of every kind, and what stands for a whole tile in a condition."""

import numpy as np
import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def cumsum(M, N, dim, reverse, block_M=8):
    """Running sums along either axis, from either end."""

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(M, block_M), threads=64) as bx:
            x = T.alloc_fragment((block_M, N), "float32")
            T.copy(X[bx * block_M, 0], x)
            T.cumsum(x, dim=dim, reverse=reverse)
            T.copy(x, Y[bx * block_M, 0])

    return main


def cumsum_inputs(rng):
    return [rng.integers(-9, 9, (16, 24)).astype("f4")]


def cumsum_rows_reference(X):
    return [np.cumsum(X, axis=1)]


def cumsum_columns_reference(X):
    halves = [np.cumsum(half[::-1], axis=0)[::-1] for half in (X[:8], X[8:])]
    return [np.concatenate(halves)]


@tilelang.jit(out_idx=[-1])
def cummax(N):
    """The largest so far, in another buffer than the numbers."""

    @T.prim_func
    def main(X: T.Tensor((N,), "int32"), Y: T.Tensor((N,), "int32")):
        with T.Kernel(1, threads=64):
            x = T.alloc_shared((N,), "int32")
            y = T.alloc_shared((N,), "int32")
            T.copy(X, x)
            T.cummax(x, y, dim=0)
            T.copy(y, Y)

    return main


def cummax_inputs(rng):
    return [rng.integers(-99, 99, 50, dtype=np.int32)]


def cummax_reference(X):
    return [np.maximum.accumulate(X)]


@tilelang.jit(out_idx=[-1])
def transpose(M, N, block=16):
    """Through a tile, with ragged edges."""

    @T.prim_func
    def main(X: T.Tensor((M, N), "float16"), Y: T.Tensor((N, M), "float16")):
        with T.Kernel(T.ceildiv(N, block), T.ceildiv(M, block), threads=64) as (bx, by):
            x = T.alloc_shared((block, block), "float16")
            y = T.alloc_shared((block, block), "float16")
            T.copy(X[by * block, bx * block], x)
            T.transpose(x, y)
            T.copy(y, Y[bx * block, by * block])

    return main


def transpose_inputs(rng):
    return [rng.standard_normal((21, 37)).astype("f2")]


def transpose_reference(X):
    return [np.ascontiguousarray(X.T)]


@tilelang.jit(out_idx=[1, 2, 3])
def folds(M, N):
    """Reductions that go on from what is there, over bits and over magnitudes."""

    @T.prim_func
    def main(
        X: T.Tensor((M, N), "int32"),
        bits: T.Tensor((3, M), "int32"),
        sizes: T.Tensor((2, M), "int32"),
        least: T.Tensor((N,), "int32"),
    ):
        with T.Kernel(1, threads=64):
            x = T.alloc_fragment((M, N), "int32")
            row = T.alloc_fragment((M,), "int32")
            column = T.alloc_fragment((N,), "int32")
            T.copy(X, x)
            T.reduce_bitand(x, row, dim=1)
            T.copy(row, bits[0, :])
            T.reduce_bitor(x, row, dim=1)
            T.copy(row, bits[1, :])
            T.reduce_bitxor(x, row, dim=1)
            T.copy(row, bits[2, :])
            T.reduce_abssum(x, row, dim=1)
            T.copy(row, sizes[0, :])
            T.reduce_absmax(x, row, dim=1, clear=False)
            T.copy(row, sizes[1, :])
            T.fill(column, -3)
            T.reduce_min(x, column, dim=0, clear=False)
            T.copy(column, least)

    return main


def folds_inputs(rng):
    return [rng.integers(-9, 9, (6, 10), dtype=np.int32)]


def folds_reference(X):
    bits = [f.reduce(X, axis=1) for f in (np.bitwise_and, np.bitwise_or, np.bitwise_xor)]
    total = np.abs(X).sum(axis=1, dtype=np.int32)
    sizes = [total, np.maximum(total, np.abs(X).max(axis=1))]
    return [np.stack(bits), np.stack(sizes), np.minimum(X.min(axis=0), -3)]


@tilelang.jit(out_idx=[-1])
def skip_empty(M, N, block=8):
    """Rows of blocks with nothing in them are left as they were cleared."""

    @T.prim_func
    def main(
        X: T.Tensor((M, N), "float32"),
        mask: T.Tensor((M, N), "bool"),
        Y: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(M, block), threads=64) as bx:
            x = T.alloc_shared((block, N), "float32")
            m = T.alloc_shared((block, N), "bool")
            T.copy(X[bx * block, 0], x)
            T.copy(mask[bx * block, 0], m)
            if T.any_of(m):
                for i, j in T.Parallel(block, N):
                    x[i, j] = T.if_then_else(m[i, j], x[i, j] * 2.0, x[i, j])
            else:
                T.clear(x)
            if T.all_of(m[0, :]):
                for j in T.Parallel(N):
                    x[0, j] = 7.0
            T.copy(x, Y[bx * block, 0])

    return main


def skip_empty_inputs(rng):
    mask = rng.integers(0, 2, (24, 6)).astype(bool)
    mask[8:16] = False
    mask[16] = True
    return [rng.standard_normal((24, 6)).astype("f4"), mask]


def skip_empty_reference(X, mask):
    Y = np.where(mask, X * 2, X)
    Y[8:16] = 0
    for first in (0, 8, 16):
        if mask[first].all():
            Y[first] = 7
    return [Y]
