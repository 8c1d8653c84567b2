"""The histories of a comparison's cases, as far as its data directory has them."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tileyard.base.errors import HomeError
from tileyard.base.model import Record, Trial
from tileyard.store.base import TrialQuery
from tileyard.store.trials import has_records, open_store
from tileyard.verbs.regress.plan.causes import Commits, Span
from tileyard.verbs.regress.plan.history import (
    Series,
    blame_machine,
    collect_history,
    find_commit,
)
from tileyard.verbs.regress.result import Regression, TimedRow

FEWEST_RUNS: Final = 3
"""Fewest runs that are a history."""


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
    with contextlib.suppress(HomeError), open_store(home) as store:
        return {
            row.case: store.list_trials(TrialQuery(case=row.case, target=result.target, limit=0))
            for row in rows
        }
    return {}
