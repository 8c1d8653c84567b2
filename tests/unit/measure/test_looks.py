"""Intervals that are looked at again and again."""

import math
import random

import pytest

from tileyard.measure.looks import LOOKS, MeanInterval, mean_interval


def test_looking_often_is_wrong_no_more_often_than_is_stated() -> None:
    """Of values around 0 at most ``alpha`` is ever called different from 0, whenever one stops."""
    draw = random.Random(1)
    alpha, runs = 0.05, 800
    wrong = 0
    for _ in range(runs):
        values = [draw.gauss(0.0, 1.0) for _ in range(LOOKS[-1])]
        wrong += any(mean_interval(values[:count], alpha).is_beyond(0.0) for count in LOOKS)
    assert 0 < wrong / runs <= alpha


def test_a_difference_is_found_the_sooner_the_larger_it_is() -> None:
    """The look at which the whole interval lies on one side of 0."""
    draw = random.Random(2)
    noise = [draw.gauss(0.0, 1.0) for _ in range(LOOKS[-1])]

    def first_look(shift: float) -> int:
        values = [value + shift for value in noise]
        return next(n for n in LOOKS if mean_interval(values[:n], 0.01).is_beyond(0.0))

    looks = [first_look(shift) for shift in (-20.0, 2.0, 1.0)]
    assert looks == sorted(looks)
    assert looks[0] == LOOKS[0]


def test_one_value_bounds_nothing() -> None:
    """Nothing is known of how far values are apart."""
    found = mean_interval([0.3], 0.05)
    assert found == MeanInterval(mean=0.3, low=-math.inf, high=math.inf)
    assert not found.is_beyond(0.0)
    assert not found.is_within(100.0)


@pytest.mark.parametrize(
    ("low", "high", "beyond", "within"),
    [
        (0.03, 0.05, True, False),
        (-0.05, -0.03, True, False),
        (0.01, 0.05, False, False),
        (-0.02, 0.02, False, True),
        (-0.01, 0.03, False, False),
    ],
)
def test_the_margin_parts_what_matters_from_what_does_not(
    low: float, high: float, beyond: bool, within: bool
) -> None:
    """Beyond it, within it, or neither."""
    found = MeanInterval(mean=(low + high) / 2, low=low, high=high)
    assert (found.is_beyond(0.02), found.is_within(0.02)) == (beyond, within)


def test_earlier_values_say_how_large_the_noise_is() -> None:
    """One value with five earlier ones of another mean: false alarms are rare, plain changes are seen."""
    draw = random.Random(3)
    trials = 2000
    alarms = found = 0
    for _ in range(trials):
        earlier = [draw.gauss(3.0, 0.01) for _ in range(5)]
        value = draw.gauss(0.0, 0.01)
        alarms += mean_interval([value], 0.1, earlier).is_beyond(0.0)
        found += mean_interval([value + 0.1], 0.1, earlier).is_beyond(0.0)
    assert alarms / trials < 0.065  # half of what is allowed is spent at the first look
    assert found / trials > 0.95
