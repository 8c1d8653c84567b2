"""Decides whether a kernel is checked for every trip count, because its loops return to an earlier state.

Programs of one kernel that differ in trip counts are compared. Nothing that decides may change from period
to period but comparisons that change once: in the first iterations, or at a distance from the last. Then a
longer run is a checked one with more periods in its middle. docs/design/async.md has the argument.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tileyard.base.model import Record
from tileyard.ir.asynchronous import Operation
from tileyard.ir.clocks import Event, View
from tileyard.ir.nodes import Expr, Var
from tileyard.ir.trace import TracedRun
from tileyard.sync.changes import Changes, Comparison, Differ, Form, find_side
from tileyard.sync.control import Control

LONGEST = 32
"""Most iterations of a period."""
_State = tuple[int, int, bytes]


class Head(Record):
    """A role begins iteration ``index`` of ``loop``; roles are ``inside`` loops, in ``low`` to ``high``."""

    loop: int
    index: int
    low: int
    high: int
    inside: frozenset[int]
    state: bytes


class HeadRun(TracedRun):
    """A late run; with ``control``, ``heads`` has each block's heads of the outermost loops that wait."""

    control: Control | None = None

    def grid(self) -> None:
        """Run all chosen blocks."""
        self.heads: list[list[Head]] = []
        super().grid()

    def _block(self) -> None:
        self.heads.append([])
        super()._block()

    def _iterate(self, var: Var, start: Expr, extent: Expr) -> Iterator[None]:
        control = self.control
        loop = None if control is None else control.loops.get(var.name)
        for _ in super()._iterate(var, start, extent):
            if control is not None and loop is not None:
                head = self._head(loop, int(self._values[var.name]), control)
                self.heads[-1] += [head] if head is not None else []
            yield

    def _head(self, loop: int, index: int, control: Control) -> Head | None:
        """The head; None if another role is in an earlier iteration: that role has heads itself."""
        at = {
            actor: (-1, True) if wait is None else (self._numbers[id(wait.stmt)], wait.is_over())
            for actor, wait in self._waiting.items()
        }
        at[self._actor] = (loop, True)
        names = {name for number, _ in at.values() for name in self._loops.get(number, ())}
        values = {name: int(self._values[name]) for name in names}
        values |= {name: index for name, number in control.loops.items() if number == loop}
        known = {name: value for name, value in values.items() if name in control.loops}
        if index > min(known.values()):
            return None
        places = sorted((actor - self._first, *place) for actor, place in at.items())
        offsets = sorted((name, value - index * (name in known)) for name, value in values.items())
        hasher = hashlib.blake2b(repr((places, offsets)).encode(), digest_size=16)
        for part in self._state(control):
            hasher.update(part if isinstance(part, bytes) else repr(part).encode())
        return Head(
            loop=loop,
            index=index,
            low=min(known.values()),
            high=max(known.values()),
            inside=frozenset(control.loops[name] for name in known),
            state=hasher.digest(),
        )

    def _state(self, control: Control) -> Iterator[object]:
        """The state without roles' places; events and operations are ranked among those that still matter."""
        histories = {
            name: self._histories[name] for name in sorted(self._histories.keys() & control.tracked)
        }
        groups = sorted(self._groups.items())
        numbers = set().union(*(history.numbers() for history in histories.values()))
        numbers |= {
            self._at_operation[one.number]
            for one in self._operations
            if not one.is_done and one.number in self._at_operation
        }
        ranks = {number: rank for rank, number in enumerate(sorted(numbers), 1)}
        names = np.zeros(len(self._events), np.int32)
        names[list(ranks)] = list(ranks.values())
        for name, history in histories.items():
            yield from (name, *history.renamed(names))
        live = [self._events[number] for number in ranks]
        barriers = (*self._barriers.values(), *self._named.values())
        for event in live:
            yield event.actor - self._first, event.moment.number, event.is_atomic, event.is_async
            yield event.operation and self._known[event.operation].is_done
        live += [
            Event(actor=actor, time=time, moment=moment)
            for barrier in barriers
            for actor, time, moment in barrier.passed
        ]
        stmt, last = self._event
        now = (self._actor, self._views[self._actor].times[self._actor])
        is_now = (self._events[last].actor, self._events[last].time) == now
        yield stmt is not None and self._numbers.get(id(stmt)), ranks.get(last), is_now

        def find_ranks(some: Iterable[Operation]) -> list[int]:
            """Ranks; 0 for one in progress that touches nothing relevant; finished ones are left out."""
            known = ((ranks.get(self._at_operation.get(o.number, 0)), o.is_done) for o in some)
            return [rank or 0 for rank, is_done in known if rank or not is_done]

        for (actor, unit), own in groups:
            yield actor - self._first, unit, [*map(find_ranks, (own.open, *own.groups))]
        for ending in self._pending:
            if isinstance(ending, Operation):
                yield find_ranks([ending]), ending.bytes, ending.barrier and ending.barrier.name
            else:
                yield find_ranks(ending.ahead), ending.count, ending.barrier.name
            yield _knowledge(ending.view, live)
        for actor in sorted(actor for actor in self._views if actor >= self._first):
            yield actor - self._first, _knowledge(self._views[actor], live)
        for one in barriers:
            passed = [(actor - self._first, moment.number) for actor, _, moment in one.passed]
            yield one.name, one.expected, one.arrived, one.pending, one.phase % 2, passed
            yield _knowledge(one.gathered, live), _knowledge(one.published, live), bool(one.missed)
        excused = sum(history.excused for history in histories.values())
        yield sorted(self._registers), len(self.hazards), self.conflicts, excused
        yield [(one, self._raw.array(one).tobytes()) for one in sorted(control.counters)]
        yield [
            (name, repr(self._values[name])) for name in sorted(control.held & self._values.keys())
        ]


def _knowledge(view: View | None, live: Sequence[Event]) -> object:
    """What a view knows of each event, and, by its fences, of asynchronous operations."""
    if view is None:
        return None
    knows = [
        view.over.get(one.operation, 0)
        if one.operation
        else view.times.get(one.actor, 0) >= one.time
        for one in live
    ]
    return knows, _knowledge(view.fenced, live), _knowledge(view.own_fence, live)


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A Program that ran without mistakes, and the heads of its loops in each run of a block."""

    form: Form
    runs: tuple[tuple[Head, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Period:
    """Loops repeat after ``iterations`` at all trip counts; 0 if unknown: then check ``missing``, too."""

    iterations: int = 0
    missing: int | None = None


def find_period(seen: Mapping[int, Seen | None], form_at: Callable[[int], Form | None]) -> Period:
    """The period of loops at all trip counts from some count on, if all smaller ones were seen. ``seen`` is
    by trip count, None for a refused one; ``form_at`` returns Programs that need not run.
    """
    known = {trips: one for trips, one in seen.items() if one is not None}
    *_, before, longest = sorted(known)
    shorter = form_at(longest - 1) or known[before].form  # small Programs may be simplified
    is_short = False
    for period in range(1, LONGEST + 1):
        try:
            repeats = _Repeats(known[longest], shorter, period)
        except Differ as differ:
            is_short |= isinstance(differ, _TooShort)
            continue
        first = trips = 0
        while trips < first + period and trips <= longest:
            if trips not in seen:
                return Period(missing=trips)
            one, further = seen[trips], form_at(trips + period)
            if one is None or further is None or not repeats.has(one, further):
                first = trips + 1
            trips += 1
        return Period(iterations=period if trips == first + period else 0)
    return Period(missing=2 * longest if is_short else None)


class _TooShort(Differ):
    """A run ends too early for a decision."""


class _Repeats:
    """The states that recur in the ``longest`` run; raises Differ if none do or what decides changes."""

    def __init__(self, longest: Seen, shorter: Form, period: int) -> None:
        self._form, self._period = longest.form, period
        grown = Changes(shorter, self._form, frozenset()).extents
        self._loops = frozenset(name for name, more in grown.items() if more)
        self._numbers = {self._form.control.loops[name] for name in self._loops}
        later = Changes(self._form, self._form, self._loops, period)
        self._changes = [one.change for one in later.comparisons]
        if None in self._changes:
            raise Differ
        self._anchors, _ = self._anchor(shorter, self._form)
        indices = [head.index for run in longest.runs for head in run if head.loop in self._numbers]
        if not indices:
            raise _TooShort
        self._start, self._end = self._find_window(later, min(indices), max(indices))
        self._states = [self._recur(run) for run in longest.runs]

    def has(self, seen: Seen, further: Form) -> bool:
        """Whether a run reaches such states, and repeats them with one more period, as in ``further``."""
        try:
            anchors, more = self._anchor(seen.form, self._form)
            others, period = self._anchor(seen.form, further, everywhere=True)
        except Differ:
            return False
        last = self._end - more
        return (
            anchors == others == self._anchors
            and period == self._period
            and len(seen.runs) == len(self._states)
            and all(
                any(
                    self._name(h) in states and h.low >= self._start and h.high <= last for h in run
                )
                for run, chosen in zip(seen.runs, self._states, strict=True)
                for states in chosen
            )
        )

    def _anchor(
        self, before: Form, after: Form, *, everywhere: bool = False
    ) -> tuple[list[str], int]:
        """Whether comparisons keep their distance from the first or last iteration, and how many more run."""
        same = Changes(before, after, self._loops, mode="everywhere" if everywhere else "loops")
        grown = {more for name, more in same.extents.items() if name in self._loops}
        others = (more for name, more in same.extents.items() if name not in self._loops)
        if len(grown) != 1 or any(others):
            raise Differ
        (shift,) = grown
        shifted = Changes(before, after, self._loops, shift, mode="loose")
        anchors = []
        for change, first, last in zip(
            self._changes, same.comparisons, shifted.comparisons, strict=True
        ):
            if first.change == 0:
                anchors.append("first")
            elif change != 0 and last.change == 0:
                anchors.append("last")
            else:
                raise Differ
        return anchors, shift

    def _find_window(self, later: Changes, first: int, last: int) -> tuple[int, int]:
        """The first and the last iteration of the window in which no comparison changes its value."""
        start, end = first, last
        for comparison, anchor in zip(later.comparisons, self._anchors, strict=True):
            if not comparison.change:
                continue
            side = 1 if comparison.change > 0 else -1  # of its final value
            indices = range(first, last + 1) if anchor == "last" else range(last, first - 1, -1)
            wanted = -side if anchor == "last" else side
            are_far = [self._find_side(comparison, at) == wanted for at in indices]
            far = indices[: [*are_far, False].index(False)]
            if not far:
                raise _TooShort
            start, end = max(start, min(far)), min(end, max(far))
        return start, end

    def _recur(self, run: tuple[Head, ...]) -> list[frozenset[_State]]:
        """The states of one period for each set of loops that roles are in together; every loop has some."""
        heads = [
            head
            for head in run
            if head.inside <= self._numbers and head.low >= self._start and head.high <= self._end
        ]
        places = {(head.loop, head.index, head.state): at for at, head in enumerate(heads)}
        found: dict[frozenset[int], frozenset[_State]] = {}
        for at, head in enumerate(heads):
            end = places.get((head.loop, head.index + self._period, head.state))
            if end is not None and head.inside not in found:
                found[head.inside] = frozenset(map(self._name, heads[at:end]))
        covered: set[int] = set()
        chosen = []
        for inside in sorted(found, key=len, reverse=True):
            if not inside & covered:
                covered |= inside
                chosen.append(found[inside])
        if covered != self._numbers:
            raise _TooShort
        return chosen

    def _name(self, head: Head) -> _State:
        return head.loop, head.index % self._period, head.state

    def _find_side(self, comparison: Comparison, at: int) -> int:
        return find_side(self._form, comparison, dict.fromkeys(self._loops, at))
