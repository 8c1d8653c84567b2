"""What a bisection looks for, and what a comparison of one commit says of it."""

import math

import msgspec
import pytest

from tileyard.base.errors import UsageError, WorkerLostError
from tileyard.verbs.regress.plan.sought import SoughtChange, find_change, judge_commit
from tileyard.verbs.regress.result import (
    Change,
    Gate,
    Ratio,
    Regression,
    TimedRow,
    Verdict,
    parse_limits,
)

SLOWER = SoughtChange(case="gemm", kind="slower", ratio=1.04)
WRONG = SoughtChange(case="gemm", kind="fails", outcome="mismatch")


REGISTERS = Change(metric="registers", base=32, head=40)
MORE = SoughtChange(case="gemm", kind="figure", figure=REGISTERS)
LIMITS = parse_limits("spills:+0,registers:+0,code:-0")


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


def test_of_numbers_the_direction_says_which_is_worse() -> None:
    """A smaller number is worse where more is better."""
    fields = {"unit": "GB/s", "better": "higher"}
    worse = msgspec.structs.replace(timed("regressed", -0.5), **fields)
    better = msgspec.structs.replace(timed("improved", 0.5), **fields)
    found = [find_change(compared(row)).kind for row in (worse, better)]
    assert found == ["worse", "better"]
    has_it = [
        judge_commit(find_change(compared(worse)), compared(one)).has_it for one in (worse, better)
    ]
    assert has_it == [pytest.approx(1), pytest.approx(0)]


def built(*changes: Change, limited: bool = True) -> TimedRow:
    """A kernel that was built and not run, judged by LIMITS."""
    row = TimedRow(case="gemm", verdict="inconclusive", changes=changes)
    return Gate(margin=0.02, limits=LIMITS if limited else ()).judge([row])[0][0]


def test_the_figure_is_the_first_that_breaks_a_limit() -> None:
    """In the order of limits; a kernel that cannot be built comes before; what breaks none is left out."""
    smaller = Change(metric="code", base=64, head=32)
    spills = Change(metric="spills", base=8, head=0)
    assert find_change(compared(built(smaller, REGISTERS)), LIMITS) == MORE
    assert find_change(compared(failed("compile_error: no")), LIMITS).kind == "fails"
    unbroken = "^no limit of --fail-on is broken from good to bad: gemm: spills 8 -> 0$"
    with pytest.raises(UsageError, match=unbroken):
        find_change(compared(built(spills)), LIMITS)
    with pytest.raises(UsageError, match="all figures are equal"):
        find_change(compared(TimedRow(case="gemm", verdict="unchanged")), LIMITS)
    with pytest.raises(UsageError, match="nothing has changed") as refused:
        find_change(compared(built(REGISTERS, limited=False)))
    assert "--fail-on looks for these. gemm: registers 32 -> 40" in str(refused.value.hint)


@pytest.mark.parametrize(
    ("changes", "has_it", "why"),
    [
        ((), 0.0, "equal registers"),
        ((Change(metric="code", base=1, head=2),), 0.0, "equal registers"),
        ((REGISTERS,), 1.0, "registers 32 -> 40"),
        ((Change(metric="registers", base=32, head=37),), 1.0, "registers 32 -> 37"),
        ((Change(metric="registers", base=32, head=36),), 0.0, "registers 32 -> 36"),
        ((Change(metric="registers", base=32, head=24),), 0.0, "registers 32 -> 24"),
        (
            (Change(metric="registers", base=8, head=9, function="other"),),
            0.0,
            "registers of other 8 -> 9",
        ),
        (
            (Change(metric="registers", base=None, head=40, function="renamed"),),
            None,
            "registers of renamed ? -> 40",
        ),
    ],
)
def test_a_figure_has_moved_by_more_than_half(
    changes: tuple[Change, ...], has_it: float | None, why: str
) -> None:
    """Or it has not; where the function is called otherwise nothing is known."""
    answer = judge_commit(MORE, compared(built(*changes)))
    assert (answer.has_it, answer.why) == (has_it, why)


def test_against_its_parent_a_commit_needs_to_have_moved_the_figure_at_all() -> None:
    """It may be the last of several that each moved it by less than half."""
    moved = {36: 1.0, 32: 0.0, 28: 0.0}
    for head, has_it in moved.items():
        row = built(Change(metric="registers", base=32, head=head))
        assert judge_commit(MORE, compared(row), is_parent=True).has_it == has_it


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
        (MORE, failed("compile_error: no")),
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
