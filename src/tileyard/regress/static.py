"""Two builds of the same kernels, kernel by kernel: what their compilers made of them. Nothing is run.

Registers, memory and instructions are facts of a binary: any difference is one. Times are not. Sides are
built in turn, and a kernel's build time counts as changed only where all rounds agree on it.
"""

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from tileyard.artifacts.manifest import Build
from tileyard.events import StopReason
from tileyard.model import Outcome, Record
from tileyard.targets.reported import Resources, read_reported

BUILD = "build"
MIX = "mix."
METRICS = (
    *("registers", "spills", "stack", "shared", "threads", "occupancy", "code", "instructions"),
    BUILD,
)
"""What is compared, besides ``mix.KIND`` for the instructions of each kind.

Bytes for spills, stack, shared and code; percent for occupancy; seconds for build.
"""
TELLING_ROUNDS = 3
"""Of fewer rounds nothing is said about a single kernel's build time."""
TELLING_RATIO = 1.1
"""Nor of a build time that has changed by less."""

State = Literal["built", "fails", "missing"]
"""What a side has of a kernel: a binary, a reason why there is none, or not even the kernel."""


class Rounds(Record):
    """What both sides made in each round, in the order of their kernels.

    ``reason`` says why no further round was made.
    """

    base: tuple[tuple[Build, ...], ...]
    head: tuple[tuple[Build, ...], ...]
    reason: StopReason = "done"


class Change(Record):
    """A figure that differs. ``function`` is that of the device, empty where it has only one.

    A side that has no such figure, since it depends on the call, has None.
    """

    metric: str
    base: float | None
    head: float | None
    function: str = ""


class Row(Record):
    """A kernel about which there is something to say: ``base`` and ``head`` are what the sides have.

    Messages are those of sides that failed. Build times are those of the rounds that count.
    """

    case: str
    base: State
    head: State
    changes: tuple[Change, ...] = ()
    base_message: str = ""
    head_message: str = ""
    base_build_s: tuple[float, ...] = ()
    head_build_s: tuple[float, ...] = ()


class BuildTimes(Record):
    """How long the kernels took that both sides built, a round each.

    ``ratio`` is head over base in the middle of all rounds, ``low`` and ``high`` its extremes.
    ``is_first`` says that this was the first round, in which caches were made as well.
    """

    base_s: tuple[float, ...]
    head_s: tuple[float, ...]
    ratio: float
    low: float
    high: float
    is_first: bool


class Comparison(Record):
    """What two sides have come to. ``rows`` are in the order of the kernels.

    ``unchanged`` counts the kernels for which all figures are equal. ``regressions`` is one line for
    each limit that is broken.
    """

    target: str
    base: str
    head: str
    base_compiler: str
    head_compiler: str
    rows: tuple[Row, ...]
    unchanged: int
    build: BuildTimes | None
    regressions: tuple[str, ...] = ()


def compare_sides(
    target: str,
    names: tuple[str, str],
    base: Sequence[Sequence[Build]],
    head: Sequence[Sequence[Build]],
) -> Comparison:
    """Compare what was built in at least one round each; the first one gives the figures."""
    rounds = _Rounds(base, head)
    rows = [rounds.describe(case) for case in rounds.cases]
    return Comparison(
        target=target,
        base=names[0],
        head=names[1],
        base_compiler=_name_compiler(base[0]),
        head_compiler=_name_compiler(head[0]),
        rows=tuple(row for row in rows if not _is_same(row)),
        unchanged=sum(map(_is_same, rows)),
        build=rounds.time_builds(),
    )


def _name_compiler(builds: Sequence[Build]) -> str:
    """What built them; empty where nothing was built, or nothing says it."""
    named = (read_reported(build.details).compiler for build in builds)
    return next(filter(None, named), "")


class _Rounds:
    """All rounds of both sides by case."""

    def __init__(self, base: Sequence[Sequence[Build]], head: Sequence[Sequence[Build]]) -> None:
        self._base = [{one.case: one for one in builds} for builds in base]
        self._head = [{one.case: one for one in builds} for builds in head]
        self.cases = tuple(dict.fromkeys([*self._base[0], *self._head[0]]))

    def describe(self, case: str) -> Row:
        """A row without changes stands for a kernel that is the same on both sides."""
        base, head = self._base[0].get(case), self._head[0].get(case)
        base_s, head_s = self._times(case)
        changes: tuple[Change, ...] = ()
        if base is not None and head is not None:
            changes = (*find_changes(base, head), *_find_build_change(base_s, head_s))
        return Row(
            case=case,
            base=_state(base),
            head=_state(head),
            changes=changes,
            base_message="" if base is None else base.message,
            head_message="" if head is None else head.message,
            base_build_s=base_s,
            head_build_s=head_s,
        )

    def time_builds(self) -> BuildTimes | None:
        """None where there is no kernel that both sides built in all rounds."""
        times = [self._times(case) for case in self.cases]
        both = [(base, head) for base, head in times if base and head]
        if not both:
            return None
        base_s = tuple(map(sum, zip(*(base for base, _ in both), strict=True)))
        head_s = tuple(map(sum, zip(*(head for _, head in both), strict=True)))
        if not all(base_s):
            return None
        ratios = [there / here for here, there in zip(base_s, head_s, strict=True)]
        return BuildTimes(
            base_s=base_s,
            head_s=head_s,
            ratio=statistics.median(ratios),
            low=min(ratios),
            high=max(ratios),
            is_first=len(self._base) == 1,
        )

    def _times(self, case: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """A kernel's build times; the first of several rounds makes caches, and does not count."""
        counted = slice(1, None) if len(self._base) > 1 else slice(None)
        return _passed_times(self._base[counted], case), _passed_times(self._head[counted], case)


def _passed_times(rounds: Sequence[Mapping[str, Build]], case: str) -> tuple[float, ...]:
    """None of them unless the kernel was built in every round."""
    builds = [one[case] for one in rounds if case in one]
    passed = [build.build_s for build in builds if build.outcome is Outcome.PASSED]
    return tuple(passed) if len(passed) == len(rounds) else ()


def _state(build: Build | None) -> State:
    if build is None:
        return "missing"
    return "built" if build.outcome is Outcome.PASSED else "fails"


def _is_same(row: Row) -> bool:
    return row.base == row.head == "built" and not row.changes


def find_changes(base: Build, head: Build) -> Iterator[Change]:
    """The figures that differ, build times apart; none where one of the two was not built."""
    if not _state(base) == _state(head) == "built":
        return
    here, there = _functions_of(base), _functions_of(head)
    names = dict.fromkeys([*here, *there])
    for name in names:
        before, after = here.get(name, {}), there.get(name, {})
        for metric in dict.fromkeys([*before, *after]):
            old, new = before.get(metric), after.get(metric)
            # Instructions of a kind that one side lacks are none; other figures are not known there.
            if metric.startswith(MIX) and before and after:
                old, new = old or 0.0, new or 0.0
            if old != new:
                function = name if len(names) > 1 else ""
                yield Change(metric=metric, base=old, head=new, function=function)


def _find_build_change(base_s: tuple[float, ...], head_s: tuple[float, ...]) -> Iterator[Change]:
    if min(len(base_s), len(head_s)) < TELLING_ROUNDS:
        return
    apart = max(base_s) < min(head_s) or max(head_s) < min(base_s)
    base, head = statistics.median(base_s), statistics.median(head_s)
    if apart and max(base, head) > TELLING_RATIO * min(base, head):
        yield Change(metric=BUILD, base=base, head=head)


def _functions_of(build: Build) -> dict[str, dict[str, float]]:
    """Figures of each device function by its name, without what makes the name unique."""
    seen: Counter[str] = Counter()
    found: dict[str, dict[str, float]] = {}
    for taken in read_reported(build.details).resources:
        name = taken.symbol.rpartition("_")[0] or taken.symbol
        seen[name] += 1
        found[name if seen[name] == 1 else f"{name}#{seen[name]}"] = _figures_of(taken)
    return found


def _figures_of(taken: Resources) -> dict[str, float]:
    """The figures that are known."""
    dynamic, occupancy = taken.dynamic_shared_bytes, taken.occupancy
    figures: dict[str, float | None] = {
        "registers": taken.registers,
        "spills": taken.spilled_bytes,
        "stack": taken.stack_bytes,
        "shared": None if dynamic is None else taken.shared_bytes + dynamic,
        "threads": taken.threads,
        "occupancy": None if occupancy is None else 100 * occupancy,
        "code": taken.code_bytes,
        "instructions": sum(taken.mix.values()),
        **{f"{MIX}{kind}": count for kind, count in taken.mix.items()},
    }
    return {name: figure for name, figure in figures.items() if figure is not None}
