"""What a run achieved: spans of its cases, the bound, the gap and its reasons, and what starting cost."""

import msgspec
import pytest

from tileyard.base.events import (
    BuildEnded,
    BuildStarted,
    CaseEnded,
    CaseStarted,
    HostJoined,
    Note,
    StepEnded,
)
from tileyard.base.model import Outcome, Trial
from tileyard.verbs.test.plan.plan import make_plan
from tileyard.verbs.test.result.achieved import (
    Achieved,
    Span,
    StepSpan,
    join_makespans,
    measure_makespans,
    measure_startup,
)
from tileyard.verbs.test.result.result import Expected, Piece, Plan
from tileyard.verbs.test.view.words import describe_time


def span(case: str, begin: float, end: float, device: str = "slot:0") -> Span:
    """When a case ran."""
    return Span(case=case, device=device, begin=begin, end=end)


def plan(slots: int, *pieces: tuple[str, ...], total_s: float = 0.0) -> Plan:
    """A plan of these pieces."""
    return Plan(
        slots=slots,
        pieces=tuple(Piece(testcase="t", cases=cases, expected_s=1.0) for cases in pieces),
        startup_s=0.0,
        total_s=total_s,
        longest_s=1.0,
        bound_s=1.0,
        predicted_s=7.0,
    )


def ended(case: str, run_s: float, attempt: int = 1) -> CaseEnded:
    """The end of a case."""
    return CaseEnded(
        trial=Trial(
            id="1",
            run="r",
            case=case,
            attempt=attempt,
            batch="b",
            target="command",
            outcome=Outcome.PASSED,
            run_s=run_s,
        )
    )


def test_spans_are_kept_of_what_ran() -> None:
    """From where it began, for as long as it ran; attempts belong to their case, what never ran to none."""
    achieved = Achieved()
    joined = HostJoined(host="late", at=11.0)
    for event in (
        CaseStarted(case="t/a", device="slot:1", at=10.0),
        joined,
        Note(text="something else"),
        ended("t/a", 2.0),
        ended("t/proven", 0.0),
        CaseStarted(case="t/a//2", device="slot:0", at=20.0),
        ended("t/a", 3.0, attempt=2),
    ):
        achieved(event)
    expected = [span("t/a", 10.0, 12.0, "slot:1"), span("t/a", 20.0, 23.0)]
    assert achieved.spans == expected
    assert achieved.joined == [joined]


def test_slots_that_joined_count() -> None:
    """The result names the moment, and the bound is that of cases: pieces are divided for them."""
    spans = [span("a", 0.0, 4.0), span("b", 4.0, 6.0), span("c", 3.0, 6.0, "slot:1")]
    (found,) = measure_makespans(spans, plan(2, ("a", "b", "c")), 0.0, joined_s=3.0)
    assert (found.slots, found.bound_s, found.achieved_s) == (2, 4.5, 6.0)
    assert found.reason == "3.0 s before the last of 2 slots had joined"


def test_nothing_ran_is_no_makespan() -> None:
    """Of a run that was all proven there is nothing to tell."""
    assert measure_makespans([], plan(1, ("a",)), 0.0) == []
    assert measure_startup([], plan(1, ("a",)), 0.0) is None
    assert join_makespans([]) is None


@pytest.mark.parametrize(
    ("slots", "expected"),
    [(1, 9.0), (2, 5.0), (9, 5.0)],
)
def test_the_bound_is_that_of_what_was_measured(slots: int, expected: float) -> None:
    """The longest piece, or all of it shared out; attempts at a case add up."""
    spans = [span("a", 0.0, 2.0), span("b", 2.0, 5.0), span("c", 1.0, 4.0), span("c", 4.0, 5.0)]
    (found,) = measure_makespans(spans, plan(slots, ("a", "b"), ("c",)), -1.0)
    assert found.bound_s == expected
    assert (found.total_s, found.achieved_s, found.predicted_s) == (9.0, 6.0, 7.0)
    assert found.slots == slots


@pytest.mark.parametrize(
    ("spans", "began", "expected"),
    [
        ([span("a", 0.0, 5.0), span("b", 0.0, 5.0, "slot:1")], 0.0, ""),
        (
            [span("a", 2.0, 7.0), span("b", 2.0, 7.0, "slot:1")],
            0.0,
            "2.0 s before the first case could start",
        ),
        (
            [span("a", 0.0, 5.0), span("b", 0.0, 4.0, "slot:1"), span("c", 4.0, 8.0, "slot:1")],
            0.0,
            "fewer than 2 slots busy for the last 3.0 s, for c",
        ),
        ([span("a", 0.0, 5.0), span("b", 0.0, 8.0, "slot:1")], 0.0, ""),
        (
            [span("a", 0.0, 2.0), span("b", 2.0, 4.0), span("c", 1.0, 5.0, "slot:1")],
            0.0,
            "fewer than 2 slots busy for the last 1.0 s, for c",
        ),
        (
            [
                span("a", 0.0, 2.0),
                span("b", 3.0, 6.0),
                span("c", 0.0, 3.0, "slot:1"),
                span("d", 4.0, 6.0, "slot:1"),
            ],
            0.0,
            "starting processes, and slots that waited for a build",
        ),
    ],
)
def test_the_gap_has_its_reason(spans: list[Span], began: float, expected: str) -> None:
    """Before the first case, at the end, or in between; no reason is needed where there is no gap."""
    (found,) = measure_makespans(spans, plan(2, ("a",), ("b",), ("c",), ("d",)), began)
    assert found.reason == expected
    assert (found.achieved_s > found.bound_s) == bool(expected)


@pytest.mark.parametrize(
    ("slots", "total_s", "guessed", "expected"),
    [
        (1, 4.0, 0, "cases took 50 % more time than predicted"),
        (1, 12.0, 0, "cases took 50 % less time than predicted"),
        (1, 2.0, 0, "cases took 3.0 times as long as predicted"),
        (1, 4.0, 1, ""),
        (100, 4.0, 0, ""),
    ],
)
def test_a_wrong_prediction_is_reported(
    slots: int, total_s: float, guessed: int, expected: str
) -> None:
    """Where it was not a guess, and where the slots' time shows the error."""
    planned = msgspec.structs.replace(plan(slots, ("a",), total_s=total_s), guessed=guessed)
    (found,) = measure_makespans([span("a", 0.0, 6.0)], planned, 0.0)
    assert found.reason == expected


def test_starting_costs_what_lies_between_two_pieces_of_a_device() -> None:
    """Its lower quartile: above it, a device also waited; nothing within a piece, or between devices."""
    pieces = plan(2, ("a", "b"), ("c",), ("d",), ("e",), ("f",))
    spans = [
        span("a", 3.0, 4.0),
        span("b", 9.0, 10.0),  # of the same piece
        span("c", 10.5, 11.0),  # 0.5 s
        span("d", 31.0, 32.0),  # 20 s
        span("e", 5.0, 6.0, "slot:1"),
        span("f", 9.0, 10.0, "slot:1"),  # 3 s
    ]
    found = measure_startup(spans, pieces, 1.0)
    assert found is not None
    assert (found.startup_s, found.lead_s) == (0.5, 1.0)


def test_a_gap_in_which_steps_had_the_cores_is_no_start() -> None:
    """The slot waited for them; if they fill every gap, what starting costs stays unknown."""
    pieces = plan(1, ("a",), ("b",), ("c",))
    spans = [span("a", 1.0, 2.0), span("b", 5.0, 6.0), span("c", 6.25, 7.0)]
    first = StepSpan(case="a", step="check", begin=2.0, end=4.9)
    second = StepSpan(case="b", step="check", begin=6.0, end=6.2)
    found = measure_startup(spans, pieces, 1.0, rivals=[first])
    filled = measure_startup(spans, pieces, 1.0, rivals=[second, first])
    assert found is not None
    assert filled is not None
    assert (found.startup_s, filled.startup_s, filled.lead_s) == (0.25, None, 1.0)


def test_a_launch_is_how_far_apart_the_first_cases_begin() -> None:
    """On their devices; those that began when another had already ended waited for something else."""
    pieces = plan(4, ("a",), ("b",), ("c",), ("d",), ("e",))
    spans = [
        span("a", 3.0, 9.0),
        span("b", 3.25, 5.0, "slot:1"),
        span("c", 4.0, 9.0, "slot:2"),
        span("d", 8.0, 9.0, "slot:3"),
        span("e", 6.0, 7.0, "slot:1"),
    ]
    alone = [span("a", 3.0, 4.0), span("b", 5.0, 6.0)]
    expected = 0.5
    launched = measure_startup(spans, pieces, 1.0)
    assert launched is not None
    assert launched.launch_s == expected
    built = measure_startup(spans, pieces, 1.0, has_waited=True)
    assert built is not None
    assert (built.launch_s, built.lead_s) == (None, 1.0)
    single = measure_startup(alone, pieces, 1.0)
    assert single is not None
    assert single.launch_s is None


def test_one_piece_on_each_device_says_nothing_of_starting() -> None:
    """There is nothing between two of them."""
    spans = [span("a", 0.0, 1.0), span("b", 0.0, 1.0, "slot:1")]
    assert measure_startup(spans, plan(2, ("a",), ("b",)), 0.0) is None


def test_parts_that_ran_one_after_another_add_up() -> None:
    """A single part is the whole; the reasons of several stand side by side."""
    (first,) = measure_makespans([span("a", 2.0, 4.0)], plan(1, ("a",)), 0.0)
    (second,) = measure_makespans([span("b", 0.0, 6.0)], plan(3, ("b",)), 0.0)
    both = join_makespans([first, second])
    assert join_makespans([first]) == first
    assert both is not None
    assert (both.slots, both.total_s, both.achieved_s) == (4, 8.0, 6.0)
    assert both.reason.startswith("2.0 s before the first case could start")


@pytest.mark.parametrize(
    ("seconds", "begin", "guessed", "high_s", "expected"),
    [
        (30.0, 6.0, 0, 0.0, "30 s, predicted 7.0 s, achieved 36 s; gap 6.0 s, 20.0%: 6.0 s before"),
        (
            30.0,
            6.0,
            2,
            60.0,
            "predicted 7.0 s (a guess, between 40 s and 60 s: nothing was known of 2 cases), achieved",
        ),
        (30.0, 6.0, 2, 4000.0, "total/slots) 30 s, achieved 36 s; gap 6.0 s, 20.0%: 6.0 s before"),
        (0.5, 60.0, 0, 0.0, "0.5 s, predicted 7.0 s, achieved 60 s: 60.0 s before"),
        (0.5, 4.0, 0, 0.0, ""),
    ],
)
def test_the_sentence_about_time_has_only_figures_that_say_something(
    seconds: float, begin: float, guessed: int, high_s: float, expected: str
) -> None:
    """No vague guess, no gap above the bound, and nothing of a short run."""
    planned = plan(1, ("a",))
    planned = msgspec.structs.replace(planned, guessed=guessed, low_s=40.0, high_s=high_s)
    (makespan,) = measure_makespans([span("a", begin, begin + seconds)], planned, 0.0)
    described = describe_time(makespan)
    assert expected in described
    assert bool(expected) == bool(described)


def test_the_lead_of_a_run_is_what_neither_builds_nor_golden_steps_explain() -> None:
    """Before its first case, also in a run that builds all; a repeated build counts from the first."""
    achieved = Achieved()
    for event in (
        BuildStarted(case="t/a", at=12.0),
        BuildStarted(case="t/a", at=14.0),
        BuildEnded(case="t/a", at=15.0, ok=True, reused=False),
        StepEnded(case="t/a", step="golden", at=17.0, seconds=3.0),
        CaseStarted(case="t/a", device="slot:0", at=18.5),
        ended("t/a", 2.0),
    ):
        achieved(event)
    assert (achieved.measure_lead(10.0), achieved.has_waited) == (3.5, True)


def test_a_run_ends_with_its_last_check_and_names_the_steps_in_its_gap() -> None:
    """What they took in all, and what came after the last run."""
    steps = [
        StepSpan(case="a", step="golden", begin=0.0, end=1.0),
        StepSpan(case="a", step="check", begin=5.0, end=7.5),
        StepSpan(case="b", step="check", begin=7.5, end=10.0),
    ]
    spans = [span("a", 1.0, 5.0), span("b", 1.0, 6.0, "slot:1")]
    (found,) = measure_makespans(spans, plan(2, ("a",), ("b",)), 0.0, steps)
    assert found.achieved_s == 10.0
    assert found.reason.endswith(
        "beside the runs 1 golden step took 1.0 s and 2 check steps took 5.0 s,"
        " 4.0 s of it after the last run"
    )


def test_a_plan_counts_what_it_guessed() -> None:
    """Cases of which neither a history nor a family tells anything."""
    known = Expected(case="t/a", testcase="t", seconds=1.0, source="family")
    unknown = Expected(case="t/b", testcase="t", seconds=10.0, source="default")
    expected = 1
    assert make_plan([known, unknown], 2).guessed == expected
    alone = make_plan([unknown], 2)
    assert alone.low_s * 10 == alone.predicted_s == alone.high_s / 10
    assert make_plan([known], 2).guessed == 0
