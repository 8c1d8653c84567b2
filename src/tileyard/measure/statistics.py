"""Distribution-free statistics of times: the interval of a median, and signs of drift.

Runners use it under a lease, so it avoids slow imports: scipy.stats would take longer than most
measurements, and NumPy's median imports all of ``numpy.ma``.
"""

import math
import statistics
from collections.abc import Sequence
from functools import lru_cache

from tileyard.base.model import Measurement, Record


class MedianInterval(Record):
    """A sample's median, and order statistics that bound the population's median.

    ``coverage`` is the probability that the interval holds the true median. It is at least the
    requested confidence, unless there are too few samples for that: then the interval is their
    whole range, and ``coverage`` is the probability for that.
    """

    median: float
    low: float
    high: float
    coverage: float

    @property
    def relative_width(self) -> float:
        """The interval's width as a share of the median; infinite for a median of zero."""
        return (self.high - self.low) / abs(self.median) if self.median else math.inf


def median_interval(samples: Sequence[float], confidence: float) -> MedianInterval:
    """The median and its interval, whatever the distribution, if the samples are independent.

    ``samples`` must not be empty. The interval runs from the k-th smallest to the k-th largest
    sample, where k is the largest number for which the binomial distribution gives at least
    ``confidence``.
    """
    ordered = sorted(map(float, samples))
    position, coverage = _interval_rank(len(ordered), confidence)
    return MedianInterval(
        median=statistics.median(ordered),
        low=ordered[position],
        high=ordered[-1 - position],
        coverage=coverage,
    )


def fewest_samples(confidence: float) -> int:
    """The smallest sample whose whole range covers the median with this confidence: 6 for 0.95."""
    count = 2
    while 1.0 - 2.0 ** (1 - count) < confidence:
        count += 1
    return count


def is_clearly_above(low: float, high: float, bound: float) -> bool:
    """Whether an interval is above a bound, and no wider than its distance from it: a wider one decides nothing."""
    return low > bound and high - low <= low - bound


def is_clearly_slower(measured: Measurement) -> bool:
    """Whether a config was abandoned for a good reason: its interval is at most as wide as its distance from a time of 0."""
    return measured.abandoned and is_clearly_above(measured.low_ns, measured.high_ns, 0.0)


def spread(samples: Sequence[float]) -> float:
    """The factor between the lower and the upper decile."""
    ordered = sorted(samples)
    outside = len(ordered) // 10
    return ordered[-1 - outside] / ordered[outside]


def is_falling(samples: Sequence[float], tolerance: float) -> bool:
    """Whether the later half is typically faster than the earlier half by more than ``tolerance``.

    It is while something still warms up. Fewer than four samples show nothing.
    """
    if len(samples) < 4:
        return False
    half = len(samples) // 2
    early, late = statistics.median(samples[:half]), statistics.median(samples[-half:])
    return early > late * (1.0 + tolerance)


def is_steady(samples: Sequence[float], confidence: float, tolerance: float) -> bool:
    """Whether the halves of a measurement agree: no drift up or down during it.

    They agree if their medians differ by at most ``tolerance``, or their intervals overlap.
    """
    if len(samples) < 4:
        return True
    half = len(samples) // 2
    early = median_interval(samples[:half], confidence)
    late = median_interval(samples[-half:], confidence)
    if abs(early.median - late.median) <= tolerance * min(early.median, late.median):
        return True
    return early.low <= late.high and late.low <= early.high


@lru_cache(maxsize=4096)
def _interval_rank(count: int, confidence: float) -> tuple[int, float]:
    """The narrowest symmetric pair of order statistics with at least ``confidence``.

    Returns its position, from 0 at either end, and its coverage.
    """
    log_half = -count * math.log(2.0)
    tail = 0.0
    best = 0, max(0.0, 1.0 - 2.0 * math.exp(log_half))
    for position in range((count + 1) // 2):
        # P(fewer than position + 1 of the samples are below the median)
        tail += math.exp(
            math.lgamma(count + 1)
            - math.lgamma(position + 1)
            - math.lgamma(count - position + 1)
            + log_half
        )
        if 1.0 - 2.0 * tail < confidence:
            break
        best = position, 1.0 - 2.0 * tail
    return best
