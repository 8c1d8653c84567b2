"""When a run ends whose golden and check steps share lanes."""

import pytest

from tileyard.verbs.test.plan.lanes import Room, Timed, simulate_steps
from tileyard.verbs.test.plan.pieces import Costs
from tileyard.verbs.test.plan.plan import make_plan
from tileyard.verbs.test.result.records import Expected


def timed(golden_s: float, run_s: float, check_s: float, golden: int = -1) -> Timed:
    """A case."""
    return Timed(golden_s=golden_s, run_s=run_s, check_s=check_s, golden=golden)


@pytest.mark.parametrize(
    ("cases", "slots", "lanes", "expected"),
    [
        ([timed(0, 3, 1), timed(0, 3, 1)], 2, 2, 4),
        ([timed(0, 3, 1), timed(0, 3, 1)], 2, 1, 5),
        ([timed(0, 3, 1), timed(0, 3, 1)], 1, 1, 7),
        ([timed(5, 1, 0, 0), timed(0, 1, 0, 0)], 2, 2, 6),
        ([timed(2, 4, 0, 0), timed(2, 4, 0, 1)], 2, 1, 8),
        ([timed(0, 1, 0), timed(9, 1, 2, 1)], 2, 1, 12),
    ],
)
def test_runs_wait_for_golden_data_and_checks_for_lanes(
    cases: list[Timed], slots: int, lanes: int, expected: float
) -> None:
    """A shared golden step is waited for by all; checks go before golden steps that have not begun."""
    pieces = [range(case, case + 1) for case in range(len(cases))]
    assert simulate_steps(cases, pieces, Room(slots, lanes, slots + lanes)) == expected


@pytest.mark.parametrize(
    ("cases", "room", "expected"),
    [
        ([timed(0, 3, 1), timed(0, 3, 1)], Room(2, 2, 2), 4),
        ([timed(0, 3, 1), timed(0, 3, 1), timed(0, 3, 1)], Room(2, 2, 2), 7),
        ([timed(0, 3, 1), timed(0, 3, 1)], Room(1, 1, 1), 8),
        ([timed(2, 4, 0, 0), timed(2, 4, 0, 1)], Room(2, 1, 2), 8),
        ([timed(2, 4, 0, 0), timed(2, 4, 0, 1)], Room(1, 1, 1), 12),
    ],
)
def test_slots_and_lanes_that_share_places_wait_for_each_other(
    cases: list[Timed], room: Room, expected: float
) -> None:
    """First come, first served: a check waits for earlier runs, and the next run for the check."""
    pieces = [range(case, case + 1) for case in range(len(cases))]
    assert simulate_steps(cases, pieces, room) == expected


def test_the_cases_of_a_piece_run_one_after_another() -> None:
    """On the slot of their piece."""
    cases = [timed(0, 2, 0), timed(0, 2, 1), timed(0, 1, 0)]
    assert simulate_steps(cases, [range(2), range(2, 3)], Room(2, 1, 3)) == 5


def test_a_case_waits_for_its_own_golden_result_alone() -> None:
    """Wherever the case stands whose step makes it; not for what other cases of its testcase miss."""
    made = Expected(case="t/made", testcase="t", seconds=9.0)
    slow = Expected(case="t/slow", testcase="t", seconds=1.0, golden_s=8.0, golden="g")
    other = Expected(case="u/a", testcase="u", seconds=9.0, golden="g")
    found = [
        make_plan(cases, 3, 0.5, Costs(lanes=1)).predicted_s
        for cases in ((made, slow), (slow, other))
    ]
    assert found == [9.0, 17.0]


def test_a_plan_counts_steps_and_names_them_in_its_gap() -> None:
    """No step of it is a run, so the bound of the pieces stays what it was."""
    expected = [
        Expected(
            case=f"t{n}/a", testcase=f"t{n}", seconds=1.0, golden_s=2.0, check_s=3.0, golden=f"g{n}"
        )
        for n in range(4)
    ]
    plain = make_plan(expected, 4)
    plan = make_plan(expected, 4, costs=Costs(lanes=2))
    assert (plain.predicted_s, plan.bound_s, plan.predicted_s) == (1.0, 1.0, 10.0)
    assert plan.reason == (
        "4 golden steps (8 s) and 4 check steps (12 s) on 2 lanes delay the end by 9 s"
    )
