"""How long the cases of suites ran and how they ended, read without the records of their trials."""

from array import array
from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter

from sqlalchemy import Connection, and_, func, or_, select

from tileyard.clock import LONGEST_S
from tileyard.model import Outcome
from tileyard.store.run_times import CaseTimes, RunTime, RunTimeQuery
from tileyard.store.schema import doubles, is_of_suite, trials

_COLUMNS = (
    trials.c.case_id,
    trials.c.kernel,
    trials.c.target,
    trials.c.device,
    trials.c.outcome,
    trials.c.started_at,
    trials.c.run_s,
)
_TOLD = sorted(set(Outcome) - {Outcome.SKIPPED, Outcome.NOT_RUN})
LAST_S = 1e11
"""The last second since the epoch that is believed to be the start of a trial."""
_OUTCOMES = {outcome.value: outcome for outcome in Outcome}


def read_run_times(connection: Connection, query: RunTimeQuery) -> tuple[list[RunTime], int]:
    """What was attempted anew, in the order of cases, each case's oldest first.

    The second is the number of rows that were skipped because they make no sense.
    """
    conditions = [
        is_of_suite,
        trials.c.reused.is_(False),
        trials.c.outcome.in_(_TOLD),
        trials.c.started_at >= query.since,
    ]
    if query.target:
        conditions.append(trials.c.target == query.target)
    # In the order of the index: nothing is sorted, and a window function would take thrice as long.
    statement = select(*_COLUMNS).where(*conditions).order_by(_COLUMNS[0], trials.c.started_at)
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
        for case, testcase, target, device, outcome, started_at, run_s in list(attempts)[
            -query.latest :
        ]
    ]
    return times, len(rows) - len(sound)


def read_case_times(
    connection: Connection, outcomes: Iterable[Outcome], target: str = "", device_class: str = ""
) -> tuple[list[CaseTimes], int]:
    """All that was attempted anew and got to a device, case by case, and how many rows make no sense.

    A column's numbers become an array within SQLite: a row of Python for each would take four times as long.
    """
    conditions = [
        is_of_suite,
        trials.c.reused.is_(False),
        trials.c.outcome.in_([outcome.value for outcome in outcomes]),
        trials.c.run_s > 0,
    ]
    if target:
        conditions.append(trials.c.target == target)
    if device_class:
        named, numbered = trials.c.device == device_class, f"{device_class}:"
        conditions.append(or_(named, trials.c.device.startswith(numbered, autoescape=True)))
    # What is no number is larger than any.
    is_sound = and_(trials.c.started_at.between(-LAST_S, LAST_S), trials.c.run_s <= LONGEST_S)
    statement = (
        select(
            trials.c.case_id,
            func.min(trials.c.kernel),
            doubles(trials.c.started_at).filter(is_sound),
            doubles(trials.c.run_s).filter(is_sound),
            func.count(),
        )
        .where(*conditions)
        .group_by(trials.c.case_id)
    )
    found, skipped = [], 0
    for case, testcase, starts, times, count in connection.execute(statement):
        started_at, run_s = array("d", starts or b""), array("d", times or b"")
        is_text = type(case) is type(testcase) is str
        skipped += count - (len(run_s) if is_text else 0)
        if is_text and run_s:
            found.append(
                CaseTimes(case=case, testcase=testcase, started_at=started_at, run_s=run_s)
            )
    return found, skipped


def _is_sound(  # noqa: PLR0913 - the columns of a row
    case: object,
    testcase: object,
    target: object,
    device: object,
    _outcome: str,
    started_at: object,
    run_s: object,
) -> bool:
    """Whether a row holds texts and times: SQLite takes any value in any column."""
    return (
        type(case) is type(testcase) is type(target) is type(device) is str
        and isinstance(started_at, float)
        and abs(started_at) < LAST_S
        and (run_s is None or (isinstance(run_s, float) and 0 <= run_s <= LONGEST_S))
    )
