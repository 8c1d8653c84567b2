"""Distribution-free statistics of times: the interval of a median, and signs of drift. Runners use
it under a lease: no slow imports such as scipy.stats or NumPy's median.
"""

import math
import statistics
from collections.abc import Sequence
from functools import lru_cache

from tileyard.base.model import Measurement, Record


class MedianInterval(Record):
    """A sample's median, and order statistics that bound the population's, with probability ``coverage``: at
    least the requested confidence, unless samples are too few and the interval is their whole range.
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
    """The median of non-empty independent ``samples`` and its interval, from the k-th smallest to
    the k-th largest, with the largest k for which the binomial distribution gives ``confidence``.
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
    """Whether an interval is above a bound, and no wider than its distance from it."""
    return low > bound and high - low <= low - bound


def is_clearly_slower(measured: Measurement) -> bool:
    """Whether a config was abandoned for good reason: its interval is no wider than its distance from 0."""
    return measured.abandoned and is_clearly_above(measured.low_ns, measured.high_ns, 0.0)


def spread(samples: Sequence[float]) -> float:
    """The factor between the lower and the upper decile."""
    ordered = sorted(samples)
    outside = len(ordered) // 10
    return ordered[-1 - outside] / ordered[outside]


def is_falling(samples: Sequence[float], tolerance: float) -> bool:
    """Whether the later half is faster by more than ``tolerance``: it warms up. Needs four samples."""
    if len(samples) < 4:
        return False
    half = len(samples) // 2
    early, late = statistics.median(samples[:half]), statistics.median(samples[-half:])
    return early > late * (1.0 + tolerance)


def is_steady(samples: Sequence[float], confidence: float, tolerance: float) -> bool:
    """Whether a measurement's halves agree: medians within ``tolerance``, or overlapping intervals."""
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
    """The position, from 0 at either end, and coverage of the narrowest symmetric pair of order
    statistics with at least ``confidence``.
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
