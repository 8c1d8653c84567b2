"""Times one kernel: warms up, then samples until the median is known well enough, or clearly loses.
Decisions follow from the launch's times, never from a clock here.
"""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tileyard.base.model import Measurement, TimingPolicy
from tileyard.measure.statistics import (
    fewest_samples,
    is_clearly_above,
    is_falling,
    is_steady,
    median_interval,
)
from tileyard.targets.base import Launch

_MOST_LAUNCHES = 1_000_000
_GROWTH = 1.5
_TREND_WINDOW = 6
_TREND_TOLERANCE = 0.01
_WARMUP_BOUND = 5
_CLEAR_SAMPLES = 3
_CLEAR_FACTOR = 1.5


@dataclass(kw_only=True)
class BestSoFar:
    """The upper bound of the best median measured in a group so far, in nanoseconds."""

    high_ns: float = math.inf

    def lower(self, high_ns: float) -> None:
        """Lower it to the bound of another member of the group, unless that is 0, which means unknown."""
        if high_ns > 0.0:
            self.high_ns = min(self.high_ns, high_ns)


def measure(launch: Launch, policy: TimingPolicy, best: BestSoFar | None = None) -> Measurement:
    """Time a launch by ``policy``, in which only a group makes ``best`` count. It is abandoned once
    its median's interval is above ``best``, or three samples above 1.5 times that, unless the
    interval is wider than the distance. ``best`` is lowered to the result.
    """
    rival = best if best is not None and policy.group else BestSoFar()
    launches = _warm_up(launch, policy)
    samples: list[float] = []
    abandoned = False
    next_group = _next_counted if policy.launches else _next_group
    while (wanted := next_group(samples, launches, policy)) > 0:
        samples.extend(map(float, launch.sample_ns(wanted, launches)))
        if _is_beaten(samples, rival.high_ns, policy):
            abandoned = True
            break
    interval = median_interval(samples, policy.confidence)
    rival.lower(interval.high)
    return Measurement(
        median_ns=interval.median,
        low_ns=interval.low,
        high_ns=interval.high,
        confidence=policy.confidence,
        samples_ns=tuple(samples),
        steady=is_steady(samples, policy.confidence, policy.relative_width),
        abandoned=abandoned,
    )


def launches_per_sample(launch: Launch, policy: TimingPolicy) -> int:
    """Number of consecutive launches that take at least ``min_sample_ns``; one if a single one does."""
    return _estimate(launch, policy)[0]


def _estimate(launch: Launch, policy: TimingPolicy) -> tuple[int, list[float], float]:
    """The number of launches per sample, and the times measured for it, which warm up, with their sum."""
    launches, samples, spent_ns = 1, [], 0.0
    while True:
        time_ns = launch.sample_ns(1, launches)[0]
        samples.append(time_ns)
        spent_ns += time_ns * launches
        if time_ns * launches >= policy.min_sample_ns or launches == _MOST_LAUNCHES:
            return launches, samples, spent_ns
        # At most tenfold at once: the first launches are still cold and say little.
        needed = math.ceil(1.05 * policy.min_sample_ns / max(time_ns, 1e-3))
        at_least = launches + launches // 4 + 1
        launches = min(max(needed, at_least), 10 * launches, _MOST_LAUNCHES)


def _warm_up(launch: Launch, policy: TimingPolicy) -> int:
    """Launch as required, or until times no longer fall; returns the number of launches per sample."""
    if policy.warmup_launches:
        launch.sample_ns(1, policy.warmup_launches)
        return 1 if policy.launches else _estimate(launch, policy)[0]
    launches, samples, spent_ns = _estimate(launch, policy)
    bound_ns = _WARMUP_BOUND * policy.warmup_ns
    while spent_ns < policy.warmup_ns or (
        spent_ns < bound_ns and is_falling(samples[-_TREND_WINDOW:], _TREND_TOLERANCE)
    ):
        time_ns = launch.sample_ns(1, launches)[0]
        samples.append(time_ns)
        spent_ns += max(time_ns, 1e-3) * launches
    if policy.launches:
        return 1
    warm_ns = max(statistics.median(samples[-3:]), 1e-3)
    return min(max(launches, math.ceil(policy.min_sample_ns / warm_ns)), _MOST_LAUNCHES)


def _next_group(samples: Sequence[float], launches: int, policy: TimingPolicy) -> int:
    """Number of samples to take next; 0 once the measurement is good enough or has cost enough. The
    first groups just suffice for a verdict on a hopeless config, then for an interval.
    """
    count = len(samples)
    for goal in (_CLEAR_SAMPLES, fewest_samples(policy.confidence), policy.min_samples):
        if count < min(goal, policy.min_samples):
            return min(goal, policy.min_samples) - count
    spent_ns = math.fsum(samples) * launches
    interval = median_interval(samples, policy.confidence)
    if interval.coverage >= policy.confidence and interval.relative_width <= policy.relative_width:
        return 0
    affordable = math.ceil((policy.max_ns - spent_ns) / max(spent_ns / count, 1e-3))
    grown = math.ceil(count * _GROWTH) - count
    return max(0, min(grown, affordable, policy.max_samples - count))


def _next_counted(samples: Sequence[float], _launches: int, policy: TimingPolicy) -> int:
    """Launches to time next, of those the policy counts: a few for a hopeless config, then half the rest."""
    left = policy.launches - len(samples)
    return min(left, max(_CLEAR_SAMPLES, left // 2 if samples else 0))


def _is_beaten(samples: Sequence[float], best_high_ns: float, policy: TimingPolicy) -> bool:
    interval = median_interval(samples, policy.confidence)
    if not is_clearly_above(interval.low, interval.high, best_high_ns):
        return False
    is_far = len(samples) >= _CLEAR_SAMPLES and interval.low > _CLEAR_FACTOR * best_high_ns
    return is_far or interval.coverage >= policy.confidence


class CalledLaunch:
    """A function as a launch that can be timed."""

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function

    def run(self) -> None:
        """Call it once."""
        self._function()

    def sample_ns(self, samples: int, launches: int) -> Sequence[float]:
        """``samples`` times of ``launches`` calls each, in nanoseconds per call."""
        times = []
        for _ in range(samples):
            start = time.perf_counter_ns()
            for _ in range(launches):
                self._function()
            times.append((time.perf_counter_ns() - start) / launches)
        return times

    def read(self) -> Sequence[Any]:
        """Nothing: what the function makes is its caller's."""
        return ()

    def reset(self) -> None:
        """Nothing is kept between calls."""
