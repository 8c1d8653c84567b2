"""What a bisection looks for, and what a comparison of one commit says of it."""

import math

import pytest

from tileyard.errors import UsageError, WorkerLostError
from tileyard.regress.sought import SoughtChange, find_change, judge_commit
from tileyard.regress.timed import Ratio, Regression, TimedRow, Verdict

SLOWER = SoughtChange(case="gemm", kind="slower", ratio=1.04)
WRONG = SoughtChange(case="gemm", kind="fails", outcome="mismatch")


def compared(*rows: TimedRow) -> Regression:
    """A comparison with these rows."""
    sides = {"base": "v1", "head": "v2", "run": "", "target": "cpu", "device": "", "silicon": ""}
    return Regression(**sides, margin=0.02, rows=rows)


def timed(verdict: Verdict, change: float, spread: float = 0.002, case: str = "gemm") -> TimedRow:
    """A row with this change, and an interval that reaches so far to either side."""
    ratio = Ratio(ratio=1 + change, low=1 + change - spread, high=1 + change + spread, processes=4)
    return TimedRow(case=case, verdict=verdict, ratio=ratio)


def failed(message: str, base: str = "") -> TimedRow:
    """A row whose head fails so."""
    return TimedRow(case="gemm", verdict="failed", head_message=message, base_message=base)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (timed("regressed", 0.041), SoughtChange(case="gemm", kind="slower", ratio=1.041)),
        (timed("improved", -0.1), SoughtChange(case="gemm", kind="faster", ratio=0.9)),
        (failed("mismatch: 3 of 4"), WRONG),
        (failed("k.py:3: NameError"), SoughtChange(case="gemm", kind="fails")),
    ],
)
def test_the_change_is_the_one_row_that_differs(row: TimedRow, expected: SoughtChange) -> None:
    """Other rows may be as they were."""
    assert find_change(compared(timed("equivalent", 0.0, case="other"), row)) == expected


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ((timed("equivalent", 0.001),), r"nothing has changed.*gemm: equivalent, \+0.10 %"),
        (
            (timed("regressed", 0.1), timed("improved", -0.1, case="b")),
            "2 cases have changed: gemm, b",
        ),
        ((failed("", base="mismatch: all"),), "the good revision fails: mismatch"),
    ],
)
def test_a_range_without_one_change_is_refused(rows: tuple[TimedRow, ...], why: str) -> None:
    """It says what there is."""
    with pytest.raises(UsageError, match=why):
        find_change(compared(*rows))


@pytest.mark.parametrize(
    ("sought", "row", "low", "high"),
    [
        (SLOWER, timed("regressed", 0.04), 0.99, 1.0),
        (SLOWER, timed("equivalent", 0.0), 0.0, 0.01),
        (SLOWER, timed("improved", -0.05), 0.0, 0.01),
        (SLOWER, timed("inconclusive", math.sqrt(1.04) - 1, 0.03), 0.49, 0.51),
        (SLOWER, timed("inconclusive", 0.03, 0.03), 0.6, 0.9),
        (SLOWER, TimedRow(case="gemm", verdict="unchanged"), 0.0, 0.0),
        (SLOWER, TimedRow(case="gemm", verdict="inconclusive"), 0.5, 0.5),
        (SoughtChange(case="gemm", kind="faster", ratio=0.9), timed("improved", -0.1), 0.99, 1.0),
        (SoughtChange(case="gemm", kind="faster", ratio=0.9), timed("regressed", 0.1), 0.0, 0.01),
        (WRONG, failed("mismatch: 1 of 4"), 1.0, 1.0),
        (WRONG, timed("regressed", 3.0), 0.0, 0.0),
    ],
)
def test_a_comparison_gives_a_probability(
    sought: SoughtChange, row: TimedRow, low: float, high: float
) -> None:
    """By where its interval lies to half of the change."""
    has_it = judge_commit(sought, compared(row)).has_it
    assert has_it is not None
    assert low <= has_it <= high


@pytest.mark.parametrize(
    ("sought", "row"),
    [
        (SLOWER, failed("compile_error: no")),
        (SLOWER, TimedRow(case="gemm", verdict="missing")),
        (WRONG, failed("compile_error: no")),
        (WRONG, failed("mismatch: all", base="mismatch: all")),
    ],
)
def test_another_fault_says_nothing(sought: SoughtChange, row: TimedRow) -> None:
    """Such a commit is passed over."""
    assert judge_commit(sought, compared(row)).has_it is None


def test_a_fault_of_the_host_is_none_of_the_commit() -> None:
    """It ends the bisection, and nobody is suspected for it."""
    with pytest.raises(WorkerLostError, match="gemm: not_run"):
        judge_commit(SLOWER, compared(TimedRow(case="gemm", verdict="not_run")))
