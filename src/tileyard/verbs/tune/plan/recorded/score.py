"""The score of a strategy on a recorded space, as the package ``autotuning-methodology`` 1.1.0 defines it.

The curve of the best time found so far, over the time that trials took, is compared with what random
search is expected to have found by then: 0 is as good as that, 1 is the best of the space from the beginning,
and less than 0 is worse. The score is the mean over equidistant moments. They begin when random search is
expected to have come 1 % of the way from the median of the space to its best, and end at 95 %.

Source: github.com/AutoTuningAssociation/autotuning_methodology, version 1.1.0; F.-J. Willemsen et al., "A
methodology for comparing optimization algorithms for auto-tuning" (2024). There the curve is a mean over
random subsets of the trials (bagging); here it is the regression over all of them, which is its limit. There
the trials of a run also last as long as the search itself takes; here they last what the file says.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import PchipInterpolator
from scipy.optimize import isotonic_regression

from tileyard.base.wording import count_of
from tileyard.verbs.tune.plan.recorded.replay import Replayed
from tileyard.verbs.tune.plan.recorded.space import CONFIDENCE, Recorded, RecordedSpace
from tileyard.verbs.tune.result import Score

START, END = 0.01, 0.95
"""Shares of the way from the median of a space to its best at which the moments begin and end."""
MOMENTS = 1000
MARGIN = 0.1
"""Share by which runs are longer than the moments, and by which trials outside of them count."""
RESAMPLES: Final = 200
Floats = NDArray[np.float64]


class Unscored(Exception):
    """There is no score, for the reason in its text."""


@dataclass(frozen=True, kw_only=True)
class Yardstick:
    """What random search is expected to reach on a space: the best time at each of ``moments_s``."""

    times_ns: Floats
    moments_s: Floats
    random_ns: Floats

    @property
    def last_s(self) -> float:
        """The last moment."""
        return float(self.moments_s[-1])

    @property
    def run_s(self) -> float:
        """How long runs have to be, in seconds of recorded cost."""
        return self.last_s * (1 + MARGIN)

    def score(self, runs: Sequence[Sequence[Replayed]]) -> Score:
        """The score of a strategy from its runs with different seeds. Raises Unscored if they found nothing
        in time.
        """
        points = self._list_points(runs)
        stop_s = _find_stop(runs)
        plain = np.ones(len(runs))
        generator = np.random.default_rng(0)
        drawn = generator.multinomial(len(runs), plain / len(runs), size=RESAMPLES)
        scores = [self._weigh(points, weights[points.run], stop_s) for weights in drawn]
        tail = (1 - CONFIDENCE) / 2
        low, high = np.quantile(scores, [tail, 1 - tail])
        found = self._weigh(points, plain[points.run], stop_s)
        return Score(score=found, low=float(low), high=float(high))

    def _list_points(self, runs: Sequence[Sequence[Replayed]]) -> "_Points":
        """The rank of the best time so far when each trial ended, of all runs, in the order of time."""
        longest = max(map(len, runs), default=0)
        margin = MARGIN + 0.25 / max(longest, 1)
        first_s, last_s = self.moments_s[0] * (1 - margin), self.moments_s[-1] * (1 + margin)
        found: list[tuple[float, float, int]] = []
        for number, run in enumerate(runs):
            best_ns = math.inf
            for trial in run:
                best_ns = min(best_ns, trial.time_ns or math.inf)
                if best_ns < math.inf and first_s <= trial.ended_s <= last_s:
                    rank = float(np.searchsorted(self.times_ns, best_ns))
                    found.append((trial.ended_s, rank, number))
        if not found:
            raise Unscored(_find_reason(runs, first_s, last_s))
        found.sort()
        columns = [np.array(column) for column in zip(*found, strict=True)]
        return _Points(ended_s=columns[0], rank=columns[1], run=columns[2].astype(np.int64))

    def _weigh(self, points: "_Points", weights: Floats, stop_s: float) -> float:
        """The score of these points, of which some count several times, and some not at all."""
        counts = weights > 0
        if not counts.any():
            return 0.0
        ended_s, weights = points.ended_s[counts], weights[counts]
        fitted = isotonic_regression(points.rank[counts], weights=weights, increasing=False).x
        ranks = np.interp(self.moments_s, ended_s, fitted)
        last = int(np.searchsorted(self.moments_s, stop_s, side="right"))
        if last < len(ranks):
            ranks[last:] = ranks[last]
        found_ns = self.times_ns[np.rint(ranks).astype(np.int64)]
        share = (found_ns - self.random_ns) / (self.times_ns[0] - self.random_ns)
        return float(np.mean(share))


@dataclass(frozen=True, kw_only=True)
class _Points:
    """Trials in the order of time: when each ended, the rank of its run's best time then, and the run."""

    ended_s: Floats
    rank: Floats
    run: NDArray[np.int64]


def _find_stop(runs: Sequence[Sequence[Replayed]]) -> float:
    """When the first run ends of those longer than half of them: later moments repeat what was found."""
    lengths = sorted(run[-1].ended_s for run in runs if run)
    middle = statistics.median(lengths)
    return next((one for one in lengths if one > middle), math.inf)


def _find_reason(runs: Sequence[Sequence[Replayed]], first_s: float, last_s: float) -> str:
    """Why no trial between these moments ended with a right config known."""
    trials = [one for run in runs for one in run]
    if all(one.time_ns is None for one in trials):
        return f"nothing was right in {count_of(len(trials), 'trial')}"
    end_s = max(one.ended_s for one in trials)
    if end_s < first_s:
        return f"the trials end at {end_s:.3g} s of recorded time, and the score begins at {first_s:.3g} s"
    moments = f"{first_s:.3g} s to {last_s:.3g} s of recorded time"
    return f"no trial ended within its moments, {moments}, with a right config found by then"


def make_yardstick(space: RecordedSpace) -> Yardstick:
    """The yardstick of a space. Raises Unscored if random search reaches its best at once, or too little has
    a cost.
    """
    times_ns = np.array(space.times_ns)
    timed = count_of(len(times_ns), "config") + " with a time"
    cost_s = statistics.median(one.cost_s for one in space.configs)
    mean_s = _find_mean_cost(space.configs)
    if times_ns[0] == times_ns[-1]:
        raise Unscored(f"all of {timed} are equally fast" if len(times_ns) > 1 else f"only {timed}")
    if cost_s <= 0 or mean_s <= 0:
        raise Unscored("half of the configs or more took no time when they were recorded")
    start, end = _count_trials(times_ns, START), _count_trials(times_ns, END)
    if end - start < 2:  # leaves room between the two
        start, end = (0, end + 2) if start == 0 else (start - 1, end + 1)
    moments_s = np.linspace(start * cost_s, end * cost_s, MOMENTS)
    trials = np.rint(np.maximum(moments_s / mean_s, 1)).astype(np.int64)
    random_ns = _expect(times_ns, trials)
    if (random_ns <= times_ns[0]).any():
        within = f"within the {count_of(int(trials[-1]), 'trial')} that the score takes"
        raise Unscored(f"random search is expected to find the best of {timed} {within}")
    return Yardstick(times_ns=times_ns, moments_s=moments_s, random_ns=random_ns)


def _count_trials(times_ns: Floats, share: float) -> int:
    """Trials after which random search is expected to have come this share of the way from the median to
    the best, of times that are not all equal.
    """
    best_ns, count = times_ns[0], len(times_ns)
    wanted_ns = best_ns + (np.median(times_ns) - best_ns) * (1 - share)
    worst_first = times_ns[::-1]
    place = int(np.argmax(worst_first <= wanted_ns))
    if worst_first[place] == best_ns:
        place -= 1
    return math.ceil(place / (count + 1 - place))


def _find_mean_cost(configs: Sequence[Recorded]) -> float:
    """What a trial of random search costs: the mean of a config with a time, and the share of failures."""
    timed = [one.cost_s for one in configs if one.is_timed]
    failed = [one.cost_s for one in configs if not one.is_timed]
    if not failed:
        return statistics.fmean(timed)
    return statistics.fmean(timed) + len(failed) / len(configs) * statistics.fmean(failed)


def _expect(times_ns: Floats, trials: NDArray[np.int64]) -> Floats:
    """The best time that random search is expected to find in each of these numbers of trials: smoothed."""
    count = len(times_ns)
    places = np.minimum(np.rint(trials * (count + 1) / (trials + 1)), count - 1).astype(np.int64)
    expected_ns = times_ns[::-1][places]
    numbers, firsts = np.unique(trials, return_index=True)
    if len(numbers) < 2:
        return expected_ns
    even = np.linspace(trials[0], trials[-1], len(trials))
    smoothed: Floats = PchipInterpolator(numbers, expected_ns[firsts])(even)
    return smoothed
