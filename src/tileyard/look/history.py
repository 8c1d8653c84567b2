"""The history of one block: its steps, what each read and wrote, and who wrote an element last."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tileyard.ir.clocks import Places
from tileyard.ir.nodes import Stmt, Synchronization
from tileyard.ir.tiles import Array, Box
from tileyard.look.records import Kind, State

Flat = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Access:
    """Elements of ``buffer`` that a step reads, or writes with ``content``: a box, or ``elements`` by their
    flat positions, each by one of the ``lanes``. ``content`` is None for a read, and if it was not kept.
    """

    buffer: str
    shape: tuple[int, ...]
    starts: tuple[int, ...] = ()
    extents: tuple[int, ...] = ()
    elements: Flat | None = None
    lanes: Flat | None = None
    content: Array | None = None

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(np.prod(self.extents)) if self.elements is None else self.elements.size

    def covers(self, places: Flat) -> NDArray[np.bool_]:
        """Which elements of the buffer are among these."""
        if self.elements is not None:
            return np.isin(places, self.elements)
        mask = np.ones(places.shape, np.bool_)
        index = np.unravel_index(places, self.shape) if self.shape else ()
        for at, start, size in zip(index, self.starts, self.extents, strict=True):
            mask &= (at >= start) & (at < start + size)
        return mask

    def value(self, place: int) -> float | None:
        """The value written to an element that is one of these, None if it was not kept."""
        if self.content is None:
            return None
        if self.elements is not None:
            return float(self.content[np.flatnonzero(self.elements == place)[-1]])
        index = np.unravel_index(place, self.shape) if self.shape else ()
        inner = (int(at) - start for at, start in zip(index, self.starts, strict=True))
        return float(self.content[tuple(inner)])

    def places(self) -> Flat:
        """The flat positions of all elements."""
        if self.elements is not None:
            return self.elements
        ranges = [
            np.arange(start, start + size)
            for start, size in zip(self.starts, self.extents, strict=True)
        ]
        if not ranges:
            return np.zeros(1, np.int64)
        return np.ravel_multi_index(np.ix_(*ranges), self.shape).reshape(-1)

    def bounds(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The smallest box with all elements: starts and extents."""
        if self.elements is None or not self.elements.size:
            return self.starts, self.extents
        index = np.unravel_index(self.elements, self.shape)
        starts = tuple(int(one.min()) for one in index)
        return starts, tuple(int(one.max()) - at + 1 for one, at in zip(index, starts, strict=True))


def box_access(
    buffer: str, shape: tuple[int, ...], where: Places, content: Array | None = None
) -> Access:
    """The access to a box, given as NumPy indexes it."""
    starts, extents = [], []
    for at, size in zip(where, shape, strict=True):
        if isinstance(at, slice):
            first, end, _ = at.indices(size)
            starts.append(first)
            extents.append(max(end - first, 0))
        else:
            starts.append(int(at))  # an array of them comes only from lanes
            extents.append(1)
    kept = None if content is None else np.array(content).reshape(extents)
    return Access(
        buffer=buffer, shape=shape, starts=tuple(starts), extents=tuple(extents), content=kept
    )


@dataclass(kw_only=True, slots=True, eq=False)
class Step:
    """What a role did at one time with the statement ``number``. ``boxes`` are the regions of a tile
    operation, beyond edges as well. A "land" was issued by step ``issued``. ``is_kept``: it is shown.
    """

    index: int
    number: int
    stmt: Stmt | Synchronization
    kind: Kind
    loops: tuple[tuple[str, int], ...]
    role: int
    unit: str = ""
    text: str = ""
    boxes: tuple[Box, ...] = ()
    reads: list[Access] = field(default_factory=list)
    writes: list[Access] = field(default_factory=list)
    issued: int = -1
    is_kept: bool = True
    state: State = field(default_factory=State)


class History:
    """The steps of a block, with the ``shapes`` of all buffers, the given content of ``parameters``, and
    the ``owners`` of storage, with the bytes of an element: views share that of another buffer.
    """

    def __init__(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        parameters: Mapping[str, Array],
        owners: Mapping[str, tuple[str, int]],
    ) -> None:
        self.steps: list[Step] = []
        self.shapes = shapes
        self.parameters = parameters
        self._owners = owners
        self._writes: dict[str, list[tuple[Step, Access]]] = {}

    def _owner(self, buffer: str) -> tuple[str, int]:
        return self._owners.get(buffer, (buffer, 1))

    def add(self, step: Step) -> None:
        """Add the next step, once all that it writes is known."""
        self.steps.append(step)
        for access in step.writes:
            self._writes.setdefault(self._owner(access.buffer)[0], []).append((step, access))

    def convert(self, buffer: str, places: Flat, to: str) -> Flat:
        """The positions in a buffer ``to`` of the same storage."""
        if buffer == to:
            return places
        return places * self._owner(buffer)[1] // self._owner(to)[1]

    def written(self, buffer: str) -> list[tuple[Step, Access]]:
        """The writes to a buffer's storage, the first one first."""
        return self._writes.get(self._owner(buffer)[0], [])

    def last_writes(
        self, buffer: str, places: Flat, before: int
    ) -> Iterator[tuple[Step, Access, Flat]]:
        """The last writes of elements before the step with this index, each with its elements."""
        known = self.written(buffer)
        left = places
        for step, access in reversed(known[: bisect_left(known, before, key=_index)]):
            if not left.size:
                return
            mask = access.covers(self.convert(buffer, left, access.buffer))
            if mask.any():
                yield step, access, left[mask]
                left = left[~mask]

    def value_before(self, buffer: str, place: int, before: int) -> float | None:
        """An element's value before a step; None if it was not kept, NaN if nothing has written it."""
        for _, access, (found,) in self.last_writes(buffer, np.array([place]), before):
            return access.value(int(self.convert(buffer, found, access.buffer)))
        if buffer in self.parameters:
            return float(self.parameters[buffer].reshape(-1)[place])
        return float("nan")


def _index(written: tuple[Step, Access]) -> int:
    return written[0].index
