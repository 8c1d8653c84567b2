"""How a wrong element came to be: the statements of its slice, and what parts of the inputs do to it."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tileyard.base.errors import KernelFault
from tileyard.ir.nodes import Program
from tileyard.ir.specs import tensors
from tileyard.ir.tiles import Array
from tileyard.look.history import Flat, History
from tileyard.look.quick_run import Block, QuickRun
from tileyard.look.records import Influence, Part, Visit, WayPart
from tileyard.look.slices import Link, Slice

MOST_VISITS = 12
"""Executions of a statement that are listed on the way of an element."""
MOST_INFLUENCES = 12
"""Parts of inputs whose influence is measured."""
_SAME = 1e-3
"""Relative difference of influences that rounding explains."""

Loops = tuple[tuple[str, int], ...]
Mask = NDArray[np.bool_]
Group = tuple[int, Loops, str, Flat]
"""What one execution of a statement reads of an input: number, loops, buffer, elements."""
Refer = Callable[[Sequence[Array]], Sequence[Array]]
"""The reference: from the inputs to the outputs that are written, in calling order."""


def box_of(shape: tuple[int, ...], buffer: str, places: Flat) -> Part:
    """The smallest box with these elements."""
    index = np.unravel_index(places, shape) if shape else ()
    starts = tuple(int(one.min()) for one in index)
    extents = tuple(int(one.max()) - at + 1 for one, at in zip(index, starts, strict=True))
    return Part(buffer=buffer, starts=starts, extents=extents)


def describe_way(history: History, found: Slice) -> tuple[WayPart, ...]:
    """The statements of a slice, the last one first."""
    by_number: dict[int, list[Link]] = {}
    for link in found.links:
        by_number.setdefault(link.step.number, []).append(link)
    return tuple(_describe(history, found, links) for links in by_number.values())


def _describe(history: History, found: Slice, links: list[Link]) -> WayPart:
    single = [link for link in links if sum(one.size for one in link.wrote.values()) == 1]
    listed = single[:: max(-(-len(single) // MOST_VISITS), 1)]
    if single and listed[-1] is not single[-1]:
        listed.append(single[-1])
    return WayPart(
        number=links[0].step.number,
        count=len(links),
        last=links[0].step.index,
        wrote=tuple(_gather(history, [link.wrote for link in links])),
        read=tuple(_gather(history, [link.read for link in links])),
        visits=tuple(_visit(history, link) for link in reversed(listed)),
        is_undefined=any(link.step.index in found.unwritten for link in links),
    )


def _gather(history: History, parts: Sequence[dict[str, Flat]]) -> Iterator[Part]:
    by_buffer: dict[str, list[Flat]] = {}
    for part in parts:
        for name, places in part.items():
            if places.size:
                by_buffer.setdefault(name, []).append(places)
    for name, found in by_buffer.items():
        yield box_of(history.shapes[name], name, np.concatenate(found))


def _visit(history: History, link: Link) -> Visit:
    (name,) = link.wrote
    place = int(link.wrote[name][0])
    step = link.step
    after = None
    for access in step.writes:
        if access.buffer == name and access.covers(np.array([place]))[0]:
            after = access.value(place)
    before = history.value_before(name, place, step.index) if name in link.read else None
    return Visit(
        step=step.index,
        loops=step.loops,
        before=_plain(before),
        after=_plain(after),
        is_kept=after is not None,
    )


def _plain(value: float | None) -> float | None:
    """A number that JSON has, None instead of others."""
    return value if value is not None and math.isfinite(value) else None


@dataclass(frozen=True, kw_only=True)
class Ablation:
    """Sets parts of the inputs to 0, and compares what that does to one element of the kernel's
    ``output`` and of the reference's.
    """

    program: Program
    arrays: Sequence[Array]
    refer: Refer
    block: Block
    output: str
    place: int
    begin_limit: Callable[[], Callable[[], bool]]

    def measure(self, history: History, found: Slice) -> tuple[Influence, ...]:
        """The influence of what executions of each statement read; last what the kernel does not read. As
        many as there is time for.
        """
        names = [one.buffer.name for one in tensors(self.program) if one.role != "out"]
        floats = {n for n, a in zip(names, self.arrays, strict=True) if a.dtype.kind not in "iub"}
        groups: list[Group] = []
        unread = {
            name: np.ones(array.size, np.bool_)
            for name, array in zip(names, self.arrays, strict=True)
        }
        for index, by_name in sorted(found.inputs.items()):
            step = history.steps[index]
            for name, places in by_name.items():
                if name in floats:
                    groups.append((step.number, step.loops, name, places))
                    unread[name][places] = False
        is_late = self.begin_limit()
        usual = self._values(self.arrays)
        if usual is None or is_late():
            return ()
        done = [
            self._compare(names.index(group[2]), usual, group)
            for group in _choose(groups)
            if not is_late()
        ]
        is_late = self.begin_limit()
        done += [
            self._measure_unread(names.index(name), usual[0], name, unread[name], is_late)
            for name in sorted(floats)
            if not is_late()
        ]
        return tuple(one for one in done if one is not None)

    def _compare(self, at: int, usual: tuple[float, float], group: Group) -> Influence | None:
        number, loops, name, places = group
        values = self._values(self._without(at, places))
        if values is None:
            return None
        reference, kernel = usual[0] - values[0], usual[1] - values[1]
        if not math.isfinite(reference + kernel):
            return None
        size = max(abs(reference), abs(kernel))
        least = 1e-5 * max(abs(usual[0]), abs(usual[1]))
        return Influence(
            number=number,
            loops=loops,
            part=box_of(self.arrays[at].shape, name, places),
            reference=reference,
            kernel=kernel,
            differs=not abs(reference - kernel) <= _SAME * size + least,
        )

    def _measure_unread(
        self, at: int, usual: float, name: str, unread: Mask, is_late: Callable[[], bool]
    ) -> Influence | None:
        """What the kernel does not read of an input: the box of it that has an influence on the
        reference.
        """
        shape, places = self.arrays[at].shape, np.flatnonzero(unread)
        least = 1e-5 * abs(usual)

        def influence(some: Flat) -> float:
            return usual - self._reference(self._without(at, some)) if some.size else 0.0

        total = influence(places)
        if not math.isfinite(total) or abs(total) <= least:
            return None
        for axis in range(len(shape)):
            for sign in (1, -1):  # the last start, and the first end, with all that matters
                side = sign * np.unravel_index(places, shape)[axis]
                low, high = int(side.min()), int(side.max())
                while low < high and not is_late():
                    middle = (low + high) // 2
                    if abs(influence(places[side <= middle])) > least:
                        high = middle
                    else:
                        low = middle + 1
                if low == high:
                    places = places[side >= low]
        return Influence(
            number=-1,
            loops=(),
            part=box_of(shape, name, places),
            reference=total,
            kernel=0.0,
            differs=True,
        )

    def _without(self, at: int, places: Flat) -> list[Array]:
        """The inputs with 0 at these places of one."""
        changed = np.array(self.arrays[at])
        changed.reshape(-1)[places] = 0
        return [*self.arrays[:at], changed, *self.arrays[at + 1 :]]

    def _values(self, arrays: Sequence[Array]) -> tuple[float, float] | None:
        """The element in the reference's and in the kernel's result; None if the kernel fails."""
        run = QuickRun(self.program, arrays, self.begin_limit())
        try:
            run.run_block(self.block)
        except KernelFault:
            return None
        return self._reference(arrays), run.value(self.output, self.place)

    def _reference(self, arrays: Sequence[Array]) -> float:
        names = [one.buffer.name for one in tensors(self.program) if one.role != "in"]
        result = self.refer(arrays)[names.index(self.output)]
        return float(np.asarray(result).reshape(-1)[self.place])


def _choose(groups: list[Group]) -> list[Group]:
    """Some of what was read, of each statement and buffer evenly, with the first and the last one."""
    by_number: dict[tuple[int, str], list[Group]] = {}
    for group in groups:
        by_number.setdefault((group[0], group[2]), []).append(group)
    most = max(MOST_INFLUENCES // max(len(by_number), 1), 2)
    chosen: list[Group] = []
    for found in by_number.values():
        some = np.linspace(0, len(found) - 1, min(most, len(found))).astype(int)
        chosen += [found[at] for at in some]
    return chosen
