"""Decides whether a kernel is checked for every trip count, because its loops return to an earlier state.

Programs of one kernel that differ in trip counts are compared. Nothing that decides may change from period
to period but comparisons that change once: in the first iterations, or at a distance from the last. Then a
longer run is a checked one with more periods in its middle. docs/design/async.md has the argument.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tileyard.sync.changes import Changes, Comparison, Differ, Form, find_side
from tileyard.sync.heads import Head

LONGEST = 32
"""Most iterations of a period."""

_State = tuple[int, int, bytes]


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
