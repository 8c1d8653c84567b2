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


@tilelang.jit(out_idx=[1])
def two_launches(M, N, block=8):
    """Sums of blocks of columns in a workspace, then the sums of those, in one function."""
    parts = -(-N // block)

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M,), "float32")):
        partial = T.alloc_global((M, parts), "float32")
        with T.Kernel(parts, threads=64) as bx:
            x = T.alloc_fragment((M, block), "float32")
            total = T.alloc_fragment((M,), "float32")
            T.copy(X[0, bx * block], x)
            T.reduce_sum(x, total, dim=1)
            for i in T.Parallel(M):
                partial[i, bx] = total[i]
        with T.Kernel(M, threads=64) as bx:
            row = T.alloc_fragment((parts,), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.copy(partial[bx, :], row)
            T.reduce_sum(row, total, dim=0)
            Y[bx] = total[0]

    return main


def two_launches_inputs(rng):
    return [rng.standard_normal((6, 35)).astype("f4")]


def two_launches_reference(X):
    return [X.sum(axis=1)]


@tilelang.jit(out_idx=[1, 2])
def reducers(M, N):
    """Contributions of a whole nest to a few elements."""

    @T.prim_func
    def main(
        X: T.Tensor((M, N), "float32"), Y: T.Tensor((M,), "float32"), Z: T.Tensor((1,), "float32")
    ):
        with T.Kernel(1, threads=64):
            x = T.alloc_fragment((M, N), "float32")
            y = T.alloc_fragment((M,), "float32")
            z = T.alloc_fragment((1,), "float32")
            total = T.alloc_reducer((M,), "float32", op="sum")
            largest = T.alloc_reducer((1,), "float32", op="max")
            T.copy(X, x)
            T.reducer_init(total)
            for i, j in T.Parallel(M, N):
                T.reducer_update(total[i], x[i, j] * x[i, j])
            T.finalize_reducer(total, y)
            T.copy(y, Y)
            T.reducer_init(largest, 0.5)
            for i, j in T.Parallel(M, N):
                T.reducer_update(largest[0], x[i, j])
            T.finalize_reducer(largest, z)
            T.copy(z, Z)

    return main


def reducers_inputs(rng):
    return [rng.standard_normal((8, 16)).astype("f4")]


def reducers_reference(X):
    return [(X * X).sum(axis=1), np.maximum(X.max(), np.float32(0.5)).reshape(1)]


@tilelang.jit(out_idx=[2])
def async_gemm(M, N, K, block=16):
    """Copies that are waited for in groups, two steps ahead."""
    steps = K // block

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, block), T.ceildiv(M, block), threads=128) as (bx, by):
            a = T.alloc_shared((2, block, block), "float16")
            b = T.alloc_shared((2, block, block), "float16")
            c = T.alloc_fragment((block, block), "float32")
            T.clear(c)
            T.async_copy(A[by * block : (by + 1) * block, 0:block], a[0, :, :])
            T.async_copy(B[0:block, bx * block : (bx + 1) * block], b[0, :, :])
            for k in T.serial(steps):
                if k + 1 < steps:
                    T.async_copy(
                        A[by * block : (by + 1) * block, (k + 1) * block : (k + 2) * block],
                        a[(k + 1) % 2, :, :],
                    )
                    T.async_copy(
                        B[(k + 1) * block : (k + 2) * block, bx * block : (bx + 1) * block],
                        b[(k + 1) % 2, :, :],
                    )
                    T.ptx_wait_group(2)
                else:
                    T.ptx_wait_group(0)
                T.sync_threads()
                T.gemm(a[k % 2, :, :], b[k % 2, :, :], c)
            T.copy(c, C[by * block, bx * block])

    return main


def async_gemm_inputs(rng):
    return [rng.standard_normal(s).astype("f2") for s in ((20, 48), (48, 33))]


def async_gemm_reference(A, B):
    return [A.astype("f4") @ B.astype("f4")]
