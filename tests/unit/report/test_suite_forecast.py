"""When a run of a suite will end, from what was expected and what was measured."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileyard.events import CasePlanned
from tileyard.model import Case, Limits, Outcome, Trial
from tileyard.report.suite_forecast import Forecast


def plan(case: str, expected_s: float | None, batch: str = "") -> CasePlanned:
    """A case that may take a hundred seconds."""
    limits = Limits(run_s=100.0)
    planned = Case(id=case, kernel="k", expected_s=expected_s, limits=limits)
    return CasePlanned(case=planned, batch=batch)


def trial(case: str, run_s: float, outcome: Outcome = Outcome.PASSED) -> Trial:
    """How a case ended."""
    return Trial(
        id="r.1",
        run="r",
        case=case,
        batch="",
        kernel="k",
        arguments={},
        config={},
        target="command",
        outcome=outcome,
        run_s=run_s,
    )


def test_work_is_spread_over_the_slots() -> None:
    """Much work in small pieces ends after its total over the number of slots."""
    forecast = Forecast()
    forecast.begin(slots=4, cases=100, expected_s=400.0)
    forecast.add(plan("a", 4.0))
    forecast.start("a", "slot:0", now_s=0.0)
    expected = 100.0
    assert forecast.left_s(now_s=0.0) == pytest.approx(expected)
    assert forecast.left_s(now_s=2.0) == pytest.approx(expected - 2.0 / 4)


def test_the_longest_batch_decides_the_end() -> None:
    """Cases of a batch run one after another, so slots that are free do not help."""
    forecast = Forecast()
    forecast.begin(slots=8, cases=3, expected_s=30.0)
    for name in ("a", "b", "c"):
        forecast.add(plan(name, 10.0, batch="piece-0"))
    forecast.start("a", "slot:0", now_s=0.0)
    expected = 25.0
    assert forecast.left_s(now_s=5.0) == pytest.approx(expected)


def test_the_next_batch_waits_for_a_slot() -> None:
    """Of 10, 9 and 8 seconds on two slots the third ends after 17, which neither bound says."""
    forecast = Forecast()
    forecast.begin(slots=2, cases=3, expected_s=27.0)
    for name, expected_s in (("a", 10.0), ("b", 9.0), ("c", 8.0)):
        forecast.add(plan(name, expected_s))
    forecast.start("a", "slot:0", now_s=0.0)
    forecast.start("b", "slot:1", now_s=0.0)
    expected = 17.0
    assert forecast.left_s(now_s=0.0) == pytest.approx(expected)


def test_what_was_measured_corrects_what_was_expected() -> None:
    """Many cases that took twice as long as expected double what is left; a crash says nothing."""
    forecast = Forecast()
    forecast.begin(slots=1, cases=10_001, expected_s=10_001.0)
    for number in range(10_000):
        forecast.add(plan(f"c{number}", 1.0))
        forecast.end(trial(f"c{number}", 2.0))
    forecast.add(plan("crashes", 1.0))
    forecast.end(trial("crashes", 1e9, Outcome.CRASHED))
    expected = 2.0
    assert forecast.ratio == pytest.approx(expected, rel=1e-3)


def test_one_measurement_is_not_trusted_alone() -> None:
    """The first case that ends moves the forecast by a part only."""
    forecast = Forecast()
    forecast.begin(slots=1, cases=2, expected_s=20.0)
    forecast.add(plan("a", 10.0))
    forecast.end(trial("a", 30.0))
    expected = 1.5
    assert forecast.ratio == pytest.approx(expected)


def test_what_runs_over_its_time_is_expected_to_go_on() -> None:
    """As long again as it is over, but never beyond its limit."""
    forecast = Forecast()
    forecast.begin(slots=1, cases=1, expected_s=10.0)
    forecast.add(plan("a", 10.0))
    forecast.start("a", "slot:0", now_s=0.0)
    expected = [(25.0, 15.0), (95.0, 5.0), (101.0, 0.0)]
    for now_s, left_s in expected:
        assert forecast.left_s(now_s) == pytest.approx(left_s)


def test_a_retry_is_more_work_and_no_new_case() -> None:
    """What is tried again is added to what is left, and takes nothing from what is yet to come."""
    forecast = Forecast()
    forecast.begin(slots=1, cases=2, expected_s=20.0)
    forecast.add(plan("a", 10.0))
    forecast.end(trial("a", 10.0, Outcome.CRASHED))
    before = forecast.left_s(0.0)
    forecast.add(plan("a~2", 10.0))
    expected = (10.0, 20.0)
    assert (before, forecast.left_s(0.0)) == pytest.approx(expected)


def test_devices_that_others_have_do_no_work() -> None:
    """Half of the slots take twice the time, until they come."""
    forecast = Forecast()
    forecast.begin(slots=2, cases=100, expected_s=100.0)
    forecast.add(plan("a", 1.0))
    forecast.lack("npu:1")
    waiting = forecast.left_s(0.0)
    forecast.gain("npu:1")
    expected = (100.0, 50.0)
    assert (waiting, forecast.left_s(0.0)) == pytest.approx(expected)


def test_nobody_knows_without_expectations() -> None:
    """Nothing is promised where nothing says how long cases take."""
    forecast = Forecast()
    forecast.begin(slots=2, cases=2, expected_s=0.0)
    forecast.add(plan("a", None))
    forecast.start("a", "slot:0", now_s=0.0)
    (running,) = forecast.running(now_s=3.0)
    expected = (None, 97.0, 3.0)
    assert forecast.left_s(now_s=3.0) is None
    assert (running.left_s, running.limit_s, running.ran_s) == expected


def test_without_a_total_the_cases_to_come_are_like_those_seen() -> None:
    """Their mean stands for the rest."""
    forecast = Forecast()
    forecast.begin(slots=1, cases=10, expected_s=0.0)
    forecast.add(plan("a", 2.0))
    forecast.add(plan("b", 4.0))
    expected = 30.0
    assert forecast.left_s(0.0) == pytest.approx(expected)


def test_a_device_runs_one_case() -> None:
    """A case whose device turned to another, or was given back, or which began elsewhere, is not there."""
    forecast = Forecast()
    forecast.begin(slots=3, cases=3, expected_s=3.0)
    for name in ("a", "b", "c"):
        forecast.add(plan(name, 1.0))
    forecast.start("a", "npu:0", 0.0)
    forecast.start("b", "npu:0", 0.0)
    forecast.end(trial("a", 1.0))
    assert forecast.busy == 1
    forecast.start("c", "npu:1", 0.0)
    forecast.leave("npu:1")
    forecast.start("c", "npu:2", 0.0)
    forecast.start("b", "npu:2", 0.0)
    forecast.end(trial("c", 1.0))
    expected = [("npu:2", "b")]
    assert [(one.device, one.case) for one in forecast.running(0.0)] == expected
    assert forecast.busy == 1


def test_nothing_is_kept_of_cases_that_ended() -> None:
    """A hundred thousand cases need the room of those that are under way."""
    forecast = Forecast()
    forecast.begin(slots=2, cases=1000, expected_s=1000.0)
    for number in range(1000):
        forecast.add(plan(f"c{number}", 1.0, batch=f"piece-{number // 10}"))
        forecast.start(f"c{number}", f"slot:{number % 2}", float(number))
        forecast.end(trial(f"c{number}", 1.0))
    kept = {name: len(held) for name, held in vars(forecast).items() if hasattr(held, "__len__")}
    assert len(kept) >= 5
    assert not any(kept.values())


steps = st.one_of(
    st.tuples(st.just("add"), st.integers(0, 5), st.sampled_from((None, 0.0, 1.0, 9.0))),
    st.tuples(st.just("start"), st.integers(0, 5), st.integers(0, 2)),
    st.tuples(st.sampled_from(("leave", "lack", "gain")), st.integers(0, 2), st.none()),
    st.tuples(st.just("end"), st.integers(0, 5), st.sampled_from((0.0, 3.0))),
)


@pytest.mark.slow
@given(st.lists(steps, max_size=40), st.sampled_from((0.0, 20.0)))
def test_no_order_of_events_upsets_it(
    told: list[tuple[str, int, float | None]], expected_s: float
) -> None:
    """Whatever is told, a device has one case at most, and what is left is a time or unknown."""
    forecast = Forecast()
    forecast.begin(slots=3, cases=6, expected_s=expected_s)
    for now_s, (step, number, value) in enumerate(told):
        match step:
            case "add":
                forecast.add(plan(f"c{number}", value, batch=f"b{number % 2}"))
            case "start":
                forecast.start(f"c{number}", f"slot:{value}", float(now_s))
            case "end":
                forecast.end(trial(f"c{number}", value or 0.0))
            case _:
                getattr(forecast, step)(f"slot:{number}")
        running = forecast.running(float(now_s))
        left_s = forecast.left_s(float(now_s))
        assert len({one.device for one in running}) == len(running) == forecast.busy
        assert len({one.id for one in running}) == len(running)
        assert left_s is None or 0.0 <= left_s < 1e6
