"""Order statistics of times, compared with SciPy's binomial distribution and with simulation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import bdtr

from tileyard.measure.statistics import fewest_samples, is_falling, is_steady, median_interval

TIMES = st.lists(st.floats(1.0, 1e9), min_size=1, max_size=60)


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.99])
@pytest.mark.parametrize("count", [1, 2, 5, 6, 7, 12, 30, 101, 400, 5000])
def test_interval_is_the_narrowest_with_its_coverage(count: int, confidence: float) -> None:
    """Rank and coverage are those of the binomial distribution, also for large samples."""
    interval = median_interval(list(range(count)), confidence)
    k = round(interval.low)
    expected = max(0.0, 1.0 - 2.0 * float(bdtr(k, count, 0.5)))

    assert interval.high == count - 1 - k
    assert interval.coverage == pytest.approx(expected, abs=1e-9)
    assert interval.coverage >= confidence or k == 0
    assert 2 * (k + 1) >= count or 1.0 - 2.0 * float(bdtr(k + 1, count, 0.5)) < confidence


@settings(deadline=None, max_examples=60)
@given(TIMES, st.randoms())
def test_interval_holds_the_median_and_ignores_order(samples: list[float], random: object) -> None:
    """The bounds are samples around the median, however the samples are ordered."""
    expected = median_interval(samples, 0.95)
    random.shuffle(samples)  # type: ignore[attr-defined]  # hypothesis types its randoms loosely

    assert median_interval(samples, 0.95) == expected
    assert expected.low <= expected.median <= expected.high
    assert {expected.low, expected.high} <= set(samples)


@pytest.mark.parametrize(("confidence", "expected"), [(0.5, 2), (0.75, 3), (0.95, 6), (0.99, 8)])
def test_fewest_samples_reach_the_confidence(confidence: float, expected: int) -> None:
    """With one sample less, even the whole range covers the median too rarely."""
    assert fewest_samples(confidence) == expected
    assert median_interval([1.0] * expected, confidence).coverage >= confidence
    assert median_interval([1.0] * (expected - 1), confidence).coverage < confidence


def test_interval_covers_the_true_median_as_often_as_it_says() -> None:
    """On skewed noise the median lies inside in 95 to 98 of 100 samples of 25."""
    random = np.random.default_rng(7)
    draws = random.exponential(size=(2000, 25))
    expected = np.log(2.0)

    intervals = [median_interval(list(draw), 0.95) for draw in draws]
    covered = np.mean([i.low <= expected <= i.high for i in intervals])

    assert 0.945 <= covered <= 0.975


def test_relative_width_is_a_share_of_the_median() -> None:
    """A median of zero has no share."""
    assert median_interval([9.0, 10.0, 11.0], 0.5).relative_width == pytest.approx(0.2)
    assert median_interval([0.0], 0.95).relative_width == float("inf")


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([10.0, 9.0, 8.0, 7.0], True),
        ([10.0, 10.0, 10.0, 10.0], False),
        ([7.0, 8.0, 9.0, 10.0], False),
        ([10.05, 10.05, 10.0, 10.0], False),
        ([99.0, 10.0, 10.0, 10.0, 10.0, 10.0], False),
        ([10.0, 5.0, 1.0], False),
        ([], False),
    ],
)
def test_falling_times_are_seen(samples: list[float], expected: bool) -> None:
    """A trend of more than the tolerance counts, a single slow sample does not."""
    assert is_falling(samples, 0.01) is expected


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([10.0] * 20, True),
        ([10.0] * 10 + [10.1] * 10, True),
        ([10.0] * 10 + [11.0] * 10, False),
        ([11.0] * 10 + [10.0] * 10, False),
        ([8.0, 12.0] * 5 + [9.0, 13.0] * 5, True),
        ([1.0, 9.0, 1.0], True),
    ],
)
def test_drift_in_either_direction_is_seen(samples: list[float], expected: bool) -> None:
    """Halves that differ beyond tolerance and noise are no steady state."""
    assert is_steady(samples, 0.95, 0.02) is expected
