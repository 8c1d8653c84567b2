"""When a run of a suite will end, from what was expected and what was measured."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.show.run_events import begun, ended, fold, judged_of, planned, started, take_all

from tileyard.base.events import DeviceAwaited, DeviceLeased, DeviceReleased, Event
from tileyard.base.model import Outcome
from tileyard.show.view import RunView


def test_work_is_spread_over_the_slots() -> None:
    """Much work in small pieces ends after its total over the number of slots."""
    view = fold(started(slots=4, cases=100, expected_s=400.0), planned("a", 4.0), begun("a"))
    expected = 100.0
    assert view.left_s(now_s=0.0) == pytest.approx(expected)
    assert view.left_s(now_s=2.0) == pytest.approx(expected - 2.0 / 4)


def test_the_longest_batch_decides_the_end() -> None:
    """Cases of a batch run one after another, so slots that are free do not help."""
    view = fold(
        started(slots=8, cases=3, expected_s=30.0),
        *(planned(name, 10.0, batch="piece-0") for name in ("a", "b", "c")),
        begun("a"),
    )
    expected = 25.0
    assert view.left_s(now_s=5.0) == pytest.approx(expected)


def test_the_next_batch_waits_for_a_slot() -> None:
    """Of 10, 9 and 8 seconds on two slots the third ends after 17, which neither bound says."""
    view = fold(
        started(slots=2, cases=3, expected_s=27.0),
        *(planned(name, expected_s) for name, expected_s in (("a", 10.0), ("b", 9.0), ("c", 8.0))),
        begun("a", "slot:0"),
        begun("b", "slot:1"),
    )
    expected = 17.0
    assert view.left_s(now_s=0.0) == pytest.approx(expected)


def test_what_was_measured_corrects_what_was_expected() -> None:
    """Many cases that took twice as long as expected double what is left; a crash says nothing."""
    view = fold(started(slots=1, cases=10_001, expected_s=10_001.0))
    for number in range(10_000):
        take_all(view, (planned(f"c{number}", 1.0), ended(f"c{number}", run_s=2.0)))
    take_all(view, (planned("crashes", 1.0), ended("crashes", Outcome.CRASHED, 1e9)))
    expected = 2.0
    assert view.ratio == pytest.approx(expected, rel=1e-3)


def test_one_measurement_is_not_trusted_alone() -> None:
    """The first case that ends moves the forecast by a part only."""
    view = fold(
        started(slots=1, cases=2, expected_s=20.0), planned("a", 10.0), ended("a", run_s=30.0)
    )
    expected = 1.5
    assert view.ratio == pytest.approx(expected)


def test_what_runs_over_its_time_is_expected_to_go_on() -> None:
    """As long again as it is over, but never beyond its limit."""
    view = fold(started(slots=1, cases=1, expected_s=10.0), planned("a", 10.0), begun("a"))
    expected = [(25.0, 15.0), (55.0, 5.0), (61.0, 0.0)]
    for now_s, left_s in expected:
        assert view.left_s(now_s) == pytest.approx(left_s)


def test_a_retry_is_more_work_and_no_new_case() -> None:
    """What is tried again is added to what is left, and takes nothing from what is yet to come."""
    view = fold(
        started(slots=1, cases=2, expected_s=20.0),
        planned("a", 10.0),
        ended("a", Outcome.CRASHED),
    )
    before = view.left_s(0.0)
    view.take(planned("a", 10.0, attempt=2), 0.0)
    expected = (10.0, 20.0)
    assert (before, view.left_s(0.0)) == pytest.approx(expected)


def test_devices_that_others_have_do_no_work() -> None:
    """Half of the slots take twice the time, until they come."""
    awaited = DeviceAwaited(device="npu:1", at=0.0)
    view = fold(started(slots=2, cases=100, expected_s=100.0), planned("a", 1.0), awaited)
    waiting = view.left_s(0.0)
    view.take(DeviceLeased(device="npu:1", at=0.0, lease=1), 0.0)
    expected = (100.0, 50.0)
    assert (waiting, view.left_s(0.0)) == pytest.approx(expected)


def test_nobody_knows_without_expectations() -> None:
    """Nothing is promised where nothing says how long cases take."""
    view = fold(started(slots=2, cases=2, expected_s=0.0), planned("a", None), begun("a"))
    (running,) = view.running(now_s=3.0)
    expected = (None, 57.0, 3.0)
    assert view.left_s(now_s=3.0) is None
    assert (running.left_s, running.limit_s, running.ran_s) == expected


def test_without_a_total_the_cases_to_come_are_like_those_seen() -> None:
    """Their mean stands for the rest."""
    view = fold(started(slots=1, cases=10, expected_s=0.0), planned("a", 2.0), planned("b", 4.0))
    expected = 30.0
    assert view.left_s(0.0) == pytest.approx(expected)


numbers = st.integers(0, 5)
cases = numbers.map(lambda number: f"c{number}")
slots = st.integers(0, 2).map(lambda number: f"slot:{number}")
anything = st.one_of(
    st.builds(
        planned,
        cases,
        st.sampled_from((None, 0.0, 1.0, 9.0)),
        st.sampled_from(("b0", "b1")),
        st.integers(1, 2),
    ),
    st.builds(begun, cases, slots),
    st.builds(DeviceAwaited, device=slots, at=st.just(0.0)),
    st.builds(DeviceLeased, device=slots, at=st.just(0.0), lease=st.just(1)),
    st.builds(DeviceReleased, device=slots, at=st.just(0.0)),
    st.builds(
        ended, cases, st.sampled_from(Outcome), st.sampled_from((0.0, 3.0)), st.integers(1, 2)
    ),
)


@pytest.mark.slow
@given(st.lists(anything, max_size=40), st.sampled_from((0.0, 20.0)))
def test_no_order_of_events_upsets_it(events: list[Event], expected_s: float) -> None:
    """Whatever happens, a device has one case at most, and what is left is a time or unknown."""
    view = RunView()
    for now_s, event in enumerate((started(3, 6, expected_s, retries=1), *events)):
        view.take(event, float(now_s))
        running = view.running(float(now_s))
        left_s = view.left_s(float(now_s))
        keys = {one.case.key for one in running}
        assert len({one.device for one in running}) == len(running) == len(view.on_device)
        assert len(keys) == len(running)
        assert keys | set(judged_of(view)) == set(view.started_s) <= set(view.open)
        assert min(view.counts.values(), default=0) >= 0
        assert left_s is None or 0.0 <= left_s < 1e6
