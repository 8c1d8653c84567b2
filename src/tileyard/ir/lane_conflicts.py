"""Finds accesses of lanes to one element, one of them a write: a GPU does them in no fixed order.
Bytes are compared, not names: views share their owner's storage.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tileyard.ir.lane_meanings import commutes
from tileyard.ir.nodes import Atomic, For, If, Let, Store

Array = NDArray[Any]
Integers = NDArray[np.int64]
Loops = tuple[tuple[str, int], ...]
Accessor = Let | Store | Atomic | If | For


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Access:
    """All accesses of one statement to a buffer at one time: lane ``lanes[n]`` touched element
    ``elements[n]``. ``elements`` are row-major positions inside the buffer. ``values`` are what was
    written, None for a read and an atomic update, which is a write, too; ``before`` is the old
    content. ``inner`` are the values of the nest's serial loops.
    """

    stmt: Accessor
    buffer: str
    elements: Integers
    lanes: Integers
    is_write: bool
    values: Array | None = None
    before: Array | None = None
    inner: Loops = ()

    @property
    def is_update(self) -> bool:
        """Whether this is an atomic update, which conflicts with no other update."""
        return self.is_write and self.values is None


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """One of two conflicting accesses. ``loops`` are the values of the nest's loops, outermost first."""

    stmt: Accessor
    is_write: bool
    lane: int
    loops: Loops


@dataclass(frozen=True, kw_only=True, slots=True)
class Conflict:
    """Two lanes touch the element of ``buffer`` at ``indices``, and the first of them writes it. It
    is benign if all lanes write the same bits and no lane reads what another one writes.
    """

    buffer: str
    indices: tuple[int, ...]
    first: Side
    second: Side
    is_benign: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """The first conflict of each pair of statements, and whether the order of atomic updates matters."""

    conflicts: tuple[Conflict, ...] = ()
    is_ordered: bool = False


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Events:
    """All accesses of one kind by one statement to one storage, in units that all of its views share.
    ``bits`` are those written, empty except for stores; ``source`` is the access of each unit.
    """

    accesses: tuple[Access, ...]
    units: Integers
    lanes: Integers
    bits: Array
    source: Integers
    width: int

    @property
    def head(self) -> Access:
        return self.accesses[0]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Search:
    arrays: Mapping[str, Array]
    loops: Callable[[int], Loops]


def find_conflicts(
    accesses: Sequence[Access], arrays: Mapping[str, Array], loops: Callable[[int], Loops]
) -> Found:
    """The conflicts among ``accesses`` to ``arrays``, by name; ``loops`` gives a lane's loop values."""
    search = _Search(arrays=arrays, loops=loops)
    shared: dict[int, list[Access]] = {}
    for access in accesses:
        shared.setdefault(address(arrays[access.buffer]), []).append(access)
    found = [
        _explain(group, search)
        for group in shared.values()
        if any(access.is_write for access in group) and _is_shared(group, arrays)
    ]
    return Found(
        conflicts=tuple(conflict for part in found for conflict in part.conflicts),
        is_ordered=any(part.is_ordered for part in found),
    )


def address(array: Array) -> int:
    """The address of an array: the same for views of another shape or dtype."""
    place: int = array.__array_interface__["data"][0]
    return place


def _units(access: Access, arrays: Mapping[str, Array], width: int) -> tuple[Integers, Integers]:
    """The units of ``width`` bytes that are touched, and the lanes that touch them."""
    count = arrays[access.buffer].itemsize // width
    if count == 1:
        return access.elements, access.lanes
    units = access.elements[:, None] * count + np.arange(count)
    return units.reshape(-1), np.repeat(access.lanes, count)


def _is_shared(group: list[Access], arrays: Mapping[str, Array]) -> bool:
    """Whether two lanes touch an element that is written: fast, and exact."""
    width = min(arrays[access.buffer].itemsize for access in group)
    units = [(access.is_write, *_units(access, arrays, width)) for access in group]
    low = min(int(at.min()) for is_write, at, _ in units if is_write)
    high = max(int(at.max()) for is_write, at, _ in units if is_write)
    owner = np.zeros(high - low + 1, np.int64)  # the lane that writes, counted from 1
    for is_write, at, lanes in units:
        if is_write:
            owner[at - low] = lanes + 1
    for is_write, at, lanes in units:
        if not is_write:
            is_inside = (at >= low) & (at <= high)
            if not is_inside.all():
                at, lanes = at[is_inside], lanes[is_inside]  # noqa: PLW2901 (the rest is never written)
        known = owner[at - low]
        if np.any((known != lanes + 1) & (known != 0)):
            return True
    return False


def _gather(group: list[Access], arrays: Mapping[str, Array]) -> list[_Events]:
    width = min(arrays[access.buffer].itemsize for access in group)
    alike: dict[tuple[int, str, bool], list[Access]] = {}
    for access in group:
        alike.setdefault((id(access.stmt), access.buffer, access.is_write), []).append(access)
    found = []
    for accesses in alike.values():
        units = [_units(access, arrays, width) for access in accesses]
        values = [access.values for access in accesses if access.values is not None]
        bits = [np.ascontiguousarray(part).view(f"u{width}") for part in values]
        found.append(
            _Events(
                accesses=tuple(accesses),
                units=np.concatenate([at for at, _ in units]),
                lanes=np.concatenate([lanes for _, lanes in units]),
                bits=np.concatenate(bits) if bits else np.empty(0, np.uint8),
                source=np.repeat(np.arange(len(units)), [len(at) for at, _ in units]),
                width=width,
            )
        )
    return found


def _explain(group: list[Access], search: _Search) -> Found:
    """Every pair of statements of which two lanes touch the same element, and one of them writes it."""
    events = _gather(group, search.arrays)
    low = min(int(part.units.min()) for part in events)
    size = max(int(part.units.max()) for part in events) - low + 1
    conflicts = []
    is_ordered = False
    for place, writer in enumerate(events):
        if not writer.head.is_write:
            continue
        least, most = np.full(size, np.iinfo(np.int64).max), np.full(size, -1, np.int64)
        np.minimum.at(least, writer.units - low, writer.lanes)
        np.maximum.at(most, writer.units - low, writer.lanes)
        for other_place, other in enumerate(events):
            if other.head.is_write and other_place < place:
                continue  # this pair has been examined from the other side
            at = other.units - low
            hits = np.flatnonzero(
                (most[at] >= 0) & ((least[at] != other.lanes) | (most[at] != other.lanes))
            )
            if not len(hits):
                continue
            if writer.head.is_update and other.head.is_update:
                is_ordered |= _is_ordered(writer, other, search.arrays)
            else:
                conflicts.append(_conflict(writer, other, hits, search))
    return Found(conflicts=tuple(conflicts), is_ordered=is_ordered)


def _is_ordered(left: _Events, right: _Events, arrays: Mapping[str, Array]) -> bool:
    """Whether the order in which lanes update an element matters; in one access it is the order of lanes."""
    if left is right and len(left.accesses) == 1:
        return False
    one, two = left.head, right.head
    kinds = {access.stmt.kind for access in (one, two) if isinstance(access.stmt, Atomic)}
    is_same = len(kinds) == 1 and arrays[one.buffer].dtype == arrays[two.buffer].dtype
    return not is_same or not all(commutes(kind, arrays[one.buffer].dtype) for kind in kinds)


def _conflict(writer: _Events, other: _Events, hits: Integers, search: _Search) -> Conflict:
    """The conflict at the first of ``hits``, positions in ``other``; at the first harmful one, if any."""
    harmful = hits
    if len(writer.bits) and len(other.bits):
        harmful = hits[_differs(writer, other, hits)]
    chosen = int(harmful[0] if len(harmful) else hits[0])
    unit, lane = other.units[chosen], other.lanes[chosen]
    against = np.flatnonzero((writer.units == unit) & (writer.lanes != lane))
    if len(writer.bits) and len(other.bits):
        worst = against[writer.bits[against] != other.bits[chosen]]
        against = worst if len(worst) else against
    array = search.arrays[other.head.buffer]
    element = int(unit) * other.width // array.itemsize
    return Conflict(
        buffer=other.head.buffer,
        indices=tuple(int(i) for i in np.unravel_index(element, array.shape)),
        first=_side(writer, int(against[0]), search),
        second=_side(other, chosen, search),
        is_benign=not len(harmful),
    )


def _differs(writer: _Events, other: _Events, hits: Integers) -> NDArray[np.bool_]:
    """The hits at which some value that ``writer`` writes differs from what ``other`` writes there."""
    low = int(writer.units.min())
    size = int(writer.units.max()) - low + 1
    least, most = np.full(size, np.iinfo(np.uint64).max, np.uint64), np.zeros(size, np.uint64)
    bits = writer.bits.astype(np.uint64)
    np.minimum.at(least, writer.units - low, bits)
    np.maximum.at(most, writer.units - low, bits)
    at, own = other.units[hits] - low, other.bits[hits].astype(np.uint64)
    differs: NDArray[np.bool_] = (least[at] != own) | (most[at] != own)
    return differs


def _side(events: _Events, place: int, search: _Search) -> Side:
    access = events.accesses[int(events.source[place])]
    lane = int(events.lanes[place])
    return Side(
        stmt=access.stmt,
        is_write=access.is_write,
        lane=lane,
        loops=(*search.loops(lane), *access.inner),
    )
