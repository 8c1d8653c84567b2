"""Reads how long the cases of suites ran and how they ended, without the records of their trials."""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import itemgetter

from sqlalchemy import ColumnElement, Connection, func, or_, select

from tileyard.base.clock import LONGEST_S
from tileyard.base.model import Outcome
from tileyard.store.base import CaseTimes, RunTime
from tileyard.store.schema import suite_trials

Doubles = Callable[
    [ColumnElement[float | None], ColumnElement[bool]], ColumnElement[Sequence[float]]
]
"""An aggregate: the numbers of a column in the matching rows; values that are not numbers are omitted."""
_COLUMNS = (
    suite_trials.c.case_id,
    suite_trials.c.testcase,
    suite_trials.c.target,
    suite_trials.c.device,
    suite_trials.c.outcome,
    suite_trials.c.started_at,
    suite_trials.c.run_s,
)
_TOLD = sorted(set(Outcome) - {Outcome.SKIPPED, Outcome.NOT_RUN})
LAST_S = 1e11
"""The latest start of a trial that is believed, in seconds since the epoch."""
_OUTCOMES = {outcome.value: outcome for outcome in Outcome}


def read_run_times(connection: Connection, target: str, latest: int) -> tuple[list[RunTime], int]:
    """The latest attempts that really ran, cases in order, oldest first, and the number of invalid rows."""
    conditions: list[ColumnElement[bool]] = [
        suite_trials.c.reused.is_(False),
        suite_trials.c.outcome.in_(_TOLD),
    ]
    if target:
        conditions.append(suite_trials.c.target == target)
    # In the order of the table: nothing is sorted, and a window function would take three times as long.
    statement = select(*_COLUMNS).where(*conditions).order_by(_COLUMNS[0], _COLUMNS[5])
    rows = connection.execute(statement).all()
    sound = [row for row in rows if _is_sound(*row)]
    times = [
        RunTime(
            case=case,
            testcase=testcase,
            target=target,
            device=device,
            outcome=_OUTCOMES[outcome],
            started_at=started_at,
            run_s=run_s or 0.0,
        )
        for _, attempts in groupby(sound, key=itemgetter(0))
        for case, testcase, target, device, outcome, started_at, run_s in list(attempts)[-latest:]
    ]
    return times, len(rows) - len(sound)


def read_case_times(
    connection: Connection,
    doubles: Doubles,
    outcomes: Iterable[Outcome],
    since: float,
    on: tuple[str, str],
) -> tuple[list[CaseTimes], int]:
    """All attempts that ran and got to a device, by suite and case, and the number of invalid rows. ``on`` is
    a target and a class of devices, empty for all. Arrays are made in the database: a quarter of the time.
    """
    target, device_class = on
    conditions = [
        suite_trials.c.reused.is_(False),
        suite_trials.c.outcome.in_([outcome.value for outcome in outcomes]),
        suite_trials.c.run_s > 0,
    ]
    if target:
        conditions.append(suite_trials.c.target == target)
    if device_class:
        named, numbered = suite_trials.c.device == device_class, f"{device_class}:"
        conditions.append(or_(named, suite_trials.c.device.startswith(numbered, autoescape=True)))
    started_at, run_s = suite_trials.c.started_at, suite_trials.c.run_s
    statement = (
        select(
            suite_trials.c.suite,
            suite_trials.c.case_id,
            func.min(suite_trials.c.testcase),
            # A value that is not a number is larger than any number.
            doubles(run_s, (started_at >= -LAST_S) & (started_at < since)),
            doubles(run_s, (started_at >= since) & (started_at <= LAST_S)),
            func.count(),
        )
        .where(*conditions)
        .group_by(suite_trials.c.case_id, suite_trials.c.suite)
    )
    found, skipped = [], 0
    for suite, case, testcase, *told, count in connection.execute(statement):
        before_s, after_s = (_drop_long(times_s) for times_s in told)
        is_text = type(suite) is type(case) is type(testcase) is str
        sound = len(before_s) + len(after_s) if is_text else 0
        skipped += count - sound
        if sound:
            name = {"suite": suite, "case": case, "testcase": testcase}
            found.append(CaseTimes(**name, before_s=before_s, after_s=after_s))
    return found, skipped


def _drop_long(times_s: Sequence[float]) -> Sequence[float]:
    """Remove the times that no run can have taken."""
    if max(times_s, default=0.0) <= LONGEST_S:
        return times_s
    return [time_s for time_s in times_s if time_s <= LONGEST_S]


def _is_sound(  # noqa: PLR0913 - the columns of a row
    case: object,
    testcase: object,
    target: object,
    device: object,
    _outcome: str,
    started_at: object,
    run_s: object,
) -> bool:
    """Whether a row contains texts and times: a file that others write can contain anything."""
    return (
        type(case) is type(testcase) is type(target) is type(device) is str
        and isinstance(started_at, float)
        and abs(started_at) < LAST_S
        and (run_s is None or (isinstance(run_s, float) and 0 <= run_s <= LONGEST_S))
    )
