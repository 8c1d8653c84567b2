"""What a run achieved: spans of its cases, the bound, the gap and its reasons, and what starting cost."""

import msgspec
import pytest

from tileyard.events import CaseEnded, CaseStarted, Note
from tileyard.model import Outcome, Trial
from tileyard.report.suite_words import describe_time
from tileyard.suite.achieved import (
    Achieved,
    Span,
    join_makespans,
    measure_makespans,
    measure_startup,
)
from tileyard.suite.plan import make_plan
from tileyard.suite.records import Expected, Piece, Plan


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
    for event in (
        CaseStarted(case="t/a", device="slot:1", at=10.0),
        Note(text="something else"),
        ended("t/a", 2.0),
        ended("t/proven", 0.0),
        CaseStarted(case="t/a//2", device="slot:0", at=20.0),
        ended("t/a", 3.0, attempt=2),
    ):
        achieved(event)
    expected = [span("t/a", 10.0, 12.0, "slot:1"), span("t/a", 20.0, 23.0)]
    assert achieved.spans == expected


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
            "3.0 s at the end with fewer than 2 at work, for c",
        ),
        ([span("a", 0.0, 5.0), span("b", 0.0, 8.0, "slot:1")], 0.0, ""),
        (
            [span("a", 0.0, 2.0), span("b", 2.0, 4.0), span("c", 1.0, 5.0, "slot:1")],
            0.0,
            "1.0 s at the end with fewer than 2 at work, for c",
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


def test_a_wrong_expectation_is_told() -> None:
    """By how much cases took longer in all."""
    spans = [span("a", 0.0, 6.0)]
    (found,) = measure_makespans(spans, plan(1, ("a",), total_s=4.0), 0.0)
    assert found.reason == "cases took +50% against what was expected"


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
    assert (found.startup_s, found.lead_s) == (0.5, 2.0)


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
    built = measure_startup(spans, pieces, None)
    assert built is not None
    assert (built.launch_s, built.lead_s) == (None, None)
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


def test_a_prediction_from_nothing_is_called_a_guess() -> None:
    """Where nothing was known of some cases, who reads the prediction is told of how many."""
    guessed = msgspec.structs.replace(plan(2, ("a",), ("b",)), guessed=2)
    (makespan,) = measure_makespans([span("a", 0.0, 1.0), span("b", 0.0, 2.0)], guessed, 0.0)
    expected = "predicted 7.0 s (a guess: nothing was known of 2 cases), achieved"
    assert expected in describe_time(makespan)
    (known,) = measure_makespans([span("a", 0.0, 1.0)], plan(2, ("a",)), 0.0)
    assert "guess" not in describe_time(known)


def test_a_plan_counts_what_it_guessed() -> None:
    """Cases of which neither a history nor a family tells anything."""
    known = Expected(case="t/a", testcase="t", seconds=1.0, source="family")
    unknown = Expected(case="t/b", testcase="t", seconds=10.0, source="default")
    expected = 1
    assert make_plan([known, unknown], 2).guessed == expected
    assert make_plan([known], 2).guessed == 0
