"""Goes back from one element of a block's results through all operations that made it, element by
element.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from tileyard.ir.nodes import (
    Atomic,
    Copy,
    Fill,
    Gemm,
    Let,
    Reduce,
    SparseGemm,
    Store,
    Synchronization,
    Var,
)
from tileyard.ir.tiles import Box
from tileyard.ir.walk import expressions, walk_expr
from tileyard.look.history import Access, Flat, History, Step

MOST_VISITED = 20_000
"""Steps that one slice may have."""


@dataclass(kw_only=True, eq=False)
class Link:
    """A step of a slice: the elements that it ``wrote`` and ``read`` for the wanted one, by buffer."""

    step: Step
    wrote: dict[str, Flat] = field(default_factory=dict)
    read: dict[str, Flat] = field(default_factory=dict)


@dataclass(kw_only=True, eq=False)
class Slice:
    """The ``links`` of one element, the last first. ``inputs`` are the elements of parameters that were
    read before the block wrote them, by step and buffer; ``unwritten`` what was read where nothing was
    written.
    """

    links: list[Link] = field(default_factory=list)
    inputs: dict[int, dict[str, Flat]] = field(default_factory=dict)
    unwritten: dict[int, dict[str, Flat]] = field(default_factory=dict)
    is_whole: bool = True

    def numbers(self) -> list[int]:
        """The statements, without repetitions, the last one first."""
        return list(dict.fromkeys(link.step.number for link in self.links))


def slice_back(history: History, buffer: str, place: int) -> Slice:
    """All that made an element of an output what it is after the last step."""
    found = Slice()
    wanted: dict[int, dict[str, list[Flat]]] = {}
    queue: list[int] = []

    def demand(name: str, places: Flat, before: int, reader: int) -> None:
        left = np.unique(places)
        for step, access, part in history.last_writes(name, left, before):
            if step.index not in wanted:
                heapq.heappush(queue, -step.index)
            wanted.setdefault(step.index, {}).setdefault(access.buffer, []).append(
                history.convert(name, part, access.buffer)
            )
            left = np.setdiff1d(left, part, assume_unique=True)
        if left.size and reader >= 0:
            kind = found.inputs if name in history.parameters else found.unwritten
            kind.setdefault(reader, {})[name] = left

    demand(buffer, np.array([place]), len(history.steps), -1)
    while queue:
        index = -heapq.heappop(queue)
        if len(found.links) >= MOST_VISITED:
            found.is_whole = False
            break
        step = history.steps[index]
        link = Link(step=step)
        for name, parts in wanted.pop(index).items():
            link.wrote[name] = np.unique(np.concatenate(parts))
            for source, places in _read_by(history, step, name, link.wrote[name]):
                known = link.read.get(source)
                link.read[source] = places if known is None else np.union1d(known, places)
        found.links.append(link)
        for name, places in link.read.items():
            demand(name, places, index, index)
    return found


def _read_by(history: History, step: Step, buffer: str, places: Flat) -> Iterator[tuple[str, Flat]]:
    """What the step read to write these elements of a buffer."""
    if step.kind == "issue":  # what it wrote is undefined
        return
    stmt = step.stmt
    match stmt:
        case Fill():
            return
        case Copy():
            yield from _through_copy(history, step, places)
        case Gemm() | SparseGemm():
            yield from _through_product(history, step, stmt, places)
        case Reduce():
            yield from _through_reduce(history, step, stmt, places)
        case Store() | Atomic():
            yield from _through_lanes(history, step, buffer, places)
        case _:
            for access in step.reads:
                yield access.buffer, access.places()


def _inner(history: History, box: Box, places: Flat) -> tuple[Flat, ...]:
    """Indices within a box of elements of its buffer."""
    index = np.unravel_index(places, history.shapes[box.buffer])
    return tuple(one - start for one, start in zip(index, box.starts, strict=True))


def _outer(history: History, box: Box, inner: tuple[Flat, ...]) -> Flat:
    """The flat positions of elements at indices within a box, without those outside of the buffer."""
    shape = history.shapes[box.buffer]
    index = [one + start for one, start in zip(inner, box.starts, strict=True)]
    inside = np.ones(
        np.broadcast_shapes(*(one.shape for one in index)) if index else (1,), np.bool_
    )
    for one, size in zip(index, shape, strict=True):
        inside &= (one >= 0) & (one < size)
    if not index:
        return np.zeros(1, np.int64)
    flat = np.ravel_multi_index(
        [np.broadcast_to(one, inside.shape)[inside] for one in index], shape
    )
    return np.asarray(flat, np.int64)


def _through_copy(history: History, step: Step, places: Flat) -> Iterator[tuple[str, Flat]]:
    source, into = step.boxes
    inner = _inner(history, into, places)
    kept = [one for one, size in zip(inner, into.extents, strict=True) if size != 1]
    parts = iter(kept)
    zero = np.zeros(places.size, np.int64)
    yield (
        source.buffer,
        _outer(
            history, source, tuple(zero if size == 1 else next(parts) for size in source.extents)
        ),
    )


def _through_product(
    history: History, step: Step, stmt: Gemm | SparseGemm, places: Flat
) -> Iterator[tuple[str, Flat]]:
    *_, into = step.boxes
    *_, rows, columns = _inner(history, into, places)
    for box, is_turned, name in (
        (step.boxes[0], stmt.transpose_a, "a"),
        (step.boxes[-2], stmt.transpose_b, "b"),
    ):
        depth_last = (name == "a") != is_turned
        depth = np.arange(box.extents[-1 if depth_last else -2])
        fixed = np.unique(rows if name == "a" else columns)
        pair = (fixed[:, None], depth[None]) if depth_last else (depth[None], fixed[:, None])
        ahead = tuple(np.zeros((1, 1), np.int64) for _ in box.extents[:-2])
        yield box.buffer, _outer(history, box, (*ahead, *pair))
    if isinstance(stmt, SparseGemm):
        yield step.boxes[1].buffer, _whole(step, step.boxes[1].buffer)
    if not stmt.clear:
        yield into.buffer, places


def _whole(step: Step, buffer: str) -> Flat:
    found = [one.places() for one in step.reads if one.buffer == buffer]
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def _through_reduce(
    history: History, step: Step, stmt: Reduce, places: Flat
) -> Iterator[tuple[str, Flat]]:
    source, into = step.boxes
    inner = _inner(history, into, places)
    if len(inner) == len(source.extents):
        inner = inner[: stmt.axis] + inner[stmt.axis + 1 :]
    along = np.arange(source.extents[stmt.axis])
    index = [one[:, None] for one in inner]
    index.insert(stmt.axis, along[None])
    yield source.buffer, _outer(history, source, tuple(index))
    if not stmt.clear:
        yield into.buffer, places


def _through_lanes(
    history: History, step: Step, buffer: str, places: Flat
) -> Iterator[tuple[str, Flat]]:
    """What the lanes that wrote these elements have read for it, in their bindings as well."""
    lanes = None
    for access in step.writes:
        if access.buffer == buffer and access.lanes is not None and access.elements is not None:
            lanes = np.unique(access.lanes[np.isin(access.elements, places)])
    yield from _of_lanes(step.reads, lanes)
    if isinstance(step.stmt, Atomic):
        yield buffer, places
    names = _variables(step)
    for earlier in reversed(history.steps[max(step.index - 64, 0) : step.index]):
        if isinstance(earlier.stmt, Let) and earlier.stmt.var.name in names:
            yield from _of_lanes(earlier.reads, lanes)
            names = (names - {earlier.stmt.var.name}) | _variables(earlier)


def _variables(step: Step) -> set[str]:
    if isinstance(step.stmt, Synchronization):
        return set()
    return {
        part.name
        for expr in expressions(step.stmt)
        for part in walk_expr(expr)
        if isinstance(part, Var)
    }


def _of_lanes(reads: list[Access], lanes: Flat | None) -> Iterator[tuple[str, Flat]]:
    for access in reads:
        if lanes is None or access.lanes is None or access.elements is None:
            yield access.buffer, access.places()
        else:
            yield access.buffer, access.elements[np.isin(access.lanes, lanes)]
