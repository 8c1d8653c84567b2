"""Kernels whose plans show what the reading of plans assumes, and some that TileLang 0.1.15 plans wrongly."""

import tilelang
import tilelang.language as T

BLOCK = 32


@tilelang.jit
def triangle(N, stages):
    """Right as written. A loop that begins elsewhere than at 0, for as many steps as each block has.

    On sm_80 and from 3 stages on TileLang leaves the waits of the last steps out: their condition is that of
    the copies, and it subtracts the loop's start twice. In the C that it generates nothing waits for the last
    copies, either.
    """

    @T.prim_func
    def main(
        X: T.Tensor((N, BLOCK, BLOCK), "float32"), Y: T.Tensor((N, N, BLOCK, BLOCK), "float32")
    ):
        with T.Kernel(N, threads=128) as b:
            tile = T.alloc_shared((BLOCK, BLOCK), "float32")
            for k in T.Pipelined(b, N, num_stages=stages):
                T.copy(X[k, 0, 0], tile)  # the copy
                for i, j in T.Parallel(BLOCK, BLOCK):
                    Y[b, k, i, j] = tile[i, j] * 2.0  # the use

    return main


@tilelang.jit
def through_tile(N):
    """Copies to and from shared memory that nobody asks to be asynchronous, though sm_90a has TMA."""

    @T.prim_func
    def main(X: T.Tensor((N, BLOCK), "float32"), Y: T.Tensor((N, BLOCK), "float32")):
        with T.Kernel(N // BLOCK, threads=128) as b:
            tile = T.alloc_shared((BLOCK, BLOCK), "float32")
            T.copy(X[b * BLOCK, 0], tile)
            for i, j in T.Parallel(BLOCK, BLOCK):
                tile[i, j] = tile[i, j] + 1.0
            T.copy(tile, Y[b * BLOCK, 0])

    return main


@tilelang.jit
def converted(N, stages):
    """A pipelined copy that converts: ``cp.async`` and TMA cannot."""

    @T.prim_func
    def main(X: T.Tensor((N, BLOCK, BLOCK), "float16"), Y: T.Tensor((N, BLOCK, BLOCK), "float32")):
        with T.Kernel(1, threads=128) as _:
            tile = T.alloc_shared((BLOCK, BLOCK), "float32")
            for k in T.Pipelined(N, num_stages=stages):
                T.copy(X[k, 0, 0], tile)
                for i, j in T.Parallel(BLOCK, BLOCK):
                    Y[k, i, j] = tile[i, j] * 2.0

    return main


@tilelang.jit
def gathered(N, stages):
    """Elements that a parallel loop copies, which TileLang makes ``cp.async``, and commits by itself."""

    @T.prim_func
    def main(X: T.Tensor((N, BLOCK, BLOCK), "float32"), Y: T.Tensor((N, BLOCK, BLOCK), "float32")):
        with T.Kernel(1, threads=128) as _:
            tile = T.alloc_shared((BLOCK, BLOCK), "float32")
            for k in T.Pipelined(N, num_stages=stages):
                for i, j in T.Parallel(BLOCK, BLOCK):
                    tile[i, j] = X[k, BLOCK - 1 - i, j]
                for i, j in T.Parallel(BLOCK, BLOCK):
                    Y[k, i, j] = tile[i, j] * 2.0

    return main


@tilelang.jit
def repeated(N, stages):
    """Right as written: a loop within a step copies, and adds up what it has copied.

    On sm_80 TileLang takes all of it for a copy: no wait comes before the sum, which has a version for each
    stage.
    """

    @T.prim_func
    def main(X: T.Tensor((N + 1, BLOCK), "float32"), Y: T.Tensor((N, BLOCK), "float32")):
        with T.Kernel(1, threads=128) as _:
            tile = T.alloc_shared((BLOCK,), "float32")
            kept = T.alloc_shared((BLOCK,), "float32")
            total = T.alloc_fragment((BLOCK,), "float32")
            T.clear(total)
            for k in T.Pipelined(N, num_stages=stages):
                for j in T.serial(2):
                    T.copy(X[k + j, 0], tile)  # the copy
                    for i in T.Parallel(BLOCK):
                        total[i] = total[i] + tile[i]  # the use
                T.copy(total, kept)
                T.copy(kept, Y[k, 0])

    return main


@tilelang.jit
def cleared(N, stages):
    """A tile that is written before its loop, and a value that each step passes to the next one."""

    @T.prim_func
    def main(X: T.Tensor((N, BLOCK, BLOCK), "float32"), Y: T.Tensor((BLOCK, BLOCK), "float32")):
        with T.Kernel(1, threads=128) as _:
            tile = T.alloc_shared((BLOCK, BLOCK), "float32")
            total = T.alloc_fragment((BLOCK, BLOCK), "float32")
            T.clear(tile)
            T.clear(total)
            for k in T.Pipelined(N, num_stages=stages):
                T.copy(X[k, 0, 0], tile)
                for i, j in T.Parallel(BLOCK, BLOCK):
                    total[i, j] = total[i, j] * 0.5 + tile[i, j]
            T.copy(total, Y)

    return main


@tilelang.jit
def seeded(N, stages):
    """Right as written: a tile that is read before its loop fills it.

    On sm_90a TileLang has the role that computes read it, and the other one fill it at once.
    """

    @T.prim_func
    def main(X: T.Tensor((N, BLOCK, BLOCK), "float32"), Y: T.Tensor((BLOCK, BLOCK), "float32")):
        with T.Kernel(1, threads=128) as _:
            tile = T.alloc_shared((BLOCK, BLOCK), "float32")
            total = T.alloc_fragment((BLOCK, BLOCK), "float32")
            T.clear(tile)
            T.copy(tile, total)  # the use
            for k in T.Pipelined(N, num_stages=stages):
                T.copy(X[k, 0, 0], tile)  # the copy
                for i, j in T.Parallel(BLOCK, BLOCK):
                    total[i, j] = total[i, j] * 0.5 + tile[i, j]
            T.copy(total, Y)

    return main


@tilelang.jit(target="c")
def on_a_cpu(N):
    """For a target that has no threads."""

    @T.prim_func
    def main(X: T.Tensor((N,), "float32")):
        with T.Kernel(1) as _:
            for i in T.serial(N):
                X[i] = X[i] + 1.0

    return main


@tilelang.jit
def reread(N, stages):
    """Right as written: behind the loop the tile holds what the last step has copied.

    On sm_80 TileLang reads the first version there, whichever is the last one. For sm_90a it refuses the
    kernel.
    """

    @T.prim_func
    def main(X: T.Tensor((N, BLOCK, BLOCK), "float32"), Y: T.Tensor((N, BLOCK, BLOCK), "float32")):
        with T.Kernel(1, threads=128) as _:
            tile = T.alloc_shared((BLOCK, BLOCK), "float32")
            for k in T.Pipelined(N, num_stages=stages):
                T.copy(X[k, 0, 0], tile)  # the copy
                for i, j in T.Parallel(BLOCK, BLOCK):
                    Y[k, i, j] = tile[i, j] * 2.0
            for i, j in T.Parallel(BLOCK, BLOCK):
                Y[0, i, j] = tile[i, j]  # the use

    return main


@tilelang.jit
def scheduled(N, with_bias):
    """A role that loads and one that stores, as the kernel schedules them, with two versions of a tile.

    The bias is passed on as well, and no pipeline of the schedule has it.
    """
    sync = T.WSSync
    loads = ["bias", sync.producer_acquire("tile"), "in", sync.producer_commit("tile")]
    stores = [sync.consumer_wait("tile"), "out", sync.consumer_release("tile"), "added"]
    scopes = {"load": loads, "store": stores}
    if not with_bias:
        scopes = {"load": loads[1:], "store": stores[:-1]}

    @T.prim_func
    def main(X: T.Tensor((N, BLOCK, BLOCK), "float32"), Y: T.Tensor((N, BLOCK, BLOCK), "float32")):
        with T.Kernel(1, threads=128) as _:
            tile = T.alloc_shared((BLOCK, BLOCK), "float32")
            bias = T.alloc_shared((BLOCK, BLOCK), "float32")
            T.annotate_ws_schedule(
                T.WSSchedule(
                    num_warps=8,
                    roles=[
                        T.WSRole("load", warps_lo=0, warps_hi=1),
                        T.WSRole("store", warps_lo=4, warps_hi=8),
                    ],
                    pipelines=[T.WSPipeline("tile", [tile], depth=2)],
                    scopes=[
                        T.WSScope("loop", scopes),
                        T.WSScope(T.WSScope.ROOT, {"load": ["loop"], "store": ["loop"]}),
                    ],
                )
            )
            for k in T.serial(N, annotations={T.WSID: "loop"}):
                if with_bias:
                    T.copy(X[0, 0, 0], bias, annotations={T.WSID: "bias"})  # the write
                T.copy(X[k, 0, 0], tile, annotations={T.WSID: "in"})
                T.copy(tile, Y[k, 0, 0], annotations={T.WSID: "out"})
                if with_bias:
                    T.copy(bias, Y[k, 0, 0], annotations={T.WSID: "added"})  # the read

    return main
