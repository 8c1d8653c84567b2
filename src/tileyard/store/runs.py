"""The trials of each run, summed up by the database."""

from sqlalchemy import Connection, Integer, cast, func, select

from tileyard.model import WELL
from tileyard.store.base import RunSummary
from tileyard.store.schema import trials

_WELL = sorted(outcome.value for outcome in WELL)


def read_runs(connection: Connection, limit: int) -> list[RunSummary]:
    """A summary of every run that has a trial, the newest first; ``limit`` 0 means all."""
    statement = (
        select(
            trials.c.run,
            func.min(trials.c.target),
            func.count(),
            func.sum(cast(trials.c.outcome.in_(_WELL), Integer)),
            func.min(trials.c.started_at),
            func.max(trials.c.started_at),
        )
        .group_by(trials.c.run)
        .order_by(func.max(trials.c.started_at).desc(), func.max(trials.c.number).desc())
        .limit(limit or None)
    )
    found = connection.execute(statement).all()
    named = select(trials.c.run, trials.c.label).distinct()
    if limit:
        named = named.where(trials.c.run.in_([row[0] for row in found]))
    labels: dict[str, list[str]] = {}
    for run, label in connection.execute(named):
        labels.setdefault(run, []).append(label)
    return [
        RunSummary(
            run=run,
            target=target,
            kernels=tuple(sorted(labels[run])),
            trials=count,
            well=well,
            first_started_at=first,
            last_started_at=last,
        )
        for run, target, count, well, first, last in found
    ]
