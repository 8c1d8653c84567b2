"""What is looked up of every case: statements that find the record of the latest trial with some ``key``."""

from sqlalchemy import ColumnElement, bindparam, select

from tileyard.model import Outcome
from tileyard.store.base import BUILD_FAILURES, REUSABLE
from tileyard.store.database import Lookup
from tileyard.store.schema import is_unbuilt, suite_trials, trials


def _latest(*conditions: ColumnElement[bool]) -> Lookup:
    newest = (trials.c.started_at.desc(), trials.c.number.desc())
    return select(trials.c.record).where(*conditions).order_by(*newest).limit(1)


FIND_MEASURED = _latest(
    trials.c.measurement_key == bindparam("key", ""), trials.c.outcome.in_(sorted(REUSABLE))
)
FIND_BUILD_FAILURE = _latest(
    trials.c.build_key == bindparam("key", ""),
    is_unbuilt,  # as in its index
    trials.c.outcome.in_(sorted(BUILD_FAILURES)),
)
has_passed = (suite_trials.c.number == trials.c.number) & (
    suite_trials.c.outcome == Outcome.PASSED.value
)
"""Joins the two tables."""
FIND_PASSED = (
    select(trials.c.record)
    .where(suite_trials.c.run_key == bindparam("key", ""), has_passed)
    .order_by(suite_trials.c.started_at.desc(), suite_trials.c.number.desc())
    .limit(1)
)
