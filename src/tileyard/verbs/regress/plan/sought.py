"""Finds the change between a bisection's good and bad revision, and judges whether a commit has it."""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Final, Literal, NoReturn

from tileyard.base.errors import UsageError, WorkerLostError
from tileyard.base.model import Outcome, Record
from tileyard.verbs.regress.plan.bisection import Answer
from tileyard.verbs.regress.plan.pairs import CPU_TIME, FALSE_DISCOVERIES, TIME
from tileyard.verbs.regress.result import (
    Change,
    Limit,
    Regression,
    TimedRow,
    describe_change,
    describe_row,
    list_breaking,
)

NORMAL: Final = NormalDist()
WIDTH: Final = NORMAL.inv_cdf(1 - FALSE_DISCOVERIES / 2)
"""Half the width of an interval in standard deviations."""
WRONG_TIMES: Final = 0.01
"""Share of comparisons in time that may be wrong, whatever their own confidence."""
WRONG_OUTCOMES: Final = 0.001
"""Share of wrong tests of outcomes, which hardly vary, and of figures of a binary."""
TIMES: Final = (TIME[0], CPU_TIME[0])
"""Units of time: more is slower. Other numbers are worse or better."""


class SoughtChange(Record):
    """A case's change from good to bad. ``ratio`` is that of times if slower or faster, of numbers if worse
    or better. ``outcome`` is a failure's, empty if the case cannot even be read. ``figure`` is the changed
    figure of its binary.
    """

    case: str
    kind: Literal["slower", "faster", "worse", "better", "fails", "figure"]
    ratio: float = 1.0
    outcome: str = ""
    figure: Change | None = None

    @property
    def margin(self) -> float:
        """Half of the change, as a share of the time: a commit has the change if it is beyond that."""
        return math.exp(abs(math.log(self.ratio)) / 2) - 1

    @property
    def error(self) -> float:
        """The share of tests that may be wrong."""
        return WRONG_OUTCOMES if self.kind in ("fails", "figure") else WRONG_TIMES


def find_change(compared: Regression, limits: Sequence[Limit] = ()) -> SoughtChange:
    """The one change of a comparison, with ``limits`` the first figure that breaks one. Raises UsageError for
    none, or for several changed cases.
    """
    changed = [
        row
        for row in compared.rows
        if row.broken or row.verdict in ("regressed", "improved", "failed")
    ]
    if len(changed) > 1:
        names = ", ".join(row.case for row in changed)
        hint = "name one: FILE::NAME or SUITE::CASE"
        raise UsageError(f"{len(changed)} cases have changed: {names}", hint)
    if not changed:
        _refuse(compared, limits)
    (row,) = changed
    if figure := next((one for one, _ in list_breaking(row.changes, limits)), None):
        return SoughtChange(case=row.case, kind="figure", figure=figure)
    if row.base_message:
        raise UsageError(f"{row.case}: the good revision fails: {row.base_message}")
    if row.verdict == "failed" or row.ratio is None:
        return SoughtChange(case=row.case, kind="fails", outcome=_outcome_of(row))
    is_worse = row.verdict == "regressed"
    if row.unit in TIMES:
        kind: Literal["slower", "faster", "worse", "better"] = "slower" if is_worse else "faster"
    else:
        kind = "worse" if is_worse else "better"
    return SoughtChange(case=row.case, kind=kind, ratio=row.ratio.ratio)


def _refuse(compared: Regression, limits: Sequence[Limit]) -> NoReturn:
    """Raise the UsageError that nothing has changed, with other changes as a hint."""
    figures = [
        f"{row.case}: {', '.join(map(describe_change, row.changes))}"
        for row in compared.rows
        if row.changes
    ]
    if limits:
        told = "; ".join(figures[:3]) or "all figures are equal"
        raise UsageError(f"no limit of --fail-on is broken from good to bad: {told}")
    rows = "; ".join(map(describe_row, compared.rows[:3]))
    hint = f"figures of the binary have: --fail-on looks for these. {figures[0]}" if figures else ""
    raise UsageError(f"nothing has changed from good to bad: {rows}", hint)


def judge_commit(sought: SoughtChange, compared: Regression, *, is_parent: bool = False) -> Answer:
    """Whether head has the change that base lacks; for figures, more than half of it, or any of it against
    the commit's own parent. Raises WorkerLostError if the host or the device failed.
    """
    row = next((row for row in compared.rows if row.case == sought.case), None)
    if row is None and sought.kind == "fails":
        return Answer(has_it=0.0, why="its file can be read")
    if row is None or row.verdict in ("missing", "new"):
        messages = (one.head_message or one.base_message for one in compared.rows)
        return Answer(has_it=None, why=next(filter(None, messages), f"it has no {sought.case}"))
    if row.verdict == "not_run":
        raise WorkerLostError(describe_row(row))
    if sought.figure is not None and row.verdict != "failed":
        return _judge_figure(sought.figure, row, 0.0 if is_parent else 0.5)
    return Answer(has_it=_find_probability(sought, row), why=describe_row(row))


def _judge_figure(sought: Change, row: TimedRow, least: float) -> Answer:
    """Whether a figure moved by more than ``least`` of the change; unknown if a function may be renamed."""
    told = [one for one in row.changes if one.metric == sought.metric]
    moved = {one.function: _find_share(one, sought) for one in told}
    share = moved.get(sought.function, None if None in moved.values() else 0.0)
    return Answer(
        has_it=None if share is None else float(share > least),
        why="; ".join(map(describe_change, told)) or f"equal {sought.metric}",
    )


def _find_share(change: Change, whole: Change) -> float | None:
    """The share of the whole change by which a figure has moved; None if a side does not have it."""
    if change.base is None or change.head is None or whole.base is None or whole.head is None:
        return None
    return (change.head - change.base) / (whole.head - whole.base)


def _find_probability(sought: SoughtChange, row: TimedRow) -> float | None:
    if row.verdict == "failed":
        is_it = sought.kind == "fails" and _outcome_of(row) == sought.outcome
        return 1.0 if is_it and not row.base_message else None
    if row.verdict == "unchanged" or sought.kind == "fails":
        return 0.0
    ratio = row.ratio
    if ratio is None or ratio.low is None or ratio.high is None:
        return 0.5  # too few processes for a verdict
    share = math.log(ratio.ratio) / math.log(sought.ratio)
    half = math.log(ratio.high / ratio.low) / 2 / abs(math.log(sought.ratio))
    return NORMAL.cdf(WIDTH * (share - 0.5) / half) if half else float(share > 0.5)


def _outcome_of(row: TimedRow) -> str:
    """``mismatch`` of ``mismatch: 3 of 1024 elements ...``; empty if a kernel or its file cannot be read."""
    outcome = row.head_message.partition(":")[0]
    return outcome if outcome in set(Outcome) else ""
