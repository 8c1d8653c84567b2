"""Correct kernels whose asynchronous operations and roles say themselves how they keep in step.

Tests plant mistakes in their text. ``block`` is small enough to be interpreted as it stands; from 64 on
TileLang generates code for sm_90a, whose ``wgmma`` multiplies 64 rows at least. Roles are the sides of one
branch: between two branches (``T.ws(0)``, then ``T.ws(1)``) that touch the same tile TileLang puts a barrier
of all threads, at which roles that wait for each other would wait for ever. ``in_one_loop`` has that barrier
in each iteration.

One module because each kernel is a text of its own, and mistakes are identified by their place in it.
"""

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[2])
def two_stages(M, N, K, block=16):
    """TMA: one role fills two stages in turn, the other multiplies and says what is free."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(N // block, M // block, threads=256) as (bx, by):
            a = T.alloc_shared((2, block, block), "float16")
            b = T.alloc_shared((2, block, block), "float16")
            c = T.alloc_fragment((block, block), "float32")
            full = T.alloc_barrier(arrive_count=[128, 128])
            free = T.alloc_barrier(arrive_count=[128, 128])
            tx = T.get_thread_binding()
            if tx < 128:
                for k in T.serial(K // block):
                    T.barrier_wait(free[k % 2], (k // 2 + 1) % 2)
                    T.tma_copy(
                        A[by * block : (by + 1) * block, k * block : (k + 1) * block],
                        a[k % 2, :, :],
                        barrier=full[k % 2],
                    )
                    T.tma_copy(
                        B[k * block : (k + 1) * block, bx * block : (bx + 1) * block],
                        b[k % 2, :, :],
                        barrier=full[k % 2],
                    )
                    T.barrier_arrive(full[k % 2])
            else:
                T.clear(c)
                for k in T.serial(K // block):
                    T.barrier_wait(full[k % 2], k // 2 % 2)
                    T.gemm(a[k % 2, :, :], b[k % 2, :, :], c)
                    T.barrier_arrive(free[k % 2])
                T.copy(c, C[by * block, bx * block])

    return main


@tilelang.jit(out_idx=[2])
def three_stages(M, N, K, block=16):
    """TMA over three stages; a single elected thread says that a stage has all its copies."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(N // block, M // block, threads=256) as (bx, by):
            a = T.alloc_shared((3, block, block), "float16")
            b = T.alloc_shared((3, block, block), "float16")
            c = T.alloc_fragment((block, block), "float32")
            full = T.alloc_barrier(arrive_count=[1, 1, 1])
            free = T.alloc_barrier(arrive_count=[128, 128, 128])
            tx = T.get_thread_binding()
            if tx < 128:
                T.clear(c)
                for k in T.serial(K // block):
                    T.barrier_wait(full[k % 3], k // 3 % 2)
                    T.gemm(a[k % 3, :, :], b[k % 3, :, :], c)
                    T.barrier_arrive(free[k % 3])
                T.copy(c, C[by * block, bx * block])
            else:
                for k in T.serial(K // block):
                    if k >= 3:
                        T.barrier_wait(free[k % 3], (k // 3 - 1) % 2)
                    T.tma_copy(
                        A[by * block : (by + 1) * block, k * block : (k + 1) * block],
                        a[k % 3, :, :],
                        barrier=full[k % 3],
                    )
                    T.tma_copy(
                        B[k * block : (k + 1) * block, bx * block : (bx + 1) * block],
                        b[k % 3, :, :],
                        barrier=full[k % 3],
                    )
                    if T.shuffle_elect(128):
                        T.barrier_arrive(full[k % 3])

    return main


@tilelang.jit(out_idx=[2])
def three_roles(M, N, K, block=16):
    """TMA: two roles multiply one half of the columns each, and both have to be done with a stage."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(N // (2 * block), M // block, threads=384) as (bx, by):
            a = T.alloc_shared((2, block, block), "float16")
            b = T.alloc_shared((2, 2, block, block), "float16")
            left = T.alloc_fragment((block, block), "float32")
            right = T.alloc_fragment((block, block), "float32")
            full = T.alloc_barrier(arrive_count=[128, 128])
            free = T.alloc_barrier(arrive_count=[256, 256])
            tx = T.get_thread_binding()
            if tx >= 256:
                for k in T.serial(K // block):
                    T.barrier_wait(free[k % 2], (k // 2 + 1) % 2)
                    T.tma_copy(
                        A[by * block : (by + 1) * block, k * block : (k + 1) * block],
                        a[k % 2, :, :],
                        barrier=full[k % 2],
                    )
                    for side in T.unroll(2):
                        T.tma_copy(
                            B[
                                k * block : (k + 1) * block,
                                (bx * 2 + side) * block : (bx * 2 + side + 1) * block,
                            ],
                            b[k % 2, side, :, :],
                            barrier=full[k % 2],
                        )
                    T.barrier_arrive(full[k % 2])
            elif tx < 128:
                T.clear(left)
                for k in T.serial(K // block):
                    T.barrier_wait(full[k % 2], k // 2 % 2)
                    T.gemm(a[k % 2, :, :], b[k % 2, 0, :, :], left)
                    T.barrier_arrive(free[k % 2])
                T.copy(left, C[by * block, bx * 2 * block])
            else:
                T.clear(right)
                for k in T.serial(K // block):
                    T.barrier_wait(full[k % 2], k // 2 % 2)
                    T.gemm(a[k % 2, :, :], b[k % 2, 1, :, :], right)
                    T.barrier_arrive(free[k % 2])
                T.copy(right, C[by * block, (bx * 2 + 1) * block])

    return main


@tilelang.jit(out_idx=[2])
def persistent(M, N, K, blocks=2, block=16):
    """TMA: each block makes several tiles, and the stages and phases go on from tile to tile."""
    columns = N // block
    tiles = M // block * columns
    steps = K // block

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(blocks, threads=256) as bx:
            a = T.alloc_shared((2, block, block), "float16")
            b = T.alloc_shared((2, block, block), "float16")
            c = T.alloc_fragment((block, block), "float32")
            full = T.alloc_barrier(arrive_count=[128, 128])
            free = T.alloc_barrier(arrive_count=[128, 128])
            tx = T.get_thread_binding()
            if tx < 128:
                for w in T.serial(tiles // blocks):
                    row = (w * blocks + bx) // columns * block
                    column = (w * blocks + bx) % columns * block
                    for k in T.serial(steps):
                        turn = w * steps + k
                        T.barrier_wait(free[turn % 2], (turn // 2 + 1) % 2)
                        T.tma_copy(
                            A[row : row + block, k * block : (k + 1) * block],
                            a[turn % 2, :, :],
                            barrier=full[turn % 2],
                        )
                        T.tma_copy(
                            B[k * block : (k + 1) * block, column : column + block],
                            b[turn % 2, :, :],
                            barrier=full[turn % 2],
                        )
                        T.barrier_arrive(full[turn % 2])
            else:
                for w in T.serial(tiles // blocks):
                    T.clear(c)
                    for k in T.serial(steps):
                        turn = w * steps + k
                        T.barrier_wait(full[turn % 2], turn // 2 % 2)
                        T.gemm(a[turn % 2, :, :], b[turn % 2, :, :], c)
                        T.barrier_arrive(free[turn % 2])
                    T.copy(
                        c,
                        C[
                            (w * blocks + bx) // columns * block,
                            (w * blocks + bx) % columns * block,
                        ],
                    )

    return main


@tilelang.jit(out_idx=[3])
def guarded(M, N, K, block=16):
    """TMA: what is masked is neither brought nor multiplied, so each role counts what it has done."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        Mask: T.Tensor((M // block, K // block), "int32"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(N // block, M // block, threads=256) as (bx, by):
            a = T.alloc_shared((2, block, block), "float16")
            b = T.alloc_shared((2, block, block), "float16")
            c = T.alloc_fragment((block, block), "float32")
            full = T.alloc_barrier(arrive_count=[128, 128])
            free = T.alloc_barrier(arrive_count=[128, 128])
            brought = T.alloc_var("int32")
            used = T.alloc_var("int32")
            tx = T.get_thread_binding()
            if tx < 128:
                brought = 0
                for k in T.serial(K // block):
                    if Mask[by, k] != 0:
                        T.barrier_wait(free[brought % 2], (brought // 2 + 1) % 2)
                        T.tma_copy(
                            A[by * block : (by + 1) * block, k * block : (k + 1) * block],
                            a[brought % 2, :, :],
                            barrier=full[brought % 2],
                        )
                        T.tma_copy(
                            B[k * block : (k + 1) * block, bx * block : (bx + 1) * block],
                            b[brought % 2, :, :],
                            barrier=full[brought % 2],
                        )
                        T.barrier_arrive(full[brought % 2])
                        brought = brought + 1
            else:
                used = 0
                T.clear(c)
                for k in T.serial(K // block):
                    if Mask[by, k] != 0:
                        T.barrier_wait(full[used % 2], used // 2 % 2)
                        T.gemm(a[used % 2, :, :], b[used % 2, :, :], c)
                        T.barrier_arrive(free[used % 2])
                        used = used + 1
                T.copy(c, C[by * block, bx * block])

    return main


@tilelang.jit(out_idx=[1])
def one_barrier(N, block=16):
    """TMA without roles: all threads start a copy, wait for it, use it, and wait for each other."""

    @T.prim_func
    def main(X: T.Tensor((N, block), "float32"), Y: T.Tensor((N, block), "float32")):
        with T.Kernel(1, threads=128) as _:
            x = T.alloc_shared((block, block), "float32")
            here = T.alloc_barrier(arrive_count=128)
            for k in T.serial(N // block):
                T.tma_copy(X[k * block : (k + 1) * block, 0:block], x, barrier=here)
                T.barrier_arrive(here)
                T.barrier_wait(here, k % 2)
                for i, j in T.Parallel(block, block):
                    Y[k * block + i, j] = x[i, j] * 2.0
                T.sync_threads()

    return main


@tilelang.jit
def ahead(N, block=16):
    """TMA without roles, in place: the next tile is under way while this one is used."""
    steps = N // block

    @T.prim_func
    def main(X: T.Tensor((N, block), "float32")):
        with T.Kernel(1, threads=128) as _:
            x = T.alloc_shared((2, block, block), "float32")
            here = T.alloc_barrier(arrive_count=[128, 128])
            T.tma_copy(X[0:block, 0:block], x[0, :, :], barrier=here[0])
            T.barrier_arrive(here[0])
            for k in T.serial(steps):
                if k + 1 < steps:
                    T.tma_copy(
                        X[(k + 1) * block : (k + 2) * block, 0:block],
                        x[(k + 1) % 2, :, :],
                        barrier=here[(k + 1) % 2],
                    )
                    T.barrier_arrive(here[(k + 1) % 2])
                T.barrier_wait(here[k % 2], k // 2 % 2)
                for i, j in T.Parallel(block, block):
                    X[k * block + i, j] = x[k % 2, i, j] * 2.0
                T.sync_threads()

    return main


@tilelang.jit(out_idx=[2])
def add(N, block=16):
    """cp.async of single elements from two arrays: both copies of a tile are one group."""
    steps = N // block

    @T.prim_func
    def main(
        X: T.Tensor((N,), "float32"),
        Y: T.Tensor((N,), "float32"),
        Z: T.Tensor((N,), "float32"),
    ):
        with T.Kernel(1, threads=32) as _:
            x = T.alloc_shared((2, block), "float32")
            y = T.alloc_shared((2, block), "float32")
            for i in T.Parallel(block // 4):
                T.ptx_cp_async(T.access_ptr(x[0, i * 4], "w"), T.access_ptr(X[i * 4], "r"), 4)
                T.ptx_cp_async(T.access_ptr(y[0, i * 4], "w"), T.access_ptr(Y[i * 4], "r"), 4)
            T.ptx_commit_group()
            for k in T.serial(steps):
                if k + 1 < steps:
                    for i in T.Parallel(block // 4):
                        T.ptx_cp_async(
                            T.access_ptr(x[(k + 1) % 2, i * 4], "w"),
                            T.access_ptr(X[(k + 1) * block + i * 4], "r"),
                            4,
                        )
                        T.ptx_cp_async(
                            T.access_ptr(y[(k + 1) % 2, i * 4], "w"),
                            T.access_ptr(Y[(k + 1) * block + i * 4], "r"),
                            4,
                        )
                T.ptx_commit_group()
                T.ptx_wait_group(1)
                T.sync_threads()
                for i in T.Parallel(block):
                    Z[k * block + i] = x[k % 2, i] + y[k % 2, i]
                T.sync_threads()

    return main


@tilelang.jit(out_idx=[1])
def gathered(N, block=16):
    """cp.async that arrives at a barrier: each thread's arrival is made when its own copies are done."""

    @T.prim_func
    def main(X: T.Tensor((N, block), "float32"), Y: T.Tensor((N, block), "float32")):
        with T.Kernel(1, threads=256) as _:
            x = T.alloc_shared((2, block, block), "float32")
            full = T.alloc_barrier(arrive_count=[128, 128])
            free = T.alloc_barrier(arrive_count=[128, 128])
            tx = T.get_thread_binding()
            if tx < 128:
                for k in T.serial(N // block):
                    T.barrier_wait(free[k % 2], (k // 2 + 1) % 2)
                    for i, j in T.Parallel(block, block // 4):
                        T.ptx_cp_async(
                            T.access_ptr(x[k % 2, i, j * 4], "w"),
                            T.access_ptr(X[k * block + i, j * 4], "r"),
                            4,
                        )
                    T.cp_async_barrier_noinc(full[k % 2])
            else:
                for k in T.serial(N // block):
                    T.barrier_wait(full[k % 2], k // 2 % 2)
                    for i, j in T.Parallel(block, block):
                        Y[k * block + i, j] = x[k % 2, i, j] * 2.0
                    T.barrier_arrive(free[k % 2])

    return main


@tilelang.jit(out_idx=[1])
def in_one_loop(N, block=16):
    """TMA and one tile: both roles stand in a loop that they share, each waits for the other."""

    @T.prim_func
    def main(X: T.Tensor((N, block), "float32"), Y: T.Tensor((N, block), "float32")):
        with T.Kernel(1, threads=256) as _:
            x = T.alloc_shared((block, block), "float32")
            full = T.alloc_barrier(arrive_count=128)
            free = T.alloc_barrier(arrive_count=128)
            for k in T.serial(N // block):
                with T.ws(0):
                    T.barrier_wait(free, (k + 1) % 2)
                    T.tma_copy(X[k * block : (k + 1) * block, 0:block], x, barrier=full)
                    T.barrier_arrive(full)
                with T.ws(1):
                    T.barrier_wait(full, k % 2)
                    for i, j in T.Parallel(block, block):
                        Y[k * block + i, j] = x[i, j] * 2.0
                    T.barrier_arrive(free)

    return main


@tilelang.jit(out_idx=[1])
def stores(N, block=16):
    """TMA stores from two tiles in turn: one is stored while the other is written."""

    @T.prim_func
    def main(X: T.Tensor((N, block), "float32"), Y: T.Tensor((N, block), "float32")):
        with T.Kernel(1, threads=128) as _:
            tile = T.alloc_shared((2, block, block), "float32")
            for k in T.serial(N // block):
                T.tma_store_wait(1)
                T.sync_threads()
                for i, j in T.Parallel(block, block):
                    tile[k % 2, i, j] = X[k * block + i, j] * 2.0
                T.fence_proxy_async()
                T.sync_threads()
                T.tma_copy(tile[k % 2, :, :], Y[k * block : (k + 1) * block, 0:block])
            T.tma_store_wait(0)

    return main


@tilelang.jit(out_idx=[1])
def stored_by_another(N, block=16):
    """One role writes tiles and fences them; the other stores them by TMA, one under way."""

    @T.prim_func
    def main(X: T.Tensor((N, block), "float32"), Y: T.Tensor((N, block), "float32")):
        with T.Kernel(1, threads=256) as _:
            tile = T.alloc_shared((2, block, block), "float32")
            full = T.alloc_barrier(arrive_count=[128, 128])
            free = T.alloc_barrier(arrive_count=[128, 128])
            tx = T.get_thread_binding()
            if tx < 128:
                for k in T.serial(N // block):
                    T.barrier_wait(free[k % 2], (k // 2 + 1) % 2)
                    for i, j in T.Parallel(block, block):
                        tile[k % 2, i, j] = X[k * block + i, j] * 2.0
                    T.fence_proxy_async()
                    T.barrier_arrive(full[k % 2])
            else:
                for k in T.serial(N // block):
                    T.barrier_wait(full[k % 2], k // 2 % 2)
                    T.tma_copy(tile[k % 2, :, :], Y[k * block : (k + 1) * block, 0:block])
                    if k >= 1:
                        T.tma_store_wait(1)
                        T.barrier_arrive(free[(k + 1) % 2])
                T.tma_store_wait(0)

    return main


@tilelang.jit(out_idx=[2])
def one_in_flight(M, N, K, block=16):
    """wgmma: a stage is free once the multiplication after the one that reads it has been started."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(N // block, M // block, threads=256) as (bx, by):
            a = T.alloc_shared((2, block, block), "float16")
            b = T.alloc_shared((2, block, block), "float16")
            c = T.alloc_fragment((block, block), "float32")
            full = T.alloc_barrier(arrive_count=[128, 128])
            free = T.alloc_barrier(arrive_count=[128, 128])
            tx = T.get_thread_binding()
            if tx < 128:
                T.clear(c)
                for k in T.serial(K // block):
                    T.barrier_wait(full[k % 2], k // 2 % 2)
                    T.wgmma_gemm(a[k % 2, :, :], b[k % 2, :, :], c)
                    if k >= 1:
                        T.wait_wgmma(1)
                        T.barrier_arrive(free[(k + 1) % 2])
                T.wait_wgmma(0)
                T.copy(c, C[by * block, bx * block])
            else:
                for k in T.serial(K // block):
                    T.barrier_wait(free[k % 2], (k // 2 + 1) % 2)
                    T.tma_copy(
                        A[by * block : (by + 1) * block, k * block : (k + 1) * block],
                        a[k % 2, :, :],
                        barrier=full[k % 2],
                    )
                    T.tma_copy(
                        B[k * block : (k + 1) * block, bx * block : (bx + 1) * block],
                        b[k % 2, :, :],
                        barrier=full[k % 2],
                    )
                    T.barrier_arrive(full[k % 2])

    return main


@tilelang.jit(out_idx=[1])
def turns(N, block=16):
    """Named barriers: two roles take turns with a sum that depends on the order."""
    rounds = N // 2

    @T.prim_func
    def main(X: T.Tensor((N, block), "float32"), Y: T.Tensor((block,), "float32")):
        with T.Kernel(1, threads=256) as _:
            total = T.alloc_shared((block,), "float32")
            tx = T.get_thread_binding()
            if tx < 128:
                for i in T.Parallel(block):
                    total[i] = 0.0
                for k in T.serial(rounds):
                    if k >= 1:
                        T.sync_threads(1, 256)
                    for i in T.Parallel(block):
                        total[i] = total[i] * 0.5 + X[2 * k, i]
                    T.named_barrier_arrive(2, 256)
            else:
                for k in T.serial(rounds):
                    T.sync_threads(2, 256)
                    for i in T.Parallel(block):
                        total[i] = total[i] * 0.5 + X[2 * k + 1, i]
                    if k + 1 < rounds:
                        T.named_barrier_arrive(1, 256)
                for i in T.Parallel(block):
                    Y[i] = total[i]

    return main


@tilelang.jit(out_idx=[2])
def converted(M, N, K, block=16):
    """wgmma of what another role wrote: it brings A, converts B, and fences it for the tensor cores."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((K, N), "int8"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(N // block, M // block, threads=256) as (bx, by):
            a = T.alloc_shared((2, block, block), "float16")
            b = T.alloc_shared((2, block, block), "float16")
            c = T.alloc_fragment((block, block), "float32")
            full = T.alloc_barrier(arrive_count=[128, 128])
            free = T.alloc_barrier(arrive_count=[128, 128])
            tx = T.get_thread_binding()
            if tx < 128:
                for k in T.serial(K // block):
                    T.barrier_wait(free[k % 2], (k // 2 + 1) % 2)
                    T.tma_copy(
                        A[by * block : (by + 1) * block, k * block : (k + 1) * block],
                        a[k % 2, :, :],
                        barrier=full[k % 2],
                    )
                    for i, j in T.Parallel(block, block):
                        b[k % 2, i, j] = T.cast(B[k * block + i, bx * block + j], "float16")
                    T.fence_proxy_async()
                    T.barrier_arrive(full[k % 2])
            else:
                T.clear(c)
                for k in T.serial(K // block):
                    T.barrier_wait(full[k % 2], k // 2 % 2)
                    T.wgmma_gemm(a[k % 2, :, :], b[k % 2, :, :], c)
                    T.wait_wgmma(0)
                    T.barrier_arrive(free[k % 2])
                T.copy(c, C[by * block, bx * block])

    return main


@tilelang.jit(out_idx=[2, 3])
def epilogue(M, N, K, block=16):
    """The result goes through shared memory to a TMA store, and is read back for the sums of its rows."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        C: T.Tensor((M, N), "float32"),
        Sums: T.Tensor((M, N // block), "float32"),
    ):
        with T.Kernel(N // block, M // block, threads=128) as (bx, by):
            a = T.alloc_shared((block, block), "float16")
            b = T.alloc_shared((block, block), "float16")
            tile = T.alloc_shared((block, block), "float32")
            c = T.alloc_fragment((block, block), "float32")
            again = T.alloc_fragment((block, block), "float32")
            sums = T.alloc_fragment((block,), "float32")
            T.clear(c)
            for k in T.serial(K // block):
                T.async_copy(A[by * block : (by + 1) * block, k * block : (k + 1) * block], a)
                T.async_copy(B[k * block : (k + 1) * block, bx * block : (bx + 1) * block], b)
                T.ptx_wait_group(0)
                T.sync_threads()
                T.gemm(a, b, c)
                T.sync_threads()
            T.copy(c, tile)
            T.fence_proxy_async()
            T.sync_threads()
            T.tma_copy(tile, C[by * block : (by + 1) * block, bx * block : (bx + 1) * block])
            T.tma_store_wait(0, read=False)
            T.sync_threads()
            T.copy(C[by * block, bx * block], again)
            T.reduce_sum(again, sums, dim=1)
            for i in T.Parallel(block):
                Sums[by * block + i, bx] = sums[i]

    return main


@tilelang.jit(out_idx=[3])
def attention(length, dim, block=16):
    """wgmma: the scores of the next tile are started while the values of the last are multiplied."""
    steps = length // block

    @T.prim_func
    def main(
        Q: T.Tensor((length, dim), "float16"),
        K: T.Tensor((length, dim), "float16"),
        V: T.Tensor((length, dim), "float16"),
        O: T.Tensor((length, dim), "float32"),
    ):
        with T.Kernel(length // block, threads=256) as bx:
            q = T.alloc_shared((block, dim), "float16")
            k = T.alloc_shared((2, block, dim), "float16")
            v = T.alloc_shared((2, block, dim), "float16")
            scores = T.alloc_fragment((block, block), "float32")
            weights = T.alloc_fragment((block, block), "float16")
            o = T.alloc_fragment((block, dim), "float32")
            q_full = T.alloc_barrier(arrive_count=128)
            k_full = T.alloc_barrier(arrive_count=[128, 128])
            k_free = T.alloc_barrier(arrive_count=[128, 128])
            v_full = T.alloc_barrier(arrive_count=[128, 128])
            v_free = T.alloc_barrier(arrive_count=[128, 128])
            tx = T.get_thread_binding()
            if tx < 128:
                T.clear(o)
                T.barrier_wait(q_full, 0)
                for n in T.serial(steps):
                    T.barrier_wait(k_full[n % 2], n // 2 % 2)
                    T.wgmma_gemm(q, k[n % 2, :, :], scores, transpose_B=True, clear_accum=True)
                    if n >= 1:
                        T.wait_wgmma(1)
                        T.barrier_arrive(v_free[(n + 1) % 2])
                    T.wait_wgmma(0)
                    T.barrier_arrive(k_free[n % 2])
                    for i, j in T.Parallel(block, block):
                        weights[i, j] = T.max(scores[i, j], 0.0)
                    T.barrier_wait(v_full[n % 2], n // 2 % 2)
                    T.wgmma_gemm(weights, v[n % 2, :, :], o)
                T.wait_wgmma(0)
                T.copy(o, O[bx * block, 0])
            else:
                T.tma_copy(Q[bx * block : (bx + 1) * block, 0:dim], q, barrier=q_full)
                T.barrier_arrive(q_full)
                for n in T.serial(steps):
                    T.barrier_wait(k_free[n % 2], (n // 2 + 1) % 2)
                    T.tma_copy(
                        K[n * block : (n + 1) * block, 0:dim],
                        k[n % 2, :, :],
                        barrier=k_full[n % 2],
                    )
                    T.barrier_arrive(k_full[n % 2])
                    T.barrier_wait(v_free[n % 2], (n // 2 + 1) % 2)
                    T.tma_copy(
                        V[n * block : (n + 1) * block, 0:dim],
                        v[n % 2, :, :],
                        barrier=v_full[n % 2],
                    )
                    T.barrier_arrive(v_full[n % 2])

    return main
