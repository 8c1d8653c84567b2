"""Kernels that say what each thread does: they exchange values in shared memory, or count in it."""

import numpy as np
import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def neighbours(M, N):
    """Each thread has a place in a row, and sees what the one at the other end has read."""

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(M, threads=N) as bx:
            tx = T.get_thread_binding()
            row = T.alloc_shared((N,), "float32")
            mine = T.alloc_local((2,), "float32")
            row[tx] = X[bx, tx]
            mine[0] = row[N - 1 - tx]
            mine[1] = row[tx]
            row[tx] = mine[0] - mine[1]
            if tx % 2 == 0:
                row[tx] = row[tx + 1] * 2.0
            Y[bx, tx] = row[tx]

    return main


def neighbours_reference(x):
    """The same with whole rows."""
    y = x[:, ::-1] - x
    y[:, ::2] = y[:, 1::2] * np.float32(2)
    return y


@tilelang.jit(out_idx=[-1])
def dot_rows(M, K, rows=4, lanes=8):
    """Threads in two dimensions: some share out the columns, and add up what each of them has."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float32"), x: T.Tensor((K,), "float32"), y: T.Tensor((M,), "float32")
    ):
        with T.Kernel(T.ceildiv(M, rows), threads=(lanes, rows)) as bx:
            tk = T.get_thread_binding(0)
            tm = T.get_thread_binding(1)
            part = T.alloc_local((4,), "float32")
            total = T.alloc_local((1,), "float32")
            whole = T.alloc_local((1,), "float32")
            T.clear(total)
            for k in T.serial(K // (lanes * 4)):
                for v in T.vectorized(4):
                    part[v] = A[bx * rows + tm, (k * lanes + tk) * 4 + v]
                for v in T.serial(4):
                    total[0] += part[v] * x[(k * lanes + tk) * 4 + v]
            with T.attr(
                T.comm_reducer(lambda a, b: a + b, [T.float32(0)]),
                "reduce_scope",
                T.reinterpret(T.uint64(0), dtype="handle"),
            ):
                T.evaluate(
                    T.tvm_thread_allreduce(
                        T.uint32(1), total[0], True, whole[0], tk, dtype="handle"
                    )
                )
            if tk == 0:
                y[bx * rows + tm] = whole[0]

    return main


def dot_rows_reference(a, x):
    """A product of a matrix and a vector."""
    return (a.astype(np.float64) @ x.astype(np.float64)).astype(np.float32)


@tilelang.jit(out_idx=[-1])
def places(N, threads=32, bins=16):
    """How many values lie in a bin or above it; then each value takes a place in its bin."""

    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=threads):
            tx = T.get_thread_binding()
            counts = T.alloc_shared((bins + 1,), "int32")
            sum_up = T.alloc_var(T.int32)
            place = T.alloc_var(T.int32)
            T.fill(counts, 0)
            for i in T.serial(T.ceildiv(N, threads)):
                if i * threads + tx < N:
                    b = T.cast(T.clamp(X[i * threads + tx] * 4.0 + 8.0, 0.0, 15.0), "int32")
                    T.atomic_add(counts[b], 1)
            if tx < bins:
                for i in T.serial(4):
                    step = 1 << i
                    T.sync_threads(3, bins)
                    if tx < bins - step:
                        sum_up = counts[tx] + counts[tx + step]
                    T.sync_threads(3, bins)
                    if tx < bins - step:
                        counts[tx] = sum_up
            T.sync_threads()
            for i in T.serial(T.ceildiv(N, threads)):
                value = X[i * threads + tx]
                c = T.cast(T.clamp(value * 4.0 + 8.0, 0.0, 15.0), "int32")
                if i * threads + tx < N:
                    place = T.atomic_add(counts[c + 1], 1, return_prev=True)
                    if place < N:
                        Y[place] = T.cast(c, "float32")

    return main


def places_reference(x):
    """The bins of all values, the highest first."""
    bins = np.clip(x * np.float32(4) + np.float32(8), 0, 15).astype(np.int32)
    return np.sort(bins)[::-1].astype(np.float32)


@tilelang.jit(out_idx=[-1])
def visits(N, threads=32):
    """Every thread counts itself, and one of them writes down how many there were."""

    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(N, threads=threads) as bx:
            total = T.alloc_shared((1,), "int32")
            tx = T.get_thread_binding()
            if tx == 0:
                total[0] = 0
            T.atomic_add(total[0], 1)
            if tx == 3:
                Y[bx] = X[bx] * T.cast(total[0], "float32")

    return main


def visits_reference(x):
    """A block has 32 threads."""
    return x * np.float32(32)


@tilelang.jit(out_idx=[-1])
def folded(M, N):
    """Half of the threads add what the other half has, until one of them has all."""

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M,), "float32")):
        with T.Kernel(M, threads=N) as bx:
            tx = T.get_thread_binding()
            row = T.alloc_shared((N,), "float32")
            row[tx] = X[bx, tx]
            for i in T.serial(4):
                if tx < N >> (i + 1):
                    row[tx] += row[tx + (N >> (i + 1))]
            if tx == 0:
                Y[bx] = row[0]

    return main


def folded_reference(x):
    """Sums of rows of 16."""
    return x.sum(axis=1)
