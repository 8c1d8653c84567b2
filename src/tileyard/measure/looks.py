"""The interval of a mean that holds although somebody looks at it again and again, and stops when it suits.

Each look spends a part of the error that is allowed in all: ``alpha / (k (k + 1))`` at the k-th one, which sums up to
``alpha`` however many there are. Values come from processes of their own, so they are independent; times
within a process are not. Student's t asks for about normal values: medians of many rounds are.
"""

import bisect
import math
import statistics
from collections.abc import Sequence
from typing import Final

from scipy.special import stdtrit

from tileyard.model import Record

LOOKS: Final = (4, 6, 8, 11, 15, 20, 27, 36, 48, 64)
"""At so many values somebody looks: early where a difference is plain, and rarely afterwards."""
FINEST: Final = 0.001
"""The least standard deviation that earlier values can say: numbers of others are rounded."""


class MeanInterval(Record):
    """The mean of some values and bounds of the true one; infinite bounds where too few are there."""

    mean: float
    low: float
    high: float

    def is_beyond(self, margin: float) -> bool:
        """Whether the whole interval lies more than ``margin`` away from 0."""
        return self.low > margin or self.high < -margin

    def is_within(self, margin: float) -> bool:
        """Whether the whole interval lies at most ``margin`` away from 0."""
        return -margin <= self.low and self.high <= margin


def mean_interval(
    values: Sequence[float], alpha: float, earlier: Sequence[float] = ()
) -> MeanInterval:
    """The mean of ``values``, at least one, with bounds that fail with a probability of at most ``alpha``.

    That holds for all looks together, of which this is the last. ``earlier`` values are about another mean, and only say how
    large the noise is: theirs is the same, or larger.
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
