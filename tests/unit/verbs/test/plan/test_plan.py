"""Plans: nothing is lost or doubled, the longest comes first, and splitting pays or is left alone."""

import csv
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import ROOT

from tileyard.base.errors import UsageError
from tileyard.verbs.test.plan.pieces import Costs
from tileyard.verbs.test.plan.plan import Split, compare, make_plan
from tileyard.verbs.test.result.result import Expected

LONG_TAIL = ROOT / "tests" / "data" / "st_long_tail.csv"
SLOTS = 64

times = st.floats(min_value=0.0, max_value=1e4, allow_subnormal=False)
suites = st.lists(st.lists(times, min_size=1, max_size=12), min_size=1, max_size=12).map(
    lambda testcases: [
        Expected(case=f"t{t}/{c}", testcase=f"t{t}", seconds=seconds)
        for t, own in enumerate(testcases)
        for c, seconds in enumerate(own)
    ]
)
splits = st.one_of(st.sampled_from(["auto", "off"]), st.floats(min_value=0.1, max_value=1e4))
all_costs = st.builds(
    Costs,
    startup_s=st.sampled_from([0.0, 1.5, 40.0]),
    launch_s=st.sampled_from([0.0, 0.25]),
    per=st.sampled_from(["piece", "case"]),
)


def read_long_tail(case_s: float) -> list[Expected]:
    """The long tail of a real suite, as cases of the given length."""
    lines = LONG_TAIL.read_text(encoding="utf-8").splitlines()
    found = []
    for row in csv.DictReader(line for line in lines if not line.startswith("#")):
        left_s, number = float(row["seconds"]), 0
        while left_s > 1e-9:
            name = row["testcase"]
            found.append(
                Expected(case=f"{name}/{number}", testcase=name, seconds=min(case_s, left_s))
            )
            left_s, number = left_s - case_s, number + 1
    return found


@pytest.mark.slow
@given(suites, st.integers(1, 20), splits, all_costs)
def test_every_case_is_in_exactly_one_piece(
    cases: list[Expected], slots: int, split: Split, costs: Costs
) -> None:
    """Whatever is split, no case is lost or doubled, and pieces hold cases of their own testcase."""
    expected = sorted((case.testcase, case.case) for case in cases)
    plan = make_plan(cases, slots, split, costs)
    assert sorted((p.testcase, case) for p in plan.pieces for case in p.cases) == expected


@pytest.mark.slow
@given(suites, st.integers(1, 20), splits, all_costs)
def test_predictions_keep_to_their_bounds(
    cases: list[Expected], slots: int, split: Split, costs: Costs
) -> None:
    """No plan beats its bound, and without launches none is above Graham's for the longest first."""
    plan = make_plan(cases, slots, split, costs)
    rounding = 1e-6
    assert plan.predicted_s >= plan.bound_s
    assert plan.bound_s >= plan.longest_s
    assert plan.bound_s * slots >= plan.total_s - rounding
    if not costs.launch_s:
        expected_s = plan.total_s / slots + (1 - 1 / slots) * plan.longest_s
        assert plan.predicted_s <= expected_s + rounding


@pytest.mark.slow
@given(suites, st.integers(1, 20), all_costs)
def test_the_search_is_never_worse_than_whole_testcases(
    cases: list[Expected], slots: int, costs: Costs
) -> None:
    """Splitting is done where it shortens the run."""
    whole_s = make_plan(cases, slots, "off", costs).predicted_s
    # With launches in chains the search goes without them, so it may be off by what they cost.
    launches_s = costs.launch_s * len(cases) if costs.per == "case" else 0.0
    assert make_plan(cases, slots, "auto", costs).predicted_s <= whole_s + launches_s + 1e-6


@pytest.mark.slow
@given(suites, st.floats(min_value=0.1, max_value=1e4))
def test_no_piece_is_longer_than_asked_for(cases: list[Expected], limit_s: float) -> None:
    """Except for single cases, which cannot be split."""
    plan = make_plan(cases, 4, limit_s)
    rounding = 1 + 1e-6
    assert all(p.expected_s <= limit_s * rounding for p in plan.pieces if len(p.cases) > 1)


@pytest.mark.slow
@given(suites, splits)
def test_the_longest_starts_first(cases: list[Expected], split: Split) -> None:
    """Pieces come in the order of their length, and cases within them in the order given."""
    plan = make_plan(cases, 4, split)
    lengths = [piece.expected_s for piece in plan.pieces]
    places = {case.case: place for place, case in enumerate(cases)}
    expected = sorted(lengths, reverse=True)
    assert lengths == expected
    assert all(
        list(piece.cases) == sorted(piece.cases, key=places.__getitem__) for piece in plan.pieces
    )


def test_a_long_tail_is_cut_off() -> None:
    """64 slots run the real suite within 5 % of what any plan with its cases could reach."""
    cases = read_long_tail(60.0)
    expected_s = 1.05 * max(60.0, sum(case.seconds for case in cases) / SLOTS)
    plan = make_plan(cases, SLOTS)
    assert plan.predicted_s <= expected_s
    assert plan.split_s < 5 * 60


def test_usual_ways_are_compared() -> None:
    """Whole testcases need as long as the longest, and fixed pieces more than the search."""
    longest_s = 1493.3
    cases = read_long_tail(60.0)
    by_name, whole, fixed = compare(cases, SLOTS)
    plan = make_plan(cases, SLOTS)
    assert whole.predicted_s == pytest.approx(longest_s)
    assert by_name.predicted_s >= whole.predicted_s > fixed.predicted_s > plan.predicted_s
    assert (by_name.pieces, whole.pieces) == (71, 71)


def test_by_name_means_by_name() -> None:
    """The first in the alphabet starts first, whatever came first in the file."""
    cases = [
        Expected(case=f"{name}/0", testcase=name, seconds=seconds)
        for name, seconds in (("c", 10.0), ("b", 1.0), ("a", 1.0))
    ]
    expected = 11.0
    assert compare(cases, slots=2)[0].predicted_s == expected


def test_testcases_stay_whole_where_splitting_gains_nothing(
    expect_cases: Callable[..., list[Expected]],
) -> None:
    """Start-up is saved by keeping cases together."""
    cases = expect_cases(**{f"t{i}": [1.0] * 10 for i in range(100)})
    plan = make_plan(cases, 4, costs=Costs(startup_s=1.0))
    expected = (100, 0.0)
    assert (len(plan.pieces), plan.split_s) == expected


def test_costly_starts_make_long_pieces() -> None:
    """The dearer a start is, the fewer pieces there are."""
    cases = read_long_tail(10.0)
    counts = [
        len(make_plan(cases, SLOTS, costs=Costs(startup_s=startup_s)).pieces)
        for startup_s in (0.0, 5.0, 60.0)
    ]
    expected = sorted(counts, reverse=True)
    assert counts == expected
    assert len(set(counts)) == len(counts)


@pytest.mark.parametrize(
    ("per", "expected_s"),
    [("piece", 4 * 1.0 + 2.0), ("case", 4 * 3.0)],
)
def test_start_up_is_charged_for_each_process(per: str, expected_s: float) -> None:
    """Once a piece where cases share a process, else once a case."""
    cases = [Expected(case=f"t/{i}", testcase="t", seconds=1.0) for i in range(4)]
    costs = Costs(startup_s=2.0, per=per)  # type: ignore[arg-type]  # from the table above
    assert make_plan(cases, 1, "off", costs).predicted_s == pytest.approx(expected_s)


@pytest.mark.parametrize(
    ("seconds", "costs", "expected"),
    [
        ([[9.0], [1.0], [1.0]], Costs(), "t0 (a single case) takes 9 s, more than the 5.5 s"),
        ([[4.0], [4.0]], Costs(), "no time to speak of is lost"),
        ([[4.0], [4.0], [4.0]], Costs(), "pieces end unevenly: the last one ends 2 s later"),
        ([[4.0], [4.0]], Costs(lead_s=3.0), "3 s pass before the first process can start"),
        ([[4.0], [4.0]], Costs(launch_s=1.0), "1 s are lost because processes start one after"),
    ],
)
def test_the_gap_is_explained(seconds: list[list[float]], costs: Costs, expected: str) -> None:
    """What decides the bound, and where time is lost, stands in the plan."""
    cases = [
        Expected(case=f"t{t}/{c}", testcase=f"t{t}", seconds=one)
        for t, own in enumerate(seconds)
        for c, one in enumerate(own)
    ]
    assert expected in make_plan(cases, 2, costs=costs).reason


@pytest.mark.parametrize(
    ("count", "slots", "split", "expected"),
    [
        (0, 4, "auto", "no case is selected"),
        (1, 0, "auto", "0 slots run nothing"),
        (1, 4, 0.0, "pieces of 0 s hold no case"),
        (1, 4, float("nan"), "pieces of nan s hold no case"),
    ],
)
def test_impossible_plans_are_refused(count: int, slots: int, split: Split, expected: str) -> None:
    """In one line that says what is wrong."""
    cases = [Expected(case=f"t/{i}", testcase="t", seconds=1.0) for i in range(count)]
    with pytest.raises(UsageError, match=expected):
        make_plan(cases, slots, split)
    with pytest.raises(UsageError):
        compare(cases, slots, fixed_s=0.0 if split == "auto" else split)  # type: ignore[arg-type]


def test_whole_testcases_that_come_near_the_floor_are_left_whole() -> None:
    """A gain of 4 % is not worth twice as many pieces; one of 10 % is."""
    near = [
        Expected(case=f"t{i}/{c}", testcase=f"t{i}", seconds=1.0) for i in range(25) for c in (1, 2)
    ]
    far = near[:18] + [Expected(case=f"u/{c}", testcase="u", seconds=1.0) for c in (1, 2)]
    expected = (25, 1.04)
    plan = make_plan(near, 2)
    assert (len(plan.pieces), plan.predicted_s / (plan.total_s / 2)) == expected
    more = make_plan([*far, *near[18:22]], 8)
    assert len(more.pieces) > len({one.testcase for one in [*far, *near[18:22]]})


def test_what_comes_before_the_first_process_is_added() -> None:
    """It moves the end of every plan by as much, and changes no piece."""
    cases = read_long_tail(60.0)
    plan, later = (make_plan(cases, SLOTS, costs=Costs(lead_s=lead_s)) for lead_s in (0.0, 7.0))
    expected_s = plan.predicted_s + 7.0
    assert later.predicted_s == pytest.approx(expected_s)
    assert later.pieces == plan.pieces
    assert later.bound_s == plan.bound_s


def test_of_plans_that_end_together_the_one_with_fewer_pieces_is_taken() -> None:
    """Single cases would end half a second earlier, of nearly ten minutes, with 635 processes."""
    cases = read_long_tail(60.0)
    single = make_plan(cases, SLOTS, 60.0)
    plan = make_plan(cases, SLOTS)
    expected = len(single.pieces) / 2
    assert plan.predicted_s > single.predicted_s
    assert len(plan.pieces) < expected
