"""Finds the memory that TIR reads and writes, and the branches between which TileLang puts a barrier."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tileyard.frontend.scope import key_of
from tileyard.frontend.tir_queries import call_name, calls_of, nodes_of

READS, WRITES = 1, 2

_POINTERS = {"tl.access_ptr": 2, "tl.region": 1}
"""Calls that state how an element or box is accessed, with the position of the access mask."""

_SYNCS = frozenset(
    {"tirx.tvm_storage_sync", "tl.named_barrier_arrive", "tirx.ptx_wait_group", "tl.sync_grid"}
)

Interval = tuple[int, int] | None
"""Start and end, the end excluded; None if not constant."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Access:
    """An access to a buffer's ``data``: ``mask`` is its kind, ``box`` its place, as far as known."""

    data: Any
    mask: int
    box: tuple[Interval, ...] = ()

    @property
    def key(self) -> object:
        """The identity of the memory."""
        return key_of(self.data)


def accesses_of(body: Any) -> list[Access]:  # noqa: ANN401 (TVM's nodes are untyped)
    """All accesses below ``body``; taking an address without a stated purpose counts as read and write."""
    found: list[Access] = []
    loads: dict[object, Access] = {}
    masked: set[object] = set()
    for node in nodes_of(body):
        called = call_name(node)
        match type(node).__name__:
            case "BufferStore":
                found.append(Access(data=node.buffer.data, mask=WRITES, box=_box(node)))
            case "BufferLoad":
                loads[key_of(node)] = Access(data=node.buffer.data, mask=READS, box=_box(node))
            case "Call" if called == "tirx.tvm_access_ptr":
                found.append(Access(data=node.args[1], mask=_mask_of(node, 4)))
            case "Call" if called in ("tirx.address_of", *_POINTERS) and len(node.args):
                target = node.args[0]
                masked.add(key_of(target))
                if hasattr(target, "buffer"):
                    position = _POINTERS.get(called, len(node.args))
                    extents = list(node.args)[position + 1 :] if called == "tl.region" else ()
                    mask, box = _mask_of(node, position), _box(target, extents)
                    found.append(Access(data=target.buffer.data, mask=mask, box=box))
            case _:
                pass
    return found + [access for load, access in loads.items() if load not in masked]


def _mask_of(call: Any, position: int) -> int:  # noqa: ANN401
    """The access mask at ``position``; both read and write if none is stated."""
    if position < len(call.args) and type(call.args[position]).__name__ == "IntImm":
        return int(call.args[position].value)
    return READS | WRITES


def _box(place: Any, extents: Sequence[Any] = ()) -> tuple[Interval, ...]:  # noqa: ANN401
    sizes = extents or [None] * len(place.indices)
    return tuple(map(_interval, place.indices, sizes))


def _interval(start: Any, size: Any) -> Interval:  # noqa: ANN401
    parts = [start] if size is None else [start, size]
    if any(type(part).__name__ != "IntImm" for part in parts):
        return None
    return int(start.value), int(start.value) + (1 if size is None else int(size.value))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Side:
    threads: frozenset[int]
    accesses: tuple[Access, ...]

    def of(self, mask: int) -> list[Access]:
        return [one for one in self.accesses if one.mask & mask]


def find_barriers(
    stmts: Sequence[Any], where: Callable[[Any], frozenset[int]], everyone: frozenset[int]
) -> set[int]:
    """The positions of branches on the thread before which TileLang's ThreadSync certainly puts a block's
    barrier: one branch writes a tile that another reads, and different threads take the two. Branches that
    contain barriers are left out. ``where`` returns the threads for which a condition holds.
    """
    found: set[int] = set()
    pending: list[_Side] = []
    for position, stmt in enumerate(stmts):
        sides = list(_sides(stmt, where, everyone))
        if any(_has_own_barriers(stmt, side) for side in sides):
            pending = []
            continue
        if any(_conflict(before, side) for before in pending for side in sides):
            found.add(position)
            pending = []
        pending += sides
    return found


def _sides(
    stmt: Any,  # noqa: ANN401
    where: Callable[[Any], frozenset[int]],
    everyone: frozenset[int],
) -> Iterator[_Side]:
    bodies = [(stmt, everyone)]
    if type(stmt).__name__ == "IfThenElse":
        chosen = where(stmt.condition)
        bodies = [(stmt.then_case, chosen), (stmt.else_case, everyone - chosen)]
    for body, threads in bodies:
        if body is not None:
            accesses = (one for one in accesses_of(body) if _is_shared(one.data))
            yield _Side(threads=threads, accesses=tuple(accesses))


def _is_shared(data: Any) -> bool:  # noqa: ANN401
    scope = str(getattr(data.type_annotation, "storage_scope", ""))
    return scope in ("shared", "shared.dyn")


def _has_own_barriers(stmt: Any, side: _Side) -> bool:  # noqa: ANN401
    """Whether the branch has a barrier, or may get one; or atomics, which need none."""
    calls = calls_of(stmt)
    written = {one.key for one in side.of(WRITES)}
    return (
        not _SYNCS.isdisjoint(calls)
        or any("atomic" in name for name in calls)
        or any(one.key in written for one in side.of(READS))
    )


def _conflict(before: _Side, after: _Side) -> bool:
    return before.threads.isdisjoint(after.threads) and any(
        one.key == other.key and not _is_apart(one, other)
        for first, second in ((WRITES, READS), (READS, WRITES))
        for one in before.of(first)
        for other in after.of(second)
    )


def _is_apart(one: Access, other: Access) -> bool:
    """Whether constant indices prove that the two do not overlap."""
    return any(
        mine is not None and theirs is not None and (mine[1] <= theirs[0] or theirs[1] <= mine[0])
        for mine, theirs in zip(one.box, other.box, strict=False)
    )
