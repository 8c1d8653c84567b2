"""What a bisection looks for: the change from its good revision to its bad one, and whether a commit has it already."""

import math
from statistics import NormalDist
from typing import Final, Literal

from tileyard.errors import UsageError, WorkerLostError
from tileyard.model import Outcome, Record
from tileyard.regress.bisection import Answer
from tileyard.regress.pairs import FALSE_DISCOVERIES
from tileyard.regress.timed import Regression, TimedRow, describe_row

NORMAL: Final = NormalDist()
WIDTH: Final = NORMAL.inv_cdf(1 - FALSE_DISCOVERIES / 2)
"""Half of an interval in standard deviations."""
WRONG_TIMES: Final = 0.01
"""The share of comparisons in time that may be wrong, however sure they are of themselves."""
WRONG_OUTCOMES: Final = 0.001
"""The same of results, which hardly vary."""


class SoughtChange(Record):
    """How a case of the bad revision differs from the good one's.

    ``ratio`` is how many times as long it takes where it is slower or faster, and 1 where it fails with ``outcome``,
    which is empty where it cannot even be read.
    """

    case: str
    kind: Literal["slower", "faster", "fails"]
    ratio: float = 1.0
    outcome: str = ""

    @property
    def margin(self) -> float:
        """Half of the change, as a share of the time: a commit beyond that has it, one within has it not."""
        return math.exp(abs(math.log(self.ratio)) / 2) - 1

    @property
    def error(self) -> float:
        """The share of tests that may be wrong."""
        return WRONG_OUTCOMES if self.kind == "fails" else WRONG_TIMES


def find_change(compared: Regression) -> SoughtChange:
    """The one change of a comparison. Raises UsageError where there is none, or more than one."""
    changed = [row for row in compared.rows if row.verdict in ("regressed", "improved", "failed")]
    if len(changed) > 1:
        names = ", ".join(row.case for row in changed)
        raise UsageError(f"{len(changed)} cases have changed: {names}", "name one: FILE::NAME")
    if not changed:
        rows = "; ".join(map(describe_row, compared.rows[:3]))
        raise UsageError(f"nothing has changed from good to bad: {rows}")
    (row,) = changed
    if row.base_message:
        raise UsageError(f"{row.case}: the good revision fails: {row.base_message}")
    if row.verdict == "failed" or row.ratio is None:
        return SoughtChange(case=row.case, kind="fails", outcome=_outcome_of(row))
    is_slower = row.verdict == "regressed"
    return SoughtChange(
        case=row.case, kind="slower" if is_slower else "faster", ratio=row.ratio.ratio
    )


def judge_commit(sought: SoughtChange, compared: Regression) -> Answer:
    """Whether head has the change that base has not. Raises WorkerLostError where the host or the device failed it."""
    row = next((row for row in compared.rows if row.case == sought.case), None)
    if row is None and sought.kind == "fails":
        return Answer(has_it=0.0, why="its file can be read")
    if row is None or row.verdict in ("missing", "new"):
        messages = (one.head_message or one.base_message for one in compared.rows)
        return Answer(has_it=None, why=next(filter(None, messages), f"it has no {sought.case}"))
    if row.verdict == "not_run":
        raise WorkerLostError(describe_row(row))
    return Answer(has_it=_find_probability(sought, row), why=describe_row(row))


def _find_probability(sought: SoughtChange, row: TimedRow) -> float | None:
    if row.verdict == "failed":
        is_it = sought.kind == "fails" and _outcome_of(row) == sought.outcome
        return 1.0 if is_it and not row.base_message else None
    if row.verdict == "unchanged" or sought.kind == "fails":
        return 0.0
    ratio = row.ratio
    if ratio is None or ratio.low is None or ratio.high is None:
        return 0.5  # too few processes to say anything
    share = math.log(ratio.ratio) / math.log(sought.ratio)
    half = math.log(ratio.high / ratio.low) / 2 / abs(math.log(sought.ratio))
    return NORMAL.cdf(WIDTH * (share - 0.5) / half) if half else float(share > 0.5)


def _outcome_of(row: TimedRow) -> str:
    """``mismatch`` of ``mismatch: 3 of 1024 elements ...``; nothing where a kernel or its file cannot be read."""
    outcome = row.head_message.partition(":")[0]
    return outcome if outcome in set(Outcome) else ""
