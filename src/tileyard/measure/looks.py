"""Computes an interval of a mean that stays valid under repeated looks and optional stopping. The
k-th look spends ``alpha / (k (k + 1))`` of the allowed error. Values are of separate processes, so
independent, and nearly normal.
"""

import bisect
import math
import statistics
from collections.abc import Sequence
from typing import Final

from scipy.special import stdtrit

from tileyard.base.model import Record

LOOKS: Final = (4, 6, 8, 11, 15, 20, 27, 36, 48, 64)
"""Numbers of values at which the interval is checked: early, for a clear difference, and rarely later."""
FINEST: Final = 0.001
"""Least standard deviation that earlier values can give, because others' numbers are rounded."""


class MeanInterval(Record):
    """The mean of some values and bounds of the true mean; infinite bounds for too few values."""

    mean: float
    low: float
    high: float

    def is_beyond(self, margin: float) -> bool:
        """Whether the whole interval is more than ``margin`` away from 0."""
        return self.low > margin or self.high < -margin

    def is_within(self, margin: float) -> bool:
        """Whether the whole interval is at most ``margin`` away from 0."""
        return -margin <= self.low and self.high <= margin


def mean_interval(
    values: Sequence[float], alpha: float, earlier: Sequence[float] = ()
) -> MeanInterval:
    """The mean of ``values``, at least one, with bounds that fail with a probability of at most ``alpha``
    over all looks, of which this is the last. ``earlier`` values only tell the size of the noise.
    """
    count, mean = len(values), statistics.fmean(values)
    known = [part for part in (values, earlier) if len(part) > 1]
    if not known:
        return MeanInterval(mean=mean, low=-math.inf, high=math.inf)
    look = bisect.bisect_left(LOOKS, count) + 1
    spent = alpha / (look * (look + 1))
    free = sum(len(part) - 1 for part in known)
    squares = sum(statistics.variance(part) * (len(part) - 1) for part in known)
    deviation = max(math.sqrt(squares / free), FINEST if earlier else 0.0)
    half = -float(stdtrit(free, spent / 2)) * deviation / math.sqrt(count)
    return MeanInterval(mean=mean, low=mean - half, high=mean + half)
