"""How long the cases of suites ran and how they ended, read without the records of their trials."""

from itertools import groupby
from operator import itemgetter

from sqlalchemy import Connection, select

from tileyard.clock import LONGEST_S
from tileyard.model import Outcome
from tileyard.store.run_times import RunTime, RunTimeQuery
from tileyard.store.schema import is_of_suite, trials

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
