"""The distribution of case durations: its tail, and what has changed since a date."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from tileyard.base.model import Record
from tileyard.store.base import CaseTimes
from tileyard.verbs.test.plan.durations import HIGH, LIKELY, find_quantile

Seconds = NDArray[np.float64]

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.99)

SAMPLES = 3
"""Number of runs that a case needs before and after the date to be compared."""

MOVED = 1.2
"""Factor between two medians from which on a case counts as changed; its quartiles must differ as well."""


class CaseHistory(Record):
    """A case's median time, the time that nine of ten runs do not exceed, and its share of the total."""

    case: str
    seconds: float
    high_s: float
    samples: int
    share: float


class Quantile(Record):
    """The number of cases that take no longer than ``seconds``."""

    share: float
    seconds: float


class Moved(Record):
    """A case whose median has changed since the date."""

    case: str
    before_s: float
    after_s: float
    samples_before: int
    samples_after: int

    @property
    def ratio(self) -> float:
        """After to before."""
        return self.after_s / self.before_s


class History(Record):
    """All cases that ran; ``total_s`` is the sum of their medians. ``longest`` are the longest cases and
    ``longest_testcases`` the testcases, whose ``seconds`` and ``high_s`` are sums. ``moved`` changed most of
    the ``compared`` ones.
    """

    cases: int
    runs: int
    total_s: float
    quantiles: tuple[Quantile, ...]
    longest: tuple[CaseHistory, ...]
    longest_testcases: tuple[CaseHistory, ...]
    since: float
    compared: int
    moved: tuple[Moved, ...]


def summarize_history(times: Iterable[CaseTimes], since: float, longest: int = 10) -> History:
    """A summary of the runs that ended by themselves; ``since``, in seconds since the epoch, divides them."""
    by_case = {own.case: own for own in times}
    ordered = {case: _sort(own.before_s, own.after_s) for case, own in by_case.items()}
    medians = {case: find_quantile(own, LIKELY) for case, own in ordered.items()}
    total_s = sum(medians.values())
    by_testcase: dict[str, list[str]] = {}
    for case, own in by_case.items():
        by_testcase.setdefault(own.testcase, []).append(case)
    shared = sorted(medians.values())
    compared = [
        own for own in by_case.values() if min(len(own.before_s), len(own.after_s)) >= SAMPLES
    ]

    def describe(name: str, cases: Sequence[str]) -> CaseHistory:
        seconds = sum([medians[case] for case in cases])
        return CaseHistory(
            case=name,
            seconds=seconds,
            high_s=sum([find_quantile(ordered[case], HIGH) for case in cases]),
            samples=min([len(ordered[case]) for case in cases]),
            share=seconds / total_s,
        )

    def take_longest(groups: Iterable[tuple[str, Sequence[str]]]) -> tuple[CaseHistory, ...]:
        described = [describe(name, cases) for name, cases in groups]
        return tuple(sorted(described, key=lambda one: (-one.seconds, one.case))[:longest])

    return History(
        cases=len(ordered),
        runs=sum(len(own) for own in ordered.values()),
        total_s=total_s,
        quantiles=tuple(
            Quantile(share=share, seconds=find_quantile(shared, share))
            for share in QUANTILES
            if shared
        ),
        longest=take_longest((case, [case]) for case in ordered),
        longest_testcases=take_longest(by_testcase.items()),
        since=since,
        compared=len(compared),
        moved=_find_moved(compared)[:longest],
    )


def _sort(*parts: Sequence[float]) -> Seconds:
    return np.sort(np.concatenate([np.asarray(part, np.float64) for part in parts]))


def _find_moved(compared: Iterable[CaseTimes]) -> tuple[Moved, ...]:
    """The cases that clearly changed, the one that costs or saves most first."""
    found = []
    for own in compared:
        before, after = _sort(own.before_s), _sort(own.after_s)
        moved = Moved(
            case=own.case,
            before_s=find_quantile(before, LIKELY),
            after_s=find_quantile(after, LIKELY),
            samples_before=len(before),
            samples_after=len(after),
        )
        is_slower = find_quantile(after, 0.25) > find_quantile(before, 0.75)
        is_faster = find_quantile(after, 0.75) < find_quantile(before, 0.25)
        if (is_slower and moved.ratio >= MOVED) or (is_faster and moved.ratio <= 1 / MOVED):
            found.append(moved)
    found.sort(key=lambda one: (-abs(one.after_s - one.before_s), one.case))
    return tuple(found)
