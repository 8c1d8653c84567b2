"""Kernels of two branches on the thread: before the second TileLang has a barrier of all threads, or none."""

import tilelang
import tilelang.language as T

SIDE = 128


@tilelang.jit
def pipelined(N):
    """A pipeline whose roles wait for each other, and never begin together."""

    @T.prim_func
    def main(X: T.Tensor((N, SIDE), "float32"), Y: T.Tensor((N, SIDE), "float32")):
        with T.Kernel(1, threads=2 * SIDE) as _:
            a = T.alloc_shared((2, SIDE), "float32")
            full = T.alloc_barrier(arrive_count=[SIDE, SIDE])
            free = T.alloc_barrier(arrive_count=[SIDE, SIDE])
            with T.ws(0):
                for k in T.serial(N):
                    T.barrier_wait(free[k % 2], (k // 2 + 1) % 2)
                    T.tma_copy(X[k, :], a[k % 2, :], barrier=full[k % 2])
                    T.barrier_arrive(full[k % 2])
            with T.ws(1):  # the barrier
                for k in T.serial(N):
                    T.barrier_wait(full[k % 2], k // 2 % 2)
                    for i in T.Parallel(SIDE):
                        Y[k, i] = a[k % 2, SIDE - 1 - i]
                    T.barrier_arrive(free[k % 2])

    return main


@tilelang.jit
def said_too_early(N):
    """The second role is let go before the tile is there; the barrier makes that right."""

    @T.prim_func
    def main(X: T.Tensor((N, SIDE), "float32"), Y: T.Tensor((N, SIDE), "float32")):
        with T.Kernel(1, threads=2 * SIDE) as _:
            a = T.alloc_shared((SIDE,), "float32")
            full = T.alloc_barrier(arrive_count=SIDE)
            with T.ws(0):
                T.barrier_arrive(full)
                for i in T.Parallel(SIDE):
                    a[i] = X[0, i]
            with T.ws(1):
                T.barrier_wait(full, 0)
                for i in T.Parallel(SIDE):
                    Y[0, i] = a[SIDE - 1 - i]

    return main


@tilelang.jit
def of_one_branch(N):
    """The same as the sides of one branch: there is no barrier between."""

    @T.prim_func
    def main(X: T.Tensor((N, SIDE), "float32"), Y: T.Tensor((N, SIDE), "float32")):
        with T.Kernel(1, threads=2 * SIDE) as _:
            a = T.alloc_shared((SIDE,), "float32")
            full = T.alloc_barrier(arrive_count=SIDE)
            if T.get_thread_binding() < SIDE:
                T.barrier_arrive(full)
                for i in T.Parallel(SIDE):
                    a[i] = X[0, i]
            else:
                T.barrier_wait(full, 0)
                for i in T.Parallel(SIDE):
                    Y[0, i] = a[SIDE - 1 - i]

    return main


@tilelang.jit
def apart(N):
    """The branches use different stages, as constant indices say."""

    @T.prim_func
    def main(X: T.Tensor((N, SIDE), "float32"), Y: T.Tensor((N, SIDE), "float32")):
        with T.Kernel(1, threads=2 * SIDE) as _:
            a = T.alloc_shared((2, SIDE), "float32")
            full = T.alloc_barrier(arrive_count=SIDE)
            for i, j in T.Parallel(2, SIDE):
                a[i, j] = X[i, j]
            with T.ws(0):
                T.barrier_arrive(full)
                for i in T.Parallel(SIDE):
                    a[0, i] = X[2, i]
            with T.ws(1):
                T.barrier_wait(full, 0)
                for i in T.Parallel(SIDE):
                    Y[0, i] = a[1, SIDE - 1 - i]

    return main


@tilelang.jit
def both_write(N):
    """Between two writes TileLang puts none."""

    @T.prim_func
    def main(X: T.Tensor((N, SIDE), "float32"), Y: T.Tensor((N, SIDE), "float32")):
        with T.Kernel(1, threads=2 * SIDE) as _:
            a = T.alloc_shared((SIDE,), "float32")
            full = T.alloc_barrier(arrive_count=SIDE)
            with T.ws(0):
                T.barrier_arrive(full)
                for i in T.Parallel(SIDE):
                    a[i] = X[0, i]
            with T.ws(1):
                T.barrier_wait(full, 0)
                for i in T.Parallel(SIDE):
                    a[i] = X[1, i]
            for i in T.Parallel(SIDE):
                Y[0, i] = a[SIDE - 1 - i]

    return main


@tilelang.jit
def through_global(N):
    """Nor for arrays, however they are used."""

    @T.prim_func
    def main(X: T.Tensor((N, SIDE), "float32"), Y: T.Tensor((N, SIDE), "float32")):
        with T.Kernel(1, threads=2 * SIDE) as _:
            full = T.alloc_barrier(arrive_count=SIDE)
            with T.ws(0):
                T.barrier_arrive(full)
                for i in T.Parallel(SIDE):
                    X[0, i] = 1.0
            with T.ws(1):
                T.barrier_wait(full, 0)
                for i in T.Parallel(SIDE):
                    Y[0, i] = X[0, SIDE - 1 - i]

    return main


@tilelang.jit
def with_own_barrier(N):
    """A barrier in the first branch counts for TileLang as one of all threads, so the read is too early."""

    @T.prim_func
    def main(X: T.Tensor((N, SIDE), "float32"), Y: T.Tensor((N, SIDE), "float32")):
        with T.Kernel(1, threads=2 * SIDE) as _:
            a = T.alloc_shared((SIDE,), "float32")
            full = T.alloc_barrier(arrive_count=SIDE)
            with T.ws(0):
                T.barrier_arrive(full)
                for i in T.Parallel(SIDE):
                    a[i] = X[0, i]
                T.sync_threads(1, SIDE)
            with T.ws(1):
                T.barrier_wait(full, 0)
                for i in T.Parallel(SIDE):
                    Y[0, i] = a[SIDE - 1 - i]

    return main
