"""What is asked of the history of suites, and the answer; readable without loading any SQL."""

from collections.abc import Sequence

from tileyard.model import Outcome, Record

LATEST = 8
"""How many runs of a case are read where nothing else is asked for."""


class RunTime(Record):
    """One attempt at a suite's case. ``run_s`` is 0 where it did not get to a device."""

    case: str
    testcase: str
    target: str
    device: str
    outcome: Outcome
    started_at: float
    run_s: float


class CaseTimes(Record):
    """How long the attempts at a suite's case took, in seconds: those from before some date, and later ones."""

    case: str
    testcase: str
    before_s: Sequence[float]
    after_s: Sequence[float]


class RunTimeQuery(Record):
    """Which attempts to read; an empty field asks for nothing.

    ``since`` is in seconds since the epoch. Of each case the ``latest`` ones are read.
    """

    target: str = ""
    since: float = 0.0
    latest: int = LATEST
