"""Kernels around asynchronous operations, synchronization and pipelines. Imports TileLang: import it late."""

from typing import Any, NamedTuple

import tilelang.language as T
from tests.differential.language.templates import SIDE


class Tiles(NamedTuple):
    """What an operation can act on."""

    A: Any
    O: Any
    a: Any
    b: Any
    c: Any
    bar: Any


@T.macro
def in_block(A: Any, O: Any, act: Any) -> None:
    """``act`` among tiles and a barrier."""
    a = T.alloc_shared((SIDE, SIDE), A.dtype)
    b = T.alloc_shared((SIDE, SIDE), A.dtype)
    c = T.alloc_fragment((SIDE, SIDE), A.dtype)
    bar = T.alloc_barrier(128)
    T.clear(a)
    T.clear(b)
    T.clear(c)
    act(Tiles(A, O, a, b, c, bar))
    T.copy(a, O)


def nothing(*_: Any) -> None:
    """No operation."""


@T.macro
def gathered(A: Any, O: Any, scatters: bool | None) -> None:
    """Four rows by TMA."""
    four = T.alloc_shared((4, SIDE), A.dtype)
    full = T.alloc_barrier(1)
    if scatters is not None:
        if scatters:
            T.tma_scatter4(four, O, 0, [3, 1, 2, 0])
        else:
            T.tma_gather4(A, four, 0, [3, 1, 2, 0], barrier=full)


@T.macro
def scheduled(A: Any, O: Any, with_schedule: bool) -> None:
    """A role that loads and one that stores, with two versions of a tile between them."""
    with T.Kernel(1, threads=128):
        a = T.alloc_shared((8, SIDE), A.dtype)
        if with_schedule:
            sync = T.WSSync
            load = [sync.producer_acquire("tile"), "in", sync.producer_commit("tile")]
            store = [sync.consumer_wait("tile"), "out", sync.consumer_release("tile")]
            T.annotate_ws_schedule(
                T.WSSchedule(
                    num_warps=8,
                    roles=[
                        T.WSRole("load", warps_lo=0, warps_hi=1),
                        T.WSRole("store", warps_lo=4, warps_hi=8),
                    ],
                    pipelines=[T.WSPipeline("tile", [a], depth=2)],
                    scopes=[
                        T.WSScope("loop", {"load": load, "store": store}),
                        T.WSScope(T.WSScope.ROOT, {"load": ["loop"], "store": ["loop"]}),
                    ],
                )
            )
        for k in T.serial(8, annotations={T.WSID: "loop"}):
            T.copy(A[k * 8, 0], a, annotations={T.WSID: "in"})
            T.copy(a, O[k * 8, 0], annotations={T.WSID: "out"})


@T.macro
def roles(A: Any, O: Any, with_roles: bool) -> None:
    """A producer and a consumer."""
    with T.Kernel(1, threads=256):
        a = T.alloc_shared((SIDE, SIDE), A.dtype)
        full = T.alloc_barrier(arrive_count=128)
        if with_roles:
            with T.ws(0):
                T.copy(A, a)
                T.mbarrier_arrive(full)
            with T.ws(1):
                T.mbarrier_wait_parity(full, 0)
                T.copy(a, O)
        else:
            T.copy(A, a)
            T.copy(a, O)


@T.macro
def elected(A: Any, O: Any, elects: bool) -> None:
    """One thread arrives for all."""
    with T.Kernel(1, threads=128):
        a = T.alloc_shared((SIDE, SIDE), A.dtype)
        full = T.alloc_barrier(arrive_count=1)
        if elects:  # noqa: SIM102 (TileLang decides the outer one, the kernel the inner one)
            if T.shuffle_elect(128):
                T.mbarrier_arrive(full)
        T.copy(A, a)
        T.copy(a, O)


@T.macro
def single_waits(A: Any, O: Any, waits: bool) -> None:
    """Each thread waits by itself."""
    with T.Kernel(1, threads=128):
        a = T.alloc_shared((SIDE, SIDE), A.dtype)
        T.copy(A, a)
        if waits:
            for _ in T.Parallel(128):
                T.ptx_wait_group(0)
        T.copy(a, O)


@T.macro
def pipelined(A: Any, O: Any, more: Any) -> None:
    """``T.Pipelined`` with ``more`` parameters."""
    with T.Kernel(1, threads=128):
        a = T.alloc_shared((8, SIDE), A.dtype)
        for k in T.Pipelined(8, **more):
            T.copy(A[k * 8, 0], a)
            T.copy(a, O[k * 8, 0])


@T.macro
def persistent(A: Any, O: Any, more: Any) -> None:
    """``T.Persistent`` with ``more`` parameters."""
    with T.Kernel(4, threads=128) as bx:
        a = T.alloc_shared((8, 8), A.dtype)
        for i, j in T.Persistent([8, 8], 4, bx, **more):
            T.copy(A[i * 8, j * 8], a)
            T.copy(a, O[i * 8, j * 8])


@T.macro
def elementwise(A: Any, O: Any, hinted: bool) -> None:
    """A copy element by element, with a hint."""
    with T.Kernel(1, threads=128):
        a = T.alloc_shared((SIDE, SIDE), A.dtype)
        for i, j in T.Parallel(SIDE, SIDE, prefer_async=hinted):
            a[i, j] = A[i, j]
        T.copy(a, O)


@T.macro
def named(A: Any, O: Any, named: bool) -> None:
    """A copy with a name for schedules."""
    with T.Kernel(1, threads=128):
        if named:
            with T.ws_op("here"):
                T.copy(A, O)
        else:
            T.copy(A, O)


@T.macro
def laid_out(A: Any, O: Any, make: Any) -> None:
    """Two tiles, and what ``make`` says of them."""
    with T.Kernel(1, threads=128):
        a = T.alloc_shared((SIDE, SIDE), A.dtype)
        c = T.alloc_fragment((SIDE, SIDE), A.dtype)
        T.annotate_layout(make(A, a, c))
        T.copy(A, a)
        T.copy(a, c)
        T.copy(c, O)


@T.macro
def im2col(A: Any, O: Any, function: Any) -> None:
    """Columns of an image by ``function``, if there is one."""
    with T.Kernel(1, threads=128):
        columns = T.alloc_shared((SIDE, SIDE), A.dtype)
        if function is not None:
            function(T.view(A, (1, 8, 8, SIDE)), columns, 0, 0, 3, 1, 1, 1)
        T.copy(columns, O)


@T.macro
def sparse(A: Any, O: Any, multiply: Any) -> None:
    """``multiply`` among tiles of which the first one is compressed."""
    with T.Kernel(1, threads=128):
        a = T.alloc_shared((SIDE, SIDE // 2), A.dtype)
        e = T.alloc_shared((SIDE, SIDE // 16), "int16")
        b = T.alloc_shared((SIDE, SIDE), A.dtype)
        c = T.alloc_fragment((SIDE, SIDE), A.dtype)
        T.clear(a)
        T.clear(e)
        T.clear(b)
        T.clear(c)
        multiply(a, e, b, c)
        T.copy(c, O)
