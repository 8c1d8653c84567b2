"""Storage, control, synchronization and what says how a kernel is run. Imports TileLang: import this late."""

from collections.abc import Iterator
from typing import Any

import tilelang.language as T
from tests.differential.language.templates import (
    SIDE,
    Operation,
    allocating,
    block,
    function,
    operation,
    pointers,
    strided,
    tile,
)


@T.macro
def _over(A: Any, O: Any, tile: Any) -> None:
    """From ``A`` over a tile to ``O``."""
    T.copy(A, tile)
    T.copy(tile, O)


@T.macro
def _var(A: Any, O: Any) -> None:
    x = T.alloc_var(A.dtype)
    x = A[0, 0]
    O[0, 0] = x


@T.macro
def _local(A: Any, O: Any) -> None:
    x = T.alloc_local((4,), A.dtype)
    x[0] = A[0, 0]
    O[0, 0] = x[0]


@T.macro
def _viewed(A: Any, O: Any, view: Any) -> None:
    a = T.alloc_shared((SIDE, SIDE), A.dtype)
    T.copy(A, a)
    flat = view(a, (SIDE * SIDE,))
    for i, j in T.Parallel(SIDE, SIDE):
        O[i, j] = flat[i * SIDE + j]


@T.macro
def _view_as_bytes(A: Any, O: Any) -> None:
    a = T.alloc_shared((SIDE, SIDE), A.dtype)
    T.copy(A, a)
    flat = T.view(a, (SIDE * SIDE * A.dtype.bytes,), "uint8")
    for i, j in T.Parallel(SIDE, SIDE):
        O[i, j] = T.cast(flat[i * SIDE + j], A.dtype)


@T.macro
def _in_global(A: Any, O: Any) -> None:
    middle = T.alloc_global((SIDE, SIDE), A.dtype)
    with T.Kernel(1, threads=128):
        T.copy(A, middle)
    with T.Kernel(1, threads=128):
        T.copy(middle, O)


def storage() -> Iterator[Operation]:
    """Where numbers are kept, and how they are looked at."""
    for name in ("alloc_shared", "alloc_fragment"):
        allocate = getattr(T, name)
        yield operation(
            name,
            block,
            lambda A, O, allocate=allocate: _over(A, O, allocate((SIDE, SIDE), A.dtype)),
        )
    yield operation("alloc_local", block, lambda A, O: _local(A, O))
    yield operation("alloc_var", block, lambda A, O: _var(A, O))
    yield operation("alloc_global", function, lambda A, O: _in_global(A, O))
    yield operation("view", block, lambda A, O: _viewed(A, O, T.view))
    yield operation("view, as bytes", block, lambda A, O: _view_as_bytes(A, O))
    yield operation("reshape", block, lambda A, O: _viewed(A, O, T.reshape))
    yield operation("StridedTensor", strided, T.copy, names="StridedTensor")
    yield operation("empty", allocating, T.empty)
    yield operation("make_tensor", pointers, T.make_tensor)
    yield operation("make_tensor_from_addr", pointers, T.make_tensor_from_addr, said="handle")


@T.macro
def _loop(A: Any, O: Any, loop: Any) -> None:
    for i in loop(SIDE):
        O[i, 0] = A[i, 0]


@T.macro
def _nest(A: Any, O: Any, loop: Any) -> None:
    for i, j in loop(SIDE, SIDE):
        O[i, j] = A[i, j]


@T.macro
def _persistent(A: Any, O: Any) -> None:
    for i, j in T.Persistent([8, 8], 4, 0):
        T.copy(A[i * 8 : i * 8 + 8, j * 8 : j * 8 + 8], O[i * 8 : i * 8 + 8, j * 8 : j * 8 + 8])


@T.macro
def _scheduled(A: Any, O: Any) -> None:
    tile = T.PersistentTileScheduler(8, 8, num_workers=4)
    tile.init(0)
    while tile.valid():
        O[tile.m_idx, tile.n_idx] = A[tile.m_idx, tile.n_idx]
        tile.next_tile()


@T.macro
def _leave(A: Any, O: Any, leave: Any) -> None:
    for i in T.serial(SIDE):
        if A[i, 0] == A[i, 1]:
            leave()
        O[i, 0] = A[i, 0]


@T.macro
def _while(A: Any, O: Any) -> None:
    i = T.alloc_var("int32")
    i = 0
    while i < SIDE:
        O[i, 0] = A[i, 0]
        i = i + 1


@T.macro
def _roles(A: Any, O: Any, role: Any) -> None:
    a = T.alloc_shared((SIDE, SIDE), A.dtype)
    full = T.alloc_barrier(arrive_count=128)
    with role(0):
        T.copy(A, a)
        T.barrier_arrive(full)
    with role(1):
        T.barrier_wait(full, 0)
        T.copy(a, O)


@T.macro
def _in_roles(A: Any, O: Any, role: Any) -> None:
    with T.Kernel(1, threads=256):
        _roles(A, O, role)


@T.macro
def _parity(A: Any, O: Any) -> None:
    with T.Kernel(1, threads=256):
        a = T.alloc_shared((SIDE, SIDE), A.dtype)
        full = T.alloc_barrier(arrive_count=128)
        with T.ws(0):
            T.copy(A, a)
            T.mbarrier_arrive(full)
        with T.ws(1):
            T.mbarrier_wait_parity(full, 0)
            T.copy(a, O)


@T.macro
def _launch(A: Any, O: Any) -> None:
    with T.Kernel(8, 8, threads=128) as (bx, by):
        O[bx, by] = A[by, bx]


@T.macro
def _bindings(A: Any, O: Any, find: Any) -> None:
    O[0, 0] = A[0, find()]


@T.macro
def _by_thread(A: Any, O: Any, find: Any) -> None:
    O[0, find()] = A[0, find()]


@T.macro
def _asserted(A: Any, O: Any) -> None:
    for i in T.serial(SIDE):
        T.device_assert(A[i, 0] == A[i, 0], "a number")


@T.macro
def _assumed(A: Any, O: Any) -> None:
    for i in T.serial(SIDE):
        T.assume(i < SIDE)
        O[i, 0] = A[i, 0]


@T.macro
def _grid_of_loops(A: Any, O: Any) -> None:
    for i, j in T.grid(SIDE, SIDE):
        O[i, j] = A[i, j]


@T.macro
def _bound(A: Any, O: Any) -> None:
    for i in T.thread_binding(SIDE, "threadIdx.x"):
        O[i, 0] = A[i, 0]


def control() -> Iterator[Operation]:
    """Launches, loops, branches and roles."""
    yield operation("Kernel", function, lambda A, O: _launch(A, O))
    for name in ("serial", "Serial", "unroll", "Unroll", "vectorized", "Vectorized", "parallel"):
        loop = getattr(T, name)
        yield operation(name, block, lambda A, O, loop=loop: _loop(A, O, loop), is_typed=False)
    yield operation("Pipelined", block, lambda A, O: _loop(A, O, T.Pipelined), is_typed=False)
    yield operation("Parallel", block, lambda A, O: _nest(A, O, T.Parallel), is_typed=False)
    yield operation("grid", block, lambda A, O: _grid_of_loops(A, O), is_typed=False)
    yield operation("Persistent", block, lambda A, O: _persistent(A, O), is_typed=False)
    yield operation(
        "PersistentTileScheduler",
        block,
        lambda A, O: _scheduled(A, O),
        is_typed=False,
        names="PersistentTileScheduler BaseTileScheduler",
    )
    for name in ("loop_break", "break_loop", "continue_loop"):
        leave = getattr(T, name)
        yield operation(name, block, lambda A, O, leave=leave: _leave(A, O, leave), is_typed=False)
    yield operation("While", block, lambda A, O: _while(A, O), is_typed=False, names="-")
    for name in ("ws", "WarpSpecialize"):
        role = getattr(T, name)
        yield operation(
            f"{name}, with alloc_barrier, barrier_arrive and barrier_wait",
            function,
            lambda A, O, role=role: _in_roles(A, O, role),
            is_typed=False,
            names=f"{name} alloc_barrier barrier_arrive barrier_wait",
        )
    yield operation(
        "mbarrier_arrive and mbarrier_wait_parity",
        function,
        lambda A, O: _parity(A, O),
        is_typed=False,
        names="mbarrier_arrive mbarrier_wait_parity",
    )
    yield operation("device_assert", block, lambda A, O: _asserted(A, O))
    yield operation("print, an element", block, lambda A, O: T.print(A[0, 0], "x"), names="print")
    yield operation("print, a tile", tile, lambda a, c: T.print(a, "x"), names="print")
    yield operation("assume", block, lambda A, O: _assumed(A, O), is_typed=False)
    yield operation(
        "thread_binding", block, lambda A, O: _bound(A, O), is_typed=False, said="threadIdx"
    )
    for (
        name
    ) in """get_block_binding get_block_extent get_thread_extent get_cluster_id get_cluster_extent
        get_cluster_size""".split():
        find = getattr(T, name)
        yield operation(name, block, lambda A, O, find=find: _bindings(A, O, find), is_typed=False)
    yield operation(
        "get_thread_binding, in an index",
        block,
        lambda A, O: _by_thread(A, O, T.get_thread_binding),
        is_typed=False,
        said="thread index",
    )
