"""Lowers statements that order a block's threads and asynchronous operations: barriers, groups, fences."""

from collections.abc import Sequence
from typing import Any

from tileyard.frontend.expressions import lower_expr
from tileyard.frontend.scope import Scope
from tileyard.frontend.tir_queries import call_name
from tileyard.ir.nodes import (
    Arrive,
    Buffer,
    CommitGroup,
    Const,
    Fence,
    InitBarrier,
    Load,
    Region,
    Stmt,
    Sync,
    Unit,
    WaitBarrier,
    WaitGroup,
)
from tileyard.ir.walk import convert

BARRIERS = "shared.barrier"
"""TileLang's scope for barriers."""

_COUNT = "int32"

_COMMITS: dict[str, Unit] = {
    "tirx.ptx_commit_group": "cp_async",
    "tl.tma_store_arrive": "tma_store",
    "tl.warpgroup_commit_batch": "wgmma",
}
_WAITS: dict[str, Unit] = {
    "tirx.ptx_wait_group": "cp_async",
    "tl.tma_store_wait": "tma_store",
    "tl.wait_wgmma": "wgmma",
    "tl.warpgroup_wait": "wgmma",
}


def allocate_barriers(scope: Scope, tir: Any, arrivals: Sequence[int]) -> Stmt:  # noqa: ANN401
    """Declare a row of barriers; returns the statement that initializes them."""
    scope.require(
        bool(arrivals), f"barrier {tir.name}", "without a known number of arrivals is not covered"
    )
    size = Const(len(arrivals), "int32")
    name = scope.names.take(str(tir.name))
    buffer = Buffer(name, _COUNT, (size,), "barrier", arrivals=tuple(arrivals))
    scope.bind_buffer(tir, buffer)
    scope.buffers.append(buffer)
    return InitBarrier(Region(name, (Const(0, "int32"),), (size,)))


def lower_barrier(scope: Scope, load: Any) -> Load:  # noqa: ANN401
    """The barrier at an element of a buffer of barriers."""
    found = scope.known_buffer(load.buffer) if type(load).__name__ == "BufferLoad" else None
    if found is None or found.scope != "barrier":
        scope.refuse("barrier", "that is not an element of a buffer of barriers is not covered")
    return Load(found.name, (convert(lower_expr(scope, load.indices[0]), "int32"),), _COUNT)


def lower_synchronization(
    scope: Scope,
    call: Any,  # noqa: ANN401
    threads: int,
    everyone: int,
) -> tuple[Stmt, ...] | None:
    """The statements for ``call`` by ``threads`` of a block of ``everyone``; None for other calls."""
    name = call_name(call)
    match name:
        case "tl.mbarrier_wait_parity":
            place = lower_barrier(scope, call.args[0])
            return (WaitBarrier(place, lower_expr(scope, call.args[1])),)
        case "tirx.ptx_arrive_barrier":
            return (Arrive(lower_barrier(scope, call.args[0]), threads),)
        case "tl.ptx_cp_async_barrier_noinc":
            return (Arrive(lower_barrier(scope, call.args[0]), threads, after="cp_async"),)
        case "tl.mbarrier_expect_tx" | "tirx.ptx_arrive_barrier_expect_tx":
            arrivals = 0 if name == "tl.mbarrier_expect_tx" else threads
            return _expect(scope, call, arrivals, threads)
        case _ if name in _COMMITS or name in _WAITS:
            return _group(scope, call)
        case "tl.fence_proxy_async":
            return (Fence(threads),)
        case "tirx.tvm_storage_sync" | "tl.named_barrier_arrive":
            return _sync(scope, call, threads, everyone)
        case _:
            return None


def _number(value: Any) -> int | None:  # noqa: ANN401
    return int(value.value) if type(value).__name__ == "IntImm" else None


def _expect(scope: Scope, call: Any, arrivals: int, threads: int) -> tuple[Stmt, ...]:  # noqa: ANN401
    place, size = lower_barrier(scope, call.args[0]), _number(call.args[1])
    if size is None:
        scope.give_up(call_name(call), "for a number of bytes that is not constant")
        return (Arrive(place, arrivals),)
    return (Arrive(place, arrivals, bytes=size * threads),)


def _group(scope: Scope, call: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
    """A commit of operations, or a wait for groups of them, made by all threads of a role together."""
    name = call_name(call)
    if scope.position.is_single or scope.position.is_spread:
        scope.give_up(name)
        return ()
    if name in _COMMITS:
        return (CommitGroup(_COMMITS[name]),)
    count = lower_expr(scope, call.args[0]) if len(call.args) else Const(0, "int32")
    reads_only = len(call.args) > 1 and bool(_number(call.args[1]))
    return (WaitGroup(count, _WAITS[name], reads_only),)


def _sync(scope: Scope, call: Any, threads: int, everyone: int) -> tuple[Stmt, ...]:  # noqa: ANN401
    """Arguments: a sync's memory, and for all but the block's its number and how many threads meet there."""
    waits = call_name(call) == "tirx.tvm_storage_sync"
    if waits and str(call.args[0].value) != "shared":
        return ()
    numbers = [_number(arg) for arg in list(call.args)[waits:]]
    if None in numbers:
        scope.give_up(call_name(call), "at a barrier whose number is not constant")
        return ()
    barrier, count = ([one for one in numbers if one is not None] + [0, 0])[:2]
    count = count or everyone
    return (Sync(threads, max(count, threads), barrier, waits),)
