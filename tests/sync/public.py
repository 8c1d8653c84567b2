"""Mistakes of public reports, in our own words and small kernels; docs/design/public-mistakes.md says more.

Of a mistake that TileLang's passes make there is the kernel as one writes it, which is right, and one in
which the order that comes out of the passes is written by hand. What a check is to find stands at the end of
each docstring; the line with the comment ``# here`` is where. All are for TileLang 0.1.15.
"""

import tilelang
import tilelang.language as T

BLOCK = 16
ROWS = 64  # of a tile that wgmma multiplies
ROLE = 128  # threads of a role


@tilelang.jit
def atomic_then_read(steps):
    """tile-ai/tilelang issue 2595: what a step adds to is what the next step copies.

    Right as written. TileLang's pipeline copies the next step's tile before this step has added to it: on
    sm_80 a stage ahead, on sm_90a in a role of its own, and with a plain ``+=`` too. In its form: dependence
    reordered.
    """

    @T.prim_func
    def main(G: T.Tensor((steps + 1, BLOCK, BLOCK), "float32")):
        with T.Kernel(1, threads=ROLE) as _:
            tile = T.alloc_shared((BLOCK, BLOCK), "float32")
            for k in T.Pipelined(steps, num_stages=2):
                T.copy(G[k, 0, 0], tile)  # here
                for i, j in T.Parallel(BLOCK, BLOCK):
                    T.atomic_add(G[k + 1, i, j], tile[i, j])

    return main


@tilelang.jit
def store_then_read(steps):
    """As ``atomic_then_read`` with a plain store, which TileLang 0.1.15 reorders likewise.

    Right as written. In the pipeline's form: dependence reordered.
    """

    @T.prim_func
    def main(G: T.Tensor((steps + 1, BLOCK, BLOCK), "float32")):
        with T.Kernel(1, threads=ROLE) as _:
            tile = T.alloc_shared((BLOCK, BLOCK), "float32")
            for k in T.Pipelined(steps, num_stages=2):
                T.copy(G[k, 0, 0], tile)  # here
                for i, j in T.Parallel(BLOCK, BLOCK):
                    G[k + 1, i, j] += tile[i, j]

    return main


@tilelang.jit
def store_then_read_reordered(steps):
    """tile-ai/tilelang issue 2595 by hand, with a store: the next tile is under way while it is written.

    Source changed in flight.
    """

    @T.prim_func
    def main(G: T.Tensor((steps + 1, BLOCK, BLOCK), "float32")):
        with T.Kernel(1, threads=ROLE) as _:
            tile = T.alloc_shared((2, BLOCK, BLOCK), "float32")
            T.async_copy(G[0, :, :], tile[0, :, :])
            for k in T.serial(steps):
                T.async_copy(G[k + 1, :, :], tile[(k + 1) % 2, :, :])
                T.ptx_wait_group(1)
                for i, j in T.Parallel(BLOCK, BLOCK):
                    G[k + 1, i, j] += tile[k % 2, i, j]  # here
            T.ptx_wait_group(0)

    return main


@tilelang.jit
def atomic_then_read_reordered(steps):
    """tile-ai/tilelang issue 2595 by hand: the next tile is under way while it is added to.

    Source changed in flight.
    """

    @T.prim_func
    def main(G: T.Tensor((steps + 1, BLOCK, BLOCK), "float32")):
        with T.Kernel(1, threads=ROLE) as _:
            tile = T.alloc_shared((2, BLOCK, BLOCK), "float32")
            T.async_copy(G[0, :, :], tile[0, :, :])
            for k in T.serial(steps):
                T.async_copy(G[k + 1, :, :], tile[(k + 1) % 2, :, :])
                T.ptx_wait_group(1)
                for i, j in T.Parallel(BLOCK, BLOCK):
                    T.atomic_add(G[k + 1, i, j], tile[k % 2, i, j])  # here
            T.ptx_wait_group(0)

    return main


@tilelang.jit
def read_then_refill(steps):
    """tile-ai/tilelang issue 2668: a step reads the tile of the step before, then refills it.

    Right as written. In the form of TileLang's pipeline the copy is first, and the tile has one stage. On
    sm_80 no wait is left: read before arrival. On sm_90a each step reads its own tile: dependence reordered.
    """

    @T.prim_func
    def main(
        X: T.Tensor((steps, BLOCK, BLOCK), "float32"), Y: T.Tensor((steps, BLOCK, BLOCK), "float32")
    ):
        with T.Kernel(1, threads=ROLE) as _:
            tile = T.alloc_shared((BLOCK, BLOCK), "float32")
            T.clear(tile)
            for k in T.Pipelined(steps, num_stages=2):
                for i, j in T.Parallel(BLOCK, BLOCK):
                    Y[k, i, j] = tile[i, j] * 2.0  # here
                T.copy(X[k, 0, 0], tile)

    return main


@tilelang.jit
def read_then_refill_reordered(steps):
    """tile-ai/tilelang issue 2668 by hand, as on sm_80: the loop is turned, and nothing waits for the copies.

    Read before arrival, and overwritten in flight: each copy goes to the tile that the one before is still
    filling.
    """

    @T.prim_func
    def main(
        X: T.Tensor((steps, BLOCK, BLOCK), "float32"), Y: T.Tensor((steps, BLOCK, BLOCK), "float32")
    ):
        with T.Kernel(1, threads=ROLE) as _:
            tile = T.alloc_shared((BLOCK, BLOCK), "float32")
            T.clear(tile)
            for i, j in T.Parallel(BLOCK, BLOCK):
                Y[0, i, j] = tile[i, j] * 2.0
            for k in T.serial(steps - 1):
                T.async_copy(X[k, :, :], tile)
                for i, j in T.Parallel(BLOCK, BLOCK):
                    Y[k + 1, i, j] = tile[i, j] * 2.0  # here
            T.async_copy(X[steps - 1, :, :], tile)

    return main


@tilelang.jit
def read_then_refill_roles(steps):
    """tile-ai/tilelang issue 2668 by hand, as on sm_90a: barriers for two stages, and a tile that has one.

    Overwritten before release: the second refill waits for a stage that nobody holds. That each step reads
    its own tile rather than the one before is seen against ``read_then_refill`` only.
    """

    @T.prim_func
    def main(
        X: T.Tensor((steps, BLOCK, BLOCK), "float32"), Y: T.Tensor((steps, BLOCK, BLOCK), "float32")
    ):
        with T.Kernel(1, threads=2 * ROLE) as _:
            tile = T.alloc_shared((BLOCK, BLOCK), "float32")
            full = T.alloc_barrier(arrive_count=[ROLE, ROLE])
            free = T.alloc_barrier(arrive_count=[ROLE, ROLE])
            with T.ws(0):
                for k in T.serial(steps):
                    T.barrier_wait(free[k % 2], (k // 2 + 1) % 2)
                    T.tma_copy(X[k, :, :], tile, barrier=full[k % 2])  # here
                    T.barrier_arrive(full[k % 2])
            with T.ws(1):
                for k in T.serial(steps):
                    T.barrier_wait(full[k % 2], k // 2 % 2)
                    for i, j in T.Parallel(BLOCK, BLOCK):
                        Y[k, i, j] = tile[i, j] * 2.0
                    T.barrier_arrive(free[k % 2])

    return main


@tilelang.jit
def staging_reused(waves):
    """tile-ai/TileOPs pull request 1550: results leave through a tile that the next wave refills early.

    Source changed in flight: one thread starts the store and nothing waits for it. In the report that thread
    does wait, the others of its role do not wait for it: ``staging_reused_by_others``.
    """

    @T.prim_func
    def main(
        X: T.Tensor((waves, BLOCK, BLOCK), "float32"), Y: T.Tensor((waves, BLOCK, BLOCK), "float32")
    ):
        with T.Kernel(1, threads=ROLE) as _:
            values = T.alloc_fragment((BLOCK, BLOCK), "float32")
            staging = T.alloc_shared((BLOCK, BLOCK), "float32")
            for w in T.serial(waves):
                T.copy(X[w, 0, 0], values)
                T.copy(values, staging)  # here
                T.fence_proxy_async()
                T.sync_threads(3, ROLE)
                T.tma_copy(staging, Y[w, :, :])
            T.tma_store_wait(0)

    return main


@tilelang.jit
def staging_reused_by_others(waves):
    """tile-ai/TileOPs pull request 1550 as it was: the storing thread waits, the rest of its role goes on.

    Source changed in flight, where threads count apart and no barrier is assumed in front of the refill. The
    report's fix is such a barrier of the role; TileLang 0.1.15 puts one there itself, so that this compiles
    to a right kernel.
    """

    @T.prim_func
    def main(
        X: T.Tensor((waves, BLOCK, BLOCK), "float32"), Y: T.Tensor((waves, BLOCK, BLOCK), "float32")
    ):
        with T.Kernel(1, threads=2 * ROLE) as _:
            values = T.alloc_fragment((BLOCK, BLOCK), "float32")
            staging = T.alloc_shared((BLOCK, BLOCK), "float32")
            with T.ws(0):
                for w in T.serial(waves):
                    T.copy(X[w, 0, 0], values)
                    T.copy(values, staging)  # here
                    T.fence_proxy_async()
                    T.sync_threads(3, ROLE)
                    T.tma_copy(staging, Y[w, :, :])
                    T.tma_store_wait(0)

    return main


@tilelang.jit
def staging_unfenced(waves):
    """tile-ai/TileOPs pull request 1574, fixing 1550: stores and the copy that reads them, not in order.

    Missing fence: plain stores, then a TMA store of the same tile.
    """

    @T.prim_func
    def main(
        X: T.Tensor((waves, BLOCK, BLOCK), "float32"), Y: T.Tensor((waves, BLOCK, BLOCK), "float32")
    ):
        with T.Kernel(1, threads=ROLE) as _:
            values = T.alloc_fragment((BLOCK, BLOCK), "float32")
            staging = T.alloc_shared((BLOCK, BLOCK), "float32")
            for w in T.serial(waves):
                T.copy(X[w, 0, 0], values)
                T.sync_threads(3, ROLE)
                T.copy(values, staging)
                T.tma_copy(staging, Y[w, :, :])  # here
                T.tma_store_wait(0)

    return main


@tilelang.jit
def running_mean(channels):
    """tile-ai/TileOPs issue 1727: each thread of a block reads, changes and writes one global element.

    Race. The report's fix lets one thread do it.
    """

    @T.prim_func
    def main(X: T.Tensor((channels, BLOCK), "float32"), Mean: T.Tensor((channels,), "float32")):
        with T.Kernel(channels, threads=ROLE) as c:
            values = T.alloc_fragment((1, BLOCK), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.copy(X[c, 0], values)
            T.reduce_sum(values, total, dim=1)
            Mean[c] = 0.9 * Mean[c] + 0.1 * (total[0] / BLOCK)  # here

    return main


@tilelang.jit
def circular_wait(steps):
    """tile-ai/tilelang issue 2567: a refill waits for a release behind the use of what it would bring.

    Deadlock: already the first refill waits to be released, and its user for the refill.
    """

    @T.prim_func
    def main(
        Q: T.Tensor((steps, BLOCK, BLOCK), "float32"),
        D: T.Tensor((steps, BLOCK), "float32"),
        Y: T.Tensor((steps, BLOCK, BLOCK), "float32"),
    ):
        with T.Kernel(1, threads=2 * ROLE) as _:
            q = T.alloc_shared((BLOCK, BLOCK), "float32")
            d = T.alloc_shared((BLOCK,), "float32")
            full = T.alloc_barrier(arrive_count=ROLE)
            free = T.alloc_barrier(arrive_count=ROLE)
            with T.ws(0):
                for k in T.serial(steps):
                    T.barrier_wait(free, k % 2)  # here
                    T.tma_copy(Q[k, :, :], q, barrier=full)
                    T.barrier_arrive(full)
            with T.ws(1):
                for k in T.serial(steps):
                    T.barrier_wait(full, k % 2)
                    T.copy(D[k, :], d)
                    T.sync_threads(3, ROLE)
                    for i, j in T.Parallel(BLOCK, BLOCK):
                        Y[k, i, j] = q[i, j] * d[i]
                    T.barrier_arrive(free)

    return main


@tilelang.jit
def wait_after_use(M, N, K):
    """facebookexperimental/CUTracer pull request 106, first: the wait for A is behind A's product.

    Read before arrival.
    """

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, 32), T.ceildiv(M, ROWS), threads=2 * ROLE) as (bx, by):
            a = T.alloc_shared((ROWS, 32), "float16")
            b = T.alloc_shared((32, 32), "float16")
            c = T.alloc_fragment((ROWS, 32), "float32")
            full_a = T.alloc_barrier(arrive_count=ROLE)
            full_b = T.alloc_barrier(arrive_count=ROLE)
            free = T.alloc_barrier(arrive_count=ROLE)
            tx = T.get_thread_binding()
            if tx < ROLE:
                for k in T.serial(K // 32):
                    T.barrier_wait(free, (k + 1) % 2)
                    T.tma_copy(A[by * ROWS, k * 32], a, barrier=full_a)
                    T.barrier_arrive(full_a)
                    T.tma_copy(B[k * 32, bx * 32], b, barrier=full_b)
                    T.barrier_arrive(full_b)
            else:
                T.clear(c)
                for k in T.serial(K // 32):
                    T.barrier_wait(full_b, k % 2)
                    T.wgmma_gemm(a, b, c)  # here
                    T.barrier_wait(full_a, k % 2)
                    T.wait_wgmma(0)
                    T.barrier_arrive(free)
                T.copy(c, C[by * ROWS, bx * 32])

    return main


@tilelang.jit
def wait_left_out(M, N, K):
    """facebookexperimental/CUTracer pull request 106, second: nothing waits for B, mostly there in time.

    Read before arrival.
    """

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, 32), T.ceildiv(M, ROWS), threads=2 * ROLE) as (bx, by):
            a = T.alloc_shared((ROWS, 32), "float16")
            b = T.alloc_shared((32, 32), "float16")
            c = T.alloc_fragment((ROWS, 32), "float32")
            full_a = T.alloc_barrier(arrive_count=ROLE)
            full_b = T.alloc_barrier(arrive_count=ROLE)
            free = T.alloc_barrier(arrive_count=ROLE)
            tx = T.get_thread_binding()
            if tx < ROLE:
                for k in T.serial(K // 32):
                    T.barrier_wait(free, (k + 1) % 2)
                    T.tma_copy(A[by * ROWS, k * 32], a, barrier=full_a)
                    T.barrier_arrive(full_a)
                    T.tma_copy(B[k * 32, bx * 32], b, barrier=full_b)
                    T.barrier_arrive(full_b)
            else:
                T.clear(c)
                for k in T.serial(K // 32):
                    T.barrier_wait(full_a, k % 2)
                    T.wgmma_gemm(a, b, c)  # here
                    T.wait_wgmma(0)
                    T.barrier_arrive(free)
                T.copy(c, C[by * ROWS, bx * 32])

    return main


@tilelang.jit(pass_configs={tilelang.PassConfigKey.TL_DISABLE_THREAD_STORAGE_SYNC: True})
def exchange_without_sync(N):
    """tile-ai/tilelang issue 2556: threads read what others wrote, and the barrier between them is not there.

    Race, but only because the kernel turns off the pass that puts barriers in. Without that it is right as
    written: the barrier that the pass forgot is in no text that an author sees.
    """

    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=N) as _:
            tile = T.alloc_shared((N,), "float32")
            tx = T.get_thread_binding()
            if tx < 3 * N // 4:
                tile[tx] = X[tx]
                Y[tx] = tile[3 * N // 4 - 1 - tx]  # here

    return main


@tilelang.jit
def never_arrived(N):
    """tile-ai/tilelang issue 2566: a barrier expects bytes and one arrival, and the arrival is never made.

    Deadlock: the bytes come, and the phase does not end.
    """

    @T.prim_func
    def main(
        X: T.Tensor((BLOCK, N), "float32"),
        Y: T.Tensor((BLOCK, N), "float32"),
    ):
        with T.Kernel(1, threads=2 * ROLE) as _:
            tile = T.alloc_shared((BLOCK, N), "float32")
            full = T.alloc_barrier(arrive_count=1)
            with T.ws(0):
                T.tma_copy(X, tile, barrier=full)
            with T.ws(1):
                T.barrier_wait(full, 0)  # here
                for i, j in T.Parallel(BLOCK, N):
                    Y[i, j] = tile[i, j] * 2.0

    return main


@tilelang.jit
def shared_operand(M, N, K):
    """tile-ai/tilelang issue 2613: two roles multiply the same tile, and the loop refills it.

    Right as written: TileLang is to put a barrier of all threads in front of the refill. Its pass forgot it
    in 0.1.11; 0.1.15 puts it there.
    """

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        C: T.Tensor((2, M, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, 32), T.ceildiv(M, ROWS), threads=2 * ROLE) as (bx, by):
            a = T.alloc_shared((ROWS, 32), "float16")
            b = T.alloc_shared((32, 32), "float16")
            first = T.alloc_fragment((ROWS, 32), "float32")
            second = T.alloc_fragment((ROWS, 32), "float32")
            with T.ws(0):
                T.clear(first)
            with T.ws(1):
                T.clear(second)
            for k in T.serial(K // 32):
                T.copy(A[by * ROWS, k * 32], a)  # here
                T.copy(B[k * 32, bx * 32], b)
                with T.ws(0):
                    T.gemm(a, b, first)
                with T.ws(1):
                    T.gemm(a, b, second)
            with T.ws(0):
                T.copy(first, C[0, by * ROWS, bx * 32])
            with T.ws(1):
                T.copy(second, C[1, by * ROWS, bx * 32])

    return main


@tilelang.jit
def shared_operand_released_by_one(M, N, K):
    """tile-ai/tilelang issue 2613 with barriers of one's own: one of two readers releases the tile for both.

    Overwritten before release.
    """

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        C: T.Tensor((2, M, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, 32), T.ceildiv(M, ROWS), threads=3 * ROLE) as (bx, by):
            a = T.alloc_shared((ROWS, 32), "float16")
            b = T.alloc_shared((32, 32), "float16")
            first = T.alloc_fragment((ROWS, 32), "float32")
            second = T.alloc_fragment((ROWS, 32), "float32")
            full = T.alloc_barrier(arrive_count=ROLE)
            free = T.alloc_barrier(arrive_count=ROLE)
            tx = T.get_thread_binding()
            if tx < ROLE:
                for k in T.serial(K // 32):
                    T.barrier_wait(free, (k + 1) % 2)
                    T.tma_copy(A[by * ROWS, k * 32], a, barrier=full)  # here
                    T.tma_copy(B[k * 32, bx * 32], b, barrier=full)
                    T.barrier_arrive(full)
            elif tx < 2 * ROLE:
                T.clear(first)
                for k in T.serial(K // 32):
                    T.barrier_wait(full, k % 2)
                    T.wgmma_gemm(a, b, first)
                    T.wait_wgmma(0)
                    T.barrier_arrive(free)
                T.copy(first, C[0, by * ROWS, bx * 32])
            else:
                T.clear(second)
                for k in T.serial(K // 32):
                    T.barrier_wait(full, k % 2)
                    T.wgmma_gemm(a, b, second)
                    T.wait_wgmma(0)
                T.copy(second, C[1, by * ROWS, bx * 32])

    return main


@tilelang.jit
def parity_of_the_loop(steps):
    """tile-ai/tilelang issue 2927: each step has its barrier, and the wait takes its parity from the loop.

    Read before arrival, in each odd step: the phase before the first counts as over, so the wait ends at
    once.
    """

    @T.prim_func
    def main(
        X: T.Tensor((4, BLOCK, BLOCK), "float32"), Y: T.Tensor((steps, BLOCK, BLOCK), "float32")
    ):
        with T.Kernel(1, threads=2 * ROLE) as _:
            tile = T.alloc_shared((4, BLOCK, BLOCK), "float32")
            full = T.alloc_barrier(arrive_count=[ROLE, ROLE, ROLE, ROLE])
            with T.ws(0):
                for k in T.serial(steps):
                    T.tma_copy(X[k, :, :], tile[k, :, :], barrier=full[k])
                    T.barrier_arrive(full[k])
            with T.ws(1):
                for k in T.serial(steps):
                    T.barrier_wait(full[k], k % 2)
                    for i, j in T.Parallel(BLOCK, BLOCK):
                        Y[k, i, j] = tile[k, i, j] * 2.0  # here

    return main


ARGUMENTS = {
    "atomic_then_read": {"steps": 4},
    "atomic_then_read_reordered": {"steps": 4},
    "store_then_read": {"steps": 4},
    "store_then_read_reordered": {"steps": 4},
    "read_then_refill": {"steps": 4},
    "read_then_refill_reordered": {"steps": 4},
    "read_then_refill_roles": {"steps": 4},
    "staging_reused": {"waves": 3},
    "staging_reused_by_others": {"waves": 3},
    "staging_unfenced": {"waves": 3},
    "running_mean": {"channels": 2},
    "circular_wait": {"steps": 2},
    "wait_after_use": {"M": 64, "N": 32, "K": 96},
    "wait_left_out": {"M": 64, "N": 32, "K": 96},
    "exchange_without_sync": {"N": 64},
    "never_arrived": {"N": 32},
    "shared_operand": {"M": 64, "N": 32, "K": 96},
    "shared_operand_released_by_one": {"M": 64, "N": 32, "K": 96},
    "parity_of_the_loop": {"steps": 4},
}
