"""Axes of charts: what is between their ends is drawn between them, and ticks are round and few."""

from hypothesis import given
from hypothesis import strategies as st

from tileyard.pages.charts import MOST_TICKS, Axis, draw_interval, make_axis

TIMES = st.lists(st.floats(1e-3, 1e12), min_size=1, max_size=8)


@given(times=TIMES)
def test_values_are_placed_in_their_order(times: list[float]) -> None:
    """Within the drawing, whether the axis is logarithmic or not."""
    axis = make_axis(times)
    places = [axis.place(one) for one in sorted(times)]
    assert places == sorted(places)
    assert all(0 <= one <= 100 for one in places)


@given(times=TIMES)
def test_ticks_are_few_and_within_the_axis(times: list[float]) -> None:
    """Each at the place of its label."""
    axis = make_axis(times)
    ticks = axis.ticks
    assert 1 <= len(ticks) <= 3 * (MOST_TICKS + 12)
    assert all(axis.low * 0.999 <= float(one.label) <= axis.high * 1.001 for one in ticks)
    assert [one.place for one in ticks] == sorted(one.place for one in ticks)


def test_round_values_are_labelled() -> None:
    """Powers of ten and what is between them; a number that all share has room at both sides."""
    assert [one.label for one in make_axis([2e3, 3e3], "us", 1e3).ticks] == [
        *("2", "2.2", "2.4", "2.6", "2.8", "3"),
    ]
    assert [one.label for one in make_axis([1e3, 1e6], "us", 1e3).ticks] == ["1", "10", "100"]
    assert [one.label for one in make_axis([7.0, 7.0]).ticks] == ["6.5", "7", "7.5"]


def test_what_is_beyond_an_axis_ends_with_it() -> None:
    """Also what has no end. Only an end that is shown has a cap."""
    axis = Axis(low=-10, high=10)
    drawn = draw_interval(axis, (float("-inf"), float("inf")), 0.0)
    assert 'x1="4.0%" x2="96.0%"' in drawn
    intervals = [(float("-inf"), 11.0), (-11.0, 10.0), (-10.0, 10.5), (-10.0, 10.0)]
    caps = [draw_interval(axis, one, 0.0).count('class="end"') for one in intervals]
    assert caps == [0, 1, 1, 2]
