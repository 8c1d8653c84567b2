"""Budgets: what runs fits, what matters goes first, and what is left out is told of."""

from collections.abc import Sequence
from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileyard.base.errors import UsageError
from tileyard.base.model import CommandWork, KernelWork, Outcome, Step
from tileyard.base.quarantine import Quarantine
from tileyard.store.base import RunTime
from tileyard.verbs.test.options import Wish
from tileyard.verbs.test.plan.budget import (
    Bounds,
    CaseFacts,
    Outlook,
    expect_all,
    fit_budget,
    gather_facts,
    look_ahead,
    rank,
    target_of,
)
from tileyard.verbs.test.plan.durations import Known
from tileyard.verbs.test.plan.pieces import NO_COSTS, Costs, Shard
from tileyard.verbs.test.plan.plan import make_plan
from tileyard.verbs.test.result.result import Expected, Policy, Suite, SuiteCase

PROGRAM = CommandWork(run=Step(argv=("true",)))
FAMILIES = {"sum": 3, "sort": 2}


def facts(name: str, seconds: float, family: str = "f", **fields: object) -> CaseFacts:
    """What is known of a case ``testcase/name``."""
    testcase = name.partition("/")[0]
    expected = Expected(case=name, testcase=testcase, seconds=seconds)
    return CaseFacts(expected=expected, family=family, **fields)  # type: ignore[arg-type]  # fields by name


def fitting(
    content: list[CaseFacts], budget_s: float, slots: int, costs: Costs = NO_COSTS
) -> tuple[str, ...]:
    """The cases that run, in the order given."""
    left_out = fit_budget(content, budget_s, slots, costs)
    return tuple(one.expected.case for one in content if one.expected.case not in left_out)


all_facts = st.lists(
    st.builds(
        lambda seconds, family, testcase, failures: (seconds, family, testcase, failures),
        st.floats(0.01, 50.0),
        st.sampled_from("abc"),
        st.sampled_from("tuvw"),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=40,
).map(
    lambda rows: [
        facts(f"{t}/{i}", seconds, family, failures=failures, runs=3)
        for i, (seconds, family, t, failures) in enumerate(rows)
    ]
)


@pytest.mark.slow
@settings(deadline=None)
@given(
    all_facts,
    st.floats(50.0, 300.0),
    st.integers(1, 8),
    st.sampled_from([Costs(), Costs(startup_s=1.0), Costs(startup_s=1.0, launch_s=0.5)]),
)
def test_what_runs_fits_and_nothing_is_lost(
    content: list[CaseFacts], budget_s: float, slots: int, costs: Costs
) -> None:
    """Every case runs or is left out with a reason, and the plan of those that run keeps the budget."""
    try:
        found = fit_budget(content, budget_s, slots, costs)
    except UsageError:
        assert min(one.expected.seconds for one in content) + costs.startup_s > budget_s
        return
    assert found.keys() <= {one.expected.case for one in content}
    assert all(found.values())
    running = [one.expected for one in content if one.expected.case not in found]
    assert make_plan(running, slots, costs=costs).predicted_s <= budget_s * (1 + 1e-6)


def test_what_matters_goes_first() -> None:
    """Recently failing, one of each family that is not covered, then the cheap ones."""
    content = [
        facts("t/cheap", 1.0, "sum"),
        facts("t/cheaper", 0.5, "sum"),
        facts("t/failed", 40.0, "sum", failures=1, runs=4),
        facts("t/new", 30.0, "scan"),
        facts("t/newer", 20.0, "scan"),
    ]
    expected = ["t/failed", "t/newer", "t/cheaper", "t/cheap", "t/new"]
    assert [one.expected.case for one in rank(content)] == expected


def test_what_fails_more_often_is_worth_more() -> None:
    """Of two cases that take the same time the one that failed more often goes first."""
    often = facts("t/often", 5.0, failures=3, runs=4)
    seldom = facts("t/seldom", 5.0, failures=1, runs=4)
    expected = [often, seldom]
    assert rank([seldom, often]) == expected


def test_reasons_are_told() -> None:
    """A case that is too long alone, and one for which no room was left."""
    content = [facts("t/a", 50.0), facts("t/b", 90.0), facts("t/c", 300.0)]
    found = fit_budget(content, 100.0, 1)
    expected = {
        "t/b": "takes 90 s, and 50 s of all slots' time were left when its turn came",
        "t/c": "takes 5 min alone, more than the budget of 100 s",
    }
    assert fitting(content, 100.0, 1) == ("t/a",)
    assert found == expected


def test_smaller_cases_fill_what_a_large_one_leaves() -> None:
    """A case that failed and does not fit keeps nobody else out."""
    content = [
        facts("t/a", 80.0, failures=1, runs=4),
        facts("t/b", 60.0, failures=1, runs=4),
        facts("t/c", 15.0),
    ]
    expected = ("t/b", "t/c")
    assert fitting(content, 100.0, 1) == expected


def test_start_up_is_part_of_the_budget() -> None:
    """Two testcases of 40 s fit into 100 s, but not with 15 s to start each."""
    content = [facts("t/a", 40.0), facts("u/a", 40.0)]
    expected = [2, 1]
    found = [fitting(content, 100.0, 1, Costs(startup_s=s)) for s in (0.0, 15.0)]
    assert [len(cases) for cases in found] == expected


def test_more_slots_hold_more() -> None:
    """The budget is of wall time."""
    content = [facts(f"t/{i}", 10.0) for i in range(100)]
    expected = [1, 4, 40]
    assert [len(fitting(content, 10.0, slots)) for slots in (1, 4, 40)] == expected


def test_facts_come_from_what_ran() -> None:
    """Failures are counted over all attempts; a lost device is not a failure."""
    outcomes = [
        ("t/a", Outcome.MISMATCH),
        ("t/a", Outcome.PASSED),
        ("t/b", Outcome.INFRA_ERROR),
        ("t/b", Outcome.PASSED),
    ]
    times = [
        RunTime(
            case=case,
            testcase="t",
            target="",
            device="",
            outcome=outcome,
            started_at=0.0,
            run_s=1.0,
        )
        for case, outcome in outcomes
    ]
    cases = [Expected(case=f"t/{name}", testcase="t", seconds=1.0) for name in "abc"]
    found = gather_facts(cases, ["x", "y", "z"], times)
    expected = [("x", 1, 2), ("y", 0, 1), ("z", 0, 0)]
    assert [(f.family, f.failures, f.runs) for f in found] == expected


@pytest.mark.parametrize(
    ("budget_s", "slots", "expected"),
    [
        (1.0, 1, "no case fits into a budget of 1 s: the shortest of 1 is expected to take 5 s"),
        (10.0, 0, "0 slots run nothing"),
    ],
)
def test_budgets_for_nothing_are_refused(budget_s: float, slots: int, expected: str) -> None:
    """A run of no case is not a run."""
    with pytest.raises(UsageError, match=expected):
        fit_budget([facts("t/a", 5.0)], budget_s, slots)


def test_slots_that_end_unevenly_hold_less() -> None:
    """Five cases of a minute are 300 s, but do not end within 100 s on three slots."""
    content = [facts(f"t{i}/0", 60.0) for i in range(5)]
    found = fitting(content, 100.0, 3)
    expected = 3
    assert len(found) == expected
    running = [one.expected for one in content if one.expected.case in found]
    assert make_plan(running, 3).predicted_s <= 100.0


def make_suite(**changes: object) -> Suite:
    """Three cases of one family and two of another; ``changes`` are fields of the suite."""
    cases = tuple(
        SuiteCase(testcase=family, name=str(number), work=PROGRAM, family=family, dtype="float32")
        for family, count in FAMILIES.items()
        for number in range(count)
    )
    fields: dict[str, object] = {"name": "s", "path": "/s.toml", "folder": "/", "cases": cases}
    return Suite(**{**fields, **changes})  # type: ignore[arg-type]  # fields of a suite


def expected_of(suite: Suite, seconds: float = 10.0) -> dict[str, Expected]:
    """All cases take as long."""
    return {
        case.id: Expected(case=case.id, testcase=case.testcase, seconds=seconds)
        for case in suite.cases
    }


def look(suite: Suite, bounds: Bounds | None = None, wish: Wish | None = None) -> Outlook:
    """The outlook, with no history."""
    expected = expected_of(suite)
    return look_ahead(suite, wish or Wish(), lambda _: expected, bounds or Bounds(), ())


def ids(outlook: Outlook) -> list[str]:
    """What runs."""
    return [case.id for case in outlook.selection.cases]


def test_all_of_a_suite_runs_unless_somebody_says_otherwise() -> None:
    """Nothing is left out, no family is uncovered, and what is expected is known of each."""
    suite = make_suite()
    outlook = look(suite)
    assert ids(outlook) == [case.id for case in suite.cases]
    assert (outlook.selection.left_out, outlook.selection.uncovered) == ((), ())
    assert [one.case for one in outlook.of(suite.cases[3:])] == ["sort/0", "sort/1"]


@pytest.mark.parametrize("count", [2, 3])
def test_shards_part_what_was_chosen(count: int) -> None:
    """Each case is in exactly one; those of others say so; only what is chosen is parted."""
    suite = make_suite()
    wish = Wish(select=("sum",))
    found: list[str] = []
    for number in range(1, count + 1):
        bounds = Bounds(shard=Shard(number=number, count=count))
        outlook = look(suite, bounds, wish)
        found += ids(outlook)
        reason = f"another shard than {number}/{count} runs it"
        others = {left.case for left in outlook.selection.left_out if left.reason == reason}
        assert others | set(ids(outlook)) == {"sum/0", "sum/1", "sum/2"}
    assert sorted(found) == ["sum/0", "sum/1", "sum/2"]


def test_a_budget_takes_what_fits_and_lists_the_rest() -> None:
    """A family of which nothing fits is uncovered."""
    suite = make_suite()
    outlook = look(suite, Bounds(budget_s=10.0))
    (kept,) = outlook.selection.cases
    left = {one.case for one in outlook.selection.left_out}
    expected = {case.id for case in suite.cases} - {kept.id}
    assert left == expected
    assert all(one.reason for one in outlook.selection.left_out)
    assert set(outlook.selection.uncovered) == FAMILIES.keys() - {kept.family}


def test_a_budget_is_one_of_wall_time() -> None:
    """On more slots more fits."""
    suite = make_suite()
    counts = [len(ids(look(suite, Bounds(budget_s=21.0, slots=slots)))) for slots in (1, 2, 3)]
    assert counts == [2, 4, 5]


def test_the_policys_budget_counts_unless_another_is_asked_for() -> None:
    """What is asked for may be more."""
    suite = make_suite(policies={"quick": Policy(name="quick", budget_s=11.0)})
    wish = Wish(policy="quick")
    counts = [len(ids(look(suite, bounds, wish))) for bounds in (Bounds(), Bounds(budget_s=31.0))]
    assert counts == [1, 3]


def test_a_quarantine_stays_with_the_cases_that_are_kept() -> None:
    """That of a case which another shard runs is of no concern here."""
    care = Quarantine(cases="*", owner="ana", reason="why", until=date.max)
    outlook = look(make_suite(quarantine=(care,)), Bounds(budget_s=10.0))
    assert list(outlook.selection.quarantined) == ids(outlook)


def test_nothing_to_run_is_refused() -> None:
    """It is no success."""
    with pytest.raises(UsageError, match="budget"):
        look(make_suite(), Bounds(budget_s=1.0))


def test_programs_and_kernels_have_their_own_targets_and_times() -> None:
    """A time that was measured on another class of devices, or for another target, counts less."""
    kernel = SuiteCase(testcase="gemm", name="k", work=KernelWork(file="gemm.py"))
    program = SuiteCase(testcase="sum", name="p", work=PROGRAM)
    suite = make_suite(cases=(kernel, program))
    targets = {case.id: target_of(case, "cpu") for case in suite.cases}
    assert targets == {"gemm/k": "cpu", "sum/p": "command"}
    found = expect_all(
        suite,
        (),
        {"cpu": "cpu", "command": "slot"},
        lambda case: targets[case.id],
        {"sum/p": Known(seconds=3.0, high_s=4.0, samples=5)},
    )
    assert (found["sum/p"].seconds, found["sum/p"].source) == (3.0, "history")
    assert found["gemm/k"].source != "history"


def test_a_shard_is_cut_without_the_store_and_expected_with_it() -> None:
    """Jobs with stores of their own agree on what each runs; a prediction is of what is known here."""
    suite = make_suite()
    known = RunTime(
        case="sum/0",
        testcase="sum",
        target="command",
        device="slot:0",
        outcome=Outcome.PASSED,
        started_at=1.0,
        run_s=500.0,
    )
    seen: list[int] = []

    def expecting(times: Sequence[RunTime]) -> dict[str, Expected]:
        seen.append(len(times))
        return expected_of(suite, 500.0 if times else 10.0)

    bounds = Bounds(shard=Shard(number=1, count=2))
    outlook = look_ahead(suite, Wish(), expecting, bounds, (known,))
    assert ids(outlook) == ids(look(suite, bounds))
    assert {one.seconds for one in outlook.expected.values()} == {500.0}
    assert sorted(seen) == [0, 1]
    assert sum(outlook.shards_s) == 50.0
    assert outlook.shards_s[0] == 10.0 * len(ids(outlook))
