"""Groups the wrong elements of a block by what they have in common: the statement that wrote them last, the
place in the output, and the statements that took part.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from tileyard.ir.tiles import Array
from tileyard.look.history import Flat, History
from tileyard.look.slices import slice_back
from tileyard.look.ways import box_of

MOST_REGIONS = 4
"""Regions into which the elements of one statement are divided."""
SAMPLES = 5
"""Elements of a region whose statements are compared."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Wrong elements of an output at these ``places``; the first one is followed. ``numbers`` are the
    statements that took part in it. Of a group that ``is_sampled`` others of its region are in another group.
    """

    output: str
    places: Flat
    numbers: tuple[int, ...] = ()
    is_sampled: bool = False


def group_wrong(
    history: History, output: str, places: Flat, values: Array, is_late: Callable[[], bool]
) -> list[Group]:
    """The groups of the wrong elements of an output with these ``values``: that of the first element first,
    then the larger ones. Samples have one element once it ``is_late``.
    """
    writers = np.full(places.size, -1, np.int64)
    for step, _, part in history.last_writes(output, places, len(history.steps)):
        writers[np.searchsorted(places, part)] = step.number
    with np.errstate(all="ignore"):
        kinds = 2 * writers + np.isfinite(values[places].astype(np.float64))
    groups = [
        group
        for kind in np.unique(kinds)
        for region in _regions(history.shapes[output], places[kinds == kind])
        for group in _by_statements(history, Group(output=output, places=region), is_late)
    ]
    first = int(places[0])
    return sorted(groups, key=lambda one: (first not in one.places[:1], -one.places.size))


def _regions(shape: tuple[int, ...], places: Flat) -> Iterator[Flat]:
    """The places by rows with the same wrong columns, or by columns with the same wrong rows; all together if
    that makes too many.
    """
    columns = shape[-1] if shape else 1
    row, column = places // columns, places % columns
    for outer, inner in ((row, column), (column, row)):
        lines, at = np.unique(outer, return_inverse=True)
        marks = np.zeros((lines.size, int(inner.max()) + 1), np.bool_)
        marks[at, inner] = True
        patterns, of_line = np.unique(marks, axis=0, return_inverse=True)
        if len(patterns) <= MOST_REGIONS:
            labels = of_line.reshape(-1)[at]
            yield from (places[labels == label] for label in range(len(patterns)))
            return
    yield places


def _by_statements(history: History, group: Group, is_late: Callable[[], bool]) -> Iterator[Group]:
    """The group, or one for each element of a sample for which other statements took part."""
    spread = np.unique(np.linspace(0, group.places.size - 1, SAMPLES).astype(np.int64))
    found: dict[frozenset[int], Group] = {}
    for at in spread.tolist():
        if found and is_late():
            break
        numbers = slice_back(history, group.output, int(group.places[at])).numbers()
        one = replace(group, places=np.roll(group.places, -at), numbers=tuple(numbers))
        found.setdefault(frozenset(numbers), one)
    yield from (replace(one, is_sampled=len(found) > 1) for one in found.values())


def describe_group(history: History, group: Group) -> str:
    """How many elements it has, and where."""
    box = box_of(history.shapes[group.output], group.output, group.places)
    where = ", ".join(
        str(at) if size == 1 else f"{at}:{at + size}"
        for at, size in zip(box.starts, box.extents, strict=True)
    )
    count = group.places.size
    is_full = count == int(np.prod(box.extents))
    some = "some of " if group.is_sampled else ""
    return f"{some}{count:,} in {'' if is_full else 'a part of '}{group.output}[{where}]"
