"""The histories of a comparison's cases, as far as its data directory has them, and the commits that can have
caused their changes.
"""

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tileyard.base.errors import HomeError, UsageError
from tileyard.base.model import Record, Trial
from tileyard.store.base import TrialQuery
from tileyard.store.trials import has_records, read_store
from tileyard.verbs.regress.plan.bisection import Commit
from tileyard.verbs.regress.plan.history import (
    Point,
    Series,
    blame_machine,
    collect_history,
    find_commit,
)
from tileyard.verbs.regress.plan.revisions import Project
from tileyard.verbs.regress.result import Regression, TimedRow

MOST_COMMITS: Final = 50
"""Commits of a span that are remembered, the last ones."""
FEWEST_RUNS: Final = 3
"""Fewest runs that are a history."""


def name_end(point: Point) -> str:
    """The commit of a point, else its other revision, else its run."""
    return find_commit(point.revision) or point.revision or f"run {point.run}"


class Span(Record):
    """The commits that can have caused a change: after ``last``, up to ``first``, parents first; none if
    they are unknown, as without git. Both are as ``name_end`` names them. Of many the first ones are
    ``left_out``.
    """

    last: str
    first: str
    commits: tuple[Commit, ...] = ()
    left_out: int = 0

    @property
    def key(self) -> str:
        """Its ends as one word."""
        return f"{self.last}..{self.first}"


class Commits:
    """These commits of runs, as far as git knows them in a folder; else as they are remembered, in their
    order, with the first lines of messages and the spans.
    """

    def __init__(
        self,
        folder: Path,
        commits: Collection[str],
        order: tuple[str, ...] = (),
        subjects: Mapping[str, str] | None = None,
        spans: Mapping[str, Span] | None = None,
    ) -> None:
        self._project = Project.of(folder / "any")
        self._spans = dict(spans or {})
        self.order = order
        self.subjects = dict(subjects or {})
        if self._project is not None and commits:
            ordered = tuple(
                one for one in self._project.sort_commits(sorted(commits)) if one in commits
            )
            if len(ordered) >= len(self.order):
                self.order = ordered
            fresh = [one for one in ordered if one not in self.subjects]
            self.subjects = {**self.subjects, **self._project.read_subjects(fresh)}
        self.used: dict[str, Span] = {}
        """The spans that were asked for."""

    def find_span(self, last: Point, first: Point) -> Span:
        """The commits that can have caused a change between two points."""
        ends = find_commit(last.revision), find_commit(first.revision)
        span = Span(last=name_end(last), first=name_end(first))
        if span.key in self.used:  # many cases change with the same commits
            return self.used[span.key]
        known = self._spans.get(span.key)
        if known is None or not known.commits:
            found = self._list_commits(*ends)
            kept = tuple(found[-MOST_COMMITS:])
            known = msgspec.structs.replace(span, commits=kept, left_out=len(found) - len(kept))
        self.used[span.key] = known
        return known

    def _list_commits(self, last: str, first: str) -> Sequence[Commit]:
        if self._project is None or not last or not first or last == first:
            return ()
        with contextlib.suppress(UsageError):  # one is not an ancestor of the other
            return self._project.list_commits(last, first)
        return ()

    def find_released(self, name: str) -> frozenset[str]:
        """A release's commits: its own and all before it. Raises UsageError if it is not known."""
        if self._project is not None:
            return frozenset(self._project.sort_commits([self._project.find(name)]))
        found = [number for number, one in enumerate(self.order) if one.startswith(name)]
        if len(found) != 1:
            raise UsageError(
                f"--release: {name} is not known: there is no git repository here",
                "run it in the repository of the kernels, or name a commit that was timed",
            )
        return frozenset(self.order[: found[0] + 1])


class RowHistory(Record):
    """Head's series at the place where a run timed it, with the commits of its changes by their ends. Changes
    of at most ``margin``, a share, do not count.
    """

    series: Series
    margin: float
    spans: Mapping[str, Span]


def read_histories(
    home: Path, result: Regression, rows: Sequence[TimedRow]
) -> Iterator[RowHistory]:
    """The histories of these rows of a recorded run, of those that have one."""
    trials = _read_trials(home, result, rows)
    if not trials:
        return
    revisions = {one.revision for own in trials.values() for one in own}
    commits = Commits(Path.cwd(), {find_commit(one) for one in revisions} - {""})
    for row in rows:
        margin = row.margin or result.margin
        found = collect_history(row.case, trials[row.case], margin, commits.order).series
        places = {(one.case, one.device, one.silicon, one.side): one for one in found}
        for one in found:
            is_here = any(point.run == result.run and point.processes for point in one.points)
            if one.case != row.case or one.side != "head" or not is_here:
                continue
            if len(one.points) >= FEWEST_RUNS:
                base = places.get((one.case, one.device, one.silicon, "base"))
                series = blame_machine(one, base)
                for shift in series.shifts:
                    commits.find_span(series.points[shift.last], series.points[shift.first])
                yield RowHistory(series=series, margin=margin, spans=commits.used)


def _read_trials(
    home: Path, result: Regression, rows: Sequence[TimedRow]
) -> dict[str, list[Trial]]:
    """All trials of the rows' cases; none if the store cannot be read, which a page can do without."""
    if not (rows and result.run and home.is_dir() and has_records(home)):
        return {}
    with contextlib.suppress(HomeError), read_store(home) as store:
        return {
            row.case: store.list_trials(TrialQuery(case=row.case, target=result.target, limit=0))
            for row in rows
        }
    return {}
