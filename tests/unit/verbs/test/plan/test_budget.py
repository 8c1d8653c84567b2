"""Budgets: what runs fits, what matters goes first, and what is left out is told of."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileyard.base.errors import UsageError
from tileyard.base.model import Outcome
from tileyard.store.base import RunTime
from tileyard.verbs.test.plan.budget import CaseFacts, fit_budget, gather_facts, rank
from tileyard.verbs.test.plan.pieces import NO_COSTS, Costs
from tileyard.verbs.test.plan.plan import make_plan
from tileyard.verbs.test.result.records import Expected


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
