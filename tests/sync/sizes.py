"""Kernels whose mistakes only some sizes show, and kernels whose sizes are hard to choose."""

import numpy as np
import tilelang
import tilelang.language as T

import tileyard

BLOCK = 16


def even_numbers(rng, N):
    """Inputs of the user's own."""
    return {"X": 2 * rng.integers(0, 9, N).astype(np.float32)}


@tilelang.jit(out_idx=[1])
def late_parity(N):
    """Two roles and three stages, and parities that are wrong from the eighth iteration on."""
    steps = T.ceildiv(N, BLOCK)

    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=256) as _:
            x = T.alloc_shared((3, BLOCK), "float32")
            full = T.alloc_barrier(arrive_count=[128, 128, 128])
            free = T.alloc_barrier(arrive_count=[128, 128, 128])
            tx = T.get_thread_binding()
            if tx < 128:
                for k in T.serial(steps):
                    T.barrier_wait(free[k % 3], (k // 3 + 1) % 2)
                    T.tma_copy(X[k * BLOCK : (k + 1) * BLOCK], x[k % 3, :], barrier=full[k % 3])
                    T.barrier_arrive(full[k % 3])
            else:
                for k in T.serial(steps):
                    T.barrier_wait(full[k % 3], (k // 3 + k // 8) % 2)
                    for i in T.Parallel(BLOCK):
                        Y[k * BLOCK + i] = x[k % 3, i]
                    T.barrier_arrive(free[k % 3])

    return main


@tilelang.jit(out_idx=[1])
def in_step(N):
    """Two roles and three stages, as they should be."""
    steps = T.ceildiv(N, BLOCK)

    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=256) as _:
            x = T.alloc_shared((3, BLOCK), "float32")
            full = T.alloc_barrier(arrive_count=[128, 128, 128])
            free = T.alloc_barrier(arrive_count=[128, 128, 128])
            tx = T.get_thread_binding()
            if tx < 128:
                for k in T.serial(steps):
                    T.barrier_wait(free[k % 3], (k // 3 + 1) % 2)
                    T.tma_copy(X[k * BLOCK : (k + 1) * BLOCK], x[k % 3, :], barrier=full[k % 3])
                    T.barrier_arrive(full[k % 3])
            else:
                for k in T.serial(steps):
                    T.barrier_wait(full[k % 3], k // 3 % 2)
                    for i in T.Parallel(BLOCK):
                        Y[k * BLOCK + i] = x[k % 3, i]
                    T.barrier_arrive(free[k % 3])

    return main


@tilelang.jit(out_idx=[1])
def fourth_barrier(N):
    """Three stages, and barriers of which the fourth is missing."""
    steps = T.ceildiv(N, BLOCK)

    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=256) as _:
            x = T.alloc_shared((3, BLOCK), "float32")
            full = T.alloc_barrier(arrive_count=[128, 128, 128])
            free = T.alloc_barrier(arrive_count=[128, 128, 128])
            tx = T.get_thread_binding()
            if tx < 128:
                for k in T.serial(steps):
                    T.barrier_wait(free[k % 4], (k // 4 + 1) % 2)
                    T.tma_copy(X[k * BLOCK : (k + 1) * BLOCK], x[k % 3, :], barrier=full[k % 3])
                    T.barrier_arrive(full[k % 3])
            else:
                for k in T.serial(steps):
                    T.barrier_wait(full[k % 3], k // 3 % 2)
                    for i in T.Parallel(BLOCK):
                        Y[k * BLOCK + i] = x[k % 3, i]
                    T.barrier_arrive(free[k % 4])

    return main


@tilelang.jit(out_idx=[1])
def square(M, N):
    """Sizes that have to be equal, and even in tiles."""
    assert M == N, "only squares"
    assert M % (2 * BLOCK) == 0

    @T.prim_func
    def main(X: T.Tensor((M, N), "float16"), Y: T.Tensor((M, N), "float16")):
        with T.Kernel(M // BLOCK, threads=128) as bx:
            x = T.alloc_shared((BLOCK, BLOCK), "float16")
            for k in T.Pipelined(N // BLOCK, num_stages=2):
                T.copy(X[bx * BLOCK, k * BLOCK], x)
                T.copy(x, Y[bx * BLOCK, k * BLOCK])

    return main


@tilelang.jit
def dynamic(block=BLOCK):
    """A size that the compiled kernel takes, and a number with a branch of its own."""
    N = T.dynamic("N")

    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32"), twice: T.int32):
        with T.Kernel(T.ceildiv(N, 4 * block), threads=32) as bx:
            x = T.alloc_shared((2, block), "float32")
            for k in T.serial(T.min(4, T.ceildiv(N - bx * 4 * block, block))):
                at = bx * 4 * block + k * block
                T.async_copy(X[at : at + block], x[k % 2, :])
                T.ptx_wait_group(0)
                if twice > 100:
                    T.copy(x[k % 2, :], Y[at : at + block])
                T.copy(x[k % 2, :], Y[at : at + block])

    return main


def at_least_three(X, N):
    """What the kernel is to do, and for which sizes."""
    assert N >= 48, "three tiles at least"
    return X


@tileyard.kernel(shapes={"large": {"N": 4096}}, reference=at_least_three, inputs=even_numbers)
def declared(N):
    """A shape and a reference that say which sizes there are, and a prologue that needs them."""

    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=32) as _:
            x = T.alloc_shared((2, BLOCK), "float32")
            T.async_copy(X[0:BLOCK], x[0, :])
            for k in T.serial(N // BLOCK):
                T.ptx_wait_group(0)
                if N < 48:
                    T.copy(x[(k + 1) % 2, :], Y[0:BLOCK])
                if k + 1 < N // BLOCK:
                    T.async_copy(X[(k + 1) * BLOCK : (k + 2) * BLOCK], x[(k + 1) % 2, :])
                T.copy(x[k % 2, :], Y[k * BLOCK : (k + 1) * BLOCK])

    return main


@tilelang.jit(out_idx=[1])
def grouped(heads, groups, dtype, accum_dtype):
    """Types that are parameters, and not one block where there are as many groups as heads."""

    @T.prim_func
    def main(X: T.Tensor((heads, BLOCK), dtype), Y: T.Tensor((heads, BLOCK), accum_dtype)):
        with T.Kernel(heads // groups // BLOCK, threads=32) as bx:
            x = T.alloc_fragment((BLOCK,), accum_dtype)
            T.copy(X[bx, 0], x)
            T.copy(x, Y[bx, 0])

    return main


@tilelang.jit
def spared(block=BLOCK):
    """A size that the source names, and nothing has."""
    N, _M = T.dynamic("N, M")

    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block), threads=32) as bx:
            T.copy(X[bx * block : (bx + 1) * block], Y[bx * block : (bx + 1) * block])

    return main


@tilelang.jit(out_idx=[1])
def deep(N):
    """An expression that has 600 others inside of it."""

    def raised(value):
        for _ in range(600):
            value = T.max(value * 0.5, 1.0)
        return value

    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=32) as _:
            for i in T.Parallel(N):
                Y[i] = raised(X[i])

    return main


def refuse(X):
    """A reference that nobody may run."""
    raise AssertionError(X.shape)


def make_whole(clears):
    """A kernel that leaves out its clear at the sizes for which ``clears`` is false."""

    def whole(N, block=BLOCK):
        @T.prim_func
        def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
            with T.Kernel(T.ceildiv(N, block), threads=32) as bx:
                y = T.alloc_fragment((block,), "float32")
                if clears(N):
                    T.clear(y)
                for i in T.Parallel(block):
                    y[i] = y[i] + X[bx * block + i]
                T.copy(y, Y[bx * block])

        return main

    return whole


whole_blocks = tileyard.kernel(
    make_whole(lambda N: N % BLOCK == 0), where=lambda N: N % BLOCK == 0, reference=refuse
)
any_blocks = tileyard.kernel(make_whole(lambda N: N % BLOCK == 0), reference=refuse)
large_only = tileyard.kernel(
    make_whole(lambda N: False), where=lambda N: N >= 1 << 12, reference=refuse
)


@tilelang.jit(out_idx=[1])
def old_output(N, block=BLOCK):
    """An output whose old content nobody has written."""

    @T.prim_func
    def main(X: T.Tensor((N,), "int32"), Y: T.Tensor((N,), "int32")):
        with T.Kernel(T.ceildiv(N, block), threads=32) as bx:
            for i in T.Parallel(block):
                Y[bx * block + i] = T.max(Y[bx * block + i], X[bx * block + i])

    return main


@tilelang.jit(out_idx=[1])
def half_written(N, block=BLOCK):
    """Every second element of its output is written."""

    @T.prim_func
    def main(X: T.Tensor((N,), "int8"), Y: T.Tensor((N,), "int8")):
        with T.Kernel(T.ceildiv(N, block), threads=32) as bx:
            for i in T.Parallel(block):
                if i % 2 == 0:
                    Y[bx * block + i] = X[bx * block + i]

    return main


compared = tileyard.kernel(half_written, reference=refuse)


@tilelang.jit(out_idx=[1])
def neighbours_of_fragment(N):
    """Iterations of a parallel loop that read what others write, in registers that threads share out."""

    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=32) as _:
            x = T.alloc_fragment((N,), "float32")
            T.copy(X, x)
            for i in T.Parallel(N):
                x[i] = x[(i + 1) % N] * 2.0
            T.copy(x, Y)

    return main


@tilelang.jit(out_idx=[1])
def sums_of_threads(N, shared=1):
    """Threads add up rows by a vectorized loop, which TileLang does in order, ``shared`` of them to one."""

    @T.prim_func
    def main(X: T.Tensor((N, 4), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=32) as _:
            row = T.get_thread_binding(0)
            Y[row] = 0.0
            for k in T.vectorized(4):
                Y[row // shared] = Y[row // shared] + X[row, k]

    return main


@tilelang.jit(out_idx=[1])
def shifted(N):
    """A vectorized loop whose iterations read what earlier ones write."""

    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=32) as _:
            x = T.alloc_shared((N,), "float32")
            T.copy(X, x)
            for k in T.vectorized(N - 1):
                x[k + 1] = x[k]
            T.copy(x, Y)

    return main


@tilelang.jit(out_idx=[1])
def from_zero(N):
    """A variable that begins with TileLang's default."""

    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((1,), "float32")):
        with T.Kernel(1, threads=32) as _:
            total = T.alloc_var("float32")
            for i in T.serial(N):
                total += X[i]
            Y[0] = total

    return main


@tilelang.jit(out_idx=[1])
def atomic_stores(N, adds=False):
    """The only writes of an output are atomic."""

    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=32) as _:
            for i in T.serial(N):
                if adds:
                    T.atomic_add(Y[i], X[i])
                else:
                    T.atomic_store(Y[i], X[i])

    return main


@tilelang.jit(out_idx=[1])
def contributions(N):
    """Iterations that contribute to one element, as they may."""

    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((1,), "float32")):
        with T.Kernel(1, threads=32) as _:
            x = T.alloc_fragment((N,), "float32")
            y = T.alloc_fragment((1,), "float32")
            total = T.alloc_reducer((1,), "float32", op="sum")
            T.copy(X, x)
            T.reducer_init(total)
            for i in T.Parallel(N):
                T.reducer_update(total[0], x[i])
            T.finalize_reducer(total, y)
            T.copy(y, Y)

    return main


@tilelang.jit(out_idx=[1])
def cleared_by_first_block(N):
    """One block clears what every block adds to: its own atomic update does not hide its ordinary write."""

    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((1,), "float32")):
        with T.Kernel(N // 32, threads=32) as b:
            if b == 0:
                for i in T.Parallel(1):
                    Y[i] = 0.0
            for i in T.Parallel(32):
                T.atomic_add(Y[0], X[b * 32 + i])

    return main


@tilelang.jit(out_idx=[2])
def read_by_last_block(N):
    """One block reads what every block adds to, after its own atomic update."""

    @T.prim_func
    def main(
        X: T.Tensor((N,), "float32"), Y: T.Tensor((1,), "float32"), Z: T.Tensor((1,), "float32")
    ):
        with T.Kernel(N // 32, threads=32) as b:
            for i in T.Parallel(32):
                T.atomic_add(Y[0], X[b * 32 + i])
            if b == N // 32 - 1:
                Z[0] = Y[0]

    return main


@tilelang.jit(out_idx=[1])
def sums_of_rows(N, shared=0):
    """Iterations add a fragment's elements to others: each thread its own, and all of a shared tile."""

    @T.prim_func
    def main(X: T.Tensor((N, 32), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, 4), threads=32) as b:
            x = (T.alloc_shared if shared else T.alloc_fragment)((4, 32), "float32")
            y = T.alloc_fragment((4,), "float32")
            T.copy(X[b * 4, 0], x)
            T.clear(y)
            for i, j in T.Parallel(4, 32):
                y[i] += x[i, j]
            T.copy(y, Y[b * 4])

    return main


@tilelang.jit(out_idx=[1])
def handed_on(N):
    """A variable that iterations of a parallel loop hand on, although each thread has its own."""

    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N // 32,), "float32")):
        with T.Kernel(N // 32, threads=32) as b:
            most = T.alloc_var("float32")
            most = -1000.0
            for i in T.Parallel(32):
                if X[b * 32 + i] > most:
                    most = X[b * 32 + i]
            Y[b] = most

    return main


@tilelang.jit(out_idx=[1])
def of_one_iteration(N):
    """A variable that each iteration writes before it reads it, on each way."""

    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(N // 32, threads=32) as b:
            total = T.alloc_var("float32")
            for i in T.Parallel(32):
                if X[b * 32 + i] > 0.0:
                    total = 1.0
                    Y[b * 32 + i] = 1.0
                else:
                    total = -1.0
                for k in T.serial(3):
                    total = total + X[b * 32 + i] * k
                Y[b * 32 + i] = total

    return main


@tilelang.jit(out_idx=[1])
def wrong_in_one_block(N):
    """A mistake of a block that is neither among the first two nor the last one."""

    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(N // 64, threads=64) as b:
            x = T.alloc_shared((65,), "float32")
            for i in T.Parallel(65):
                x[i] = T.if_then_else(i < 64, X[b * 64 + i], 0.0)
            if b == 9:
                for i in T.Parallel(64):
                    x[i] = x[i] + x[i + 1]
            for i in T.Parallel(64):
                Y[b * 64 + i] = x[i]

    return main
