"""Work that blocks share: split-k, stream-k and persistent GEMMs, histograms, tickets."""

import numpy as np
import tilelang
import tilelang.language as T


@tilelang.jit
def split_k(M, N, K, split, block_M=16, block_N=16, block_K=8):
    """Each block adds its part of the sum to the result."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), split) as (bx, by, bz):
            a = T.alloc_shared((block_M, block_K), "float16")
            b = T.alloc_shared((block_K, block_N), "float16")
            c = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(c)
            for k in T.Pipelined(K // split // block_K, num_stages=2):
                depth = bz * (K // split) + k * block_K
                T.copy(A[by * block_M, depth], a)
                T.copy(B[depth, bx * block_N], b)
                T.gemm(a, b, c)
            T.atomic_add(C[by * block_M, bx * block_N], c)

    return main


def split_k_inputs(rng):
    arrays = [rng.standard_normal(shape).astype("f2") for shape in ((21, 64), (64, 37))]
    return [*arrays, np.ones((21, 37), np.float32)]


def split_k_reference(A, B, C):
    return [C + A.astype("f4") @ B.astype("f4")]


@tilelang.jit
def stream_k(M, N, K, blocks, block_M=16, block_N=16, block_K=8):
    """Every block takes as many steps as all others, over the ends of tiles."""
    tiles_n = -(-N // block_N)
    steps_k = -(-K // block_K)
    total = tiles_n * -(-M // block_M) * steps_k
    share = -(-total // blocks)

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float32"),
        B: T.Tensor((N, K), "float32"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(blocks, threads=128) as bx:
            a = T.alloc_shared((block_M, block_K), "float32")
            b = T.alloc_shared((block_N, block_K), "float32")
            c = T.alloc_fragment((block_M, block_N), "float32")
            at = T.alloc_local((1,), "int32")
            end = T.alloc_local((1,), "int32")
            at[0] = bx * share
            end[0] = T.min((bx + 1) * share, total)
            while at[0] < end[0]:
                tile = at[0] // steps_k
                first = at[0] % steps_k
                count = T.min(steps_k - first, end[0] - at[0])
                T.clear(c)
                for k in T.serial(count):
                    T.copy(A[tile // tiles_n * block_M, (first + k) * block_K], a)
                    T.copy(B[tile % tiles_n * block_N, (first + k) * block_K], b)
                    T.gemm(a, b, c, transpose_B=True)
                for i, j in T.Parallel(block_M, block_N):
                    T.atomic_add(
                        C[tile // tiles_n * block_M + i, tile % tiles_n * block_N + j], c[i, j]
                    )
                at[0] = at[0] + count

    return main


def stream_k_inputs(rng):
    arrays = [rng.standard_normal(shape).astype("f4") for shape in ((40, 30), (35, 30))]
    return [*arrays, np.zeros((40, 35), np.float32)]


def stream_k_reference(A, B, C):
    return [C + A @ B.T]


@tilelang.jit(out_idx=[-1])
def persistent(M, N, K, blocks, block_M=16, block_N=16, block_K=8):
    """Blocks take tiles in turn until none is left."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float32"),
        B: T.Tensor((K, N), "float32"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(blocks, threads=128) as block:
            a = T.alloc_shared((block_M, block_K), "float32")
            b = T.alloc_shared((block_K, block_N), "float32")
            c = T.alloc_fragment((block_M, block_N), "float32")
            for bx, by in T.Persistent(
                [T.ceildiv(M, block_M), T.ceildiv(N, block_N)], blocks, block
            ):
                T.clear(c)
                for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=3):
                    T.copy(A[bx * block_M, k * block_K], a)
                    T.copy(B[k * block_K, by * block_N], b)
                    T.gemm(a, b, c)
                T.copy(c, C[bx * block_M, by * block_N])

    return main


def persistent_inputs(rng):
    return [rng.standard_normal(shape).astype("f4") for shape in ((50, 20), (20, 70))]


def persistent_reference(A, B):
    return [A @ B]


@tilelang.jit
def histogram(N, bins, block=64):
    """Counts per bin, and the extremes of what was counted."""

    @T.prim_func
    def main(
        X: T.Tensor((N,), "int32"),
        counts: T.Tensor((bins,), "int32"),
        ends: T.Tensor((2,), "int32"),
    ):
        with T.Kernel(T.ceildiv(N, block), threads=block) as bx:
            for i in T.Parallel(block):
                if bx * block + i < N:
                    T.atomic_add(counts[X[bx * block + i]], 1)
                    T.atomic_min(ends[0], X[bx * block + i])
                    T.atomic_max(ends[1], X[bx * block + i])

    return main


def histogram_inputs(rng):
    X = rng.integers(2, 9, 1000, dtype=np.int32)
    return [X, np.zeros(10, np.int32), np.array([99, -99], np.int32)]


def histogram_reference(X, counts, ends):
    return [np.bincount(X, minlength=10).astype(np.int32), np.array([X.min(), X.max()], np.int32)]


@tilelang.jit
def compact(N, block=32):
    """Positive numbers find their places by drawing tickets; which one comes first is open."""

    @T.prim_func
    def main(
        X: T.Tensor((N,), "int32"),
        count: T.Tensor((1,), "int32"),
        Y: T.Tensor((N,), "int32"),
    ):
        with T.Kernel(N // block, threads=block) as bx:
            for i in T.Parallel(block):
                if X[bx * block + i] > 0:
                    place = T.atomic_add(count[0], 1, return_prev=True)
                    T.atomic_add(Y[place % 4], X[bx * block + i])

    return main


def compact_inputs(rng):
    return [np.full(128, 3, np.int32), np.zeros(1, np.int32), np.zeros(128, np.int32)]


def compact_reference(X, count, Y):
    return [np.array([128], np.int32), np.array([96] * 4 + [0] * 124, np.int32)]


@tilelang.jit
def column_sums(M, N, block_M=16):
    """Half-precision sums in pairs."""

    @T.prim_func
    def main(X: T.Tensor((M, N), "float16"), Y: T.Tensor((N,), "float16")):
        with T.Kernel(T.ceildiv(M, block_M), threads=64) as bx:
            t = T.alloc_shared((block_M, N), "float16")
            T.copy(X[bx * block_M, 0], t)
            for i in T.serial(block_M):
                for j in T.Parallel(N // 2):
                    T.atomic_addx2(Y[j * 2], t[i, j * 2])

    return main


def column_sums_inputs(rng):
    return [rng.integers(-3, 4, (40, 12)).astype("f2"), np.zeros(12, np.float16)]


def column_sums_reference(X, Y):
    return [X.sum(axis=0)]
