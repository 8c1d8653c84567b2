"""What the trials of each run say of it, summed up in one query."""

import msgspec
from sqlalchemy import Connection, Integer, cast, func, select

from tileyard.model import WELL, Record
from tileyard.store.schema import trials

_WELL = sorted(outcome.value for outcome in WELL)


class RunSummary(Record):
    """What the trials of one run say of it; times are seconds since the epoch."""

    run: str
    target: str
    kernels: tuple[str, ...]
    trials: int
    well: int
    first_started_at: float
    last_started_at: float


def read_runs(connection: Connection, limit: int) -> list[RunSummary]:
    """A summary of every run that has a trial, the newest first; ``limit`` 0 means all."""
    statement = (
        select(
            trials.c.run,
            func.min(trials.c.target),
            func.json_group_array(trials.c.kernel.distinct()),
            func.count(),
            func.sum(cast(trials.c.outcome.in_(_WELL), Integer)),
            func.min(trials.c.started_at),
            func.max(trials.c.started_at),
        )
        .group_by(trials.c.run)
        .order_by(func.max(trials.c.started_at).desc(), func.max(trials.c.number).desc())
        .limit(limit or None)
    )
    return [
        RunSummary(
            run=run,
            target=target,
            kernels=tuple(sorted(msgspec.json.decode(kernels, type=list[str]))),
            trials=count,
            well=well,
            first_started_at=first,
            last_started_at=last,
        )
        for run, target, kernels, count, well, first, last in connection.execute(statement)
    ]
