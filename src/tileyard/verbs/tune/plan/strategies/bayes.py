"""Bayesian optimisation: a Gaussian process of logarithms of times says where an improvement is expected."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from tileyard.base.model import Trial
from tileyard.verbs.tune.plan.goals import weigh_both
from tileyard.verbs.tune.plan.strategies.base import Amount, Config, Points
from tileyard.verbs.tune.plan.strategies.gaussian import Floats, Gaussian, Posterior, in_one_thread
from tileyard.verbs.tune.plan.strategies.proposing import Proposing

Times = Mapping[int, float]
"""Logarithms of times by the numbers of their points."""

FIRST: Final = 8
"""Points spread over the space before a model is made."""
SPREAD: Final = 64
"""Random points of which the one that is farthest from those proposed comes next."""
CANDIDATES: Final = 1000
MOST_NEAR: Final = 500
"""Candidates near the best points; the others are random."""
CENTRES: Final = 5
"""Best points whose neighbours are candidates."""
MOST_ROWS: Final = 300
"""Times in the model; of more, the best half as many, and others at random."""
MOST_FITTED: Final = 160
"""Times from which the scales of the model are learnt, chosen likewise."""
MOST_AWAITED: Final = 100
"""Points under way that the model takes into account, the latest."""
MOST_PROPOSALS: Final = 8
"""Proposals before candidates are chosen anew, and one more per 50 times known."""
GROWTH: Final = 1.3
"""Factor by which the number of times grows before the scales are learnt again."""
USUALLY: Final = 0.8
"""How likely a point succeeds of which nothing is known."""
DOUBT: Final = 0.2
"""Standard deviation of what the model says of a success where it is sure."""
MOST_FAILED: Final = 100
"""Latest failures in the model."""
MOST_HOPED: Final = 200
"""Candidates, the best, among which the expected gain is looked for."""
DRAWS: Final = 256
"""Draws of their times, from which it is the mean."""
PATIENCE: Final = 20
"""Results for which a small gain must be expected: a model that knows little is often sure too early."""


NOTHING: Final = 1e-9
"""A difference of logarithms of times that is rounding."""


class Bayes(Proposing):
    """Proposes the candidate of the largest expected improvement, times the probability that it succeeds.

    Points under way are believed to end as predicted, so that those proposed meanwhile are others. So are
    the times of those that failed: near them there is little left to find. With a second measure each
    proposal is the best for other weights of the two.
    """

    def __init__(self, points: Points, *, trials: int, seed: int) -> None:
        super().__init__(points, seed=seed)
        self._process = Gaussian(self._encoding.groups)
        self._fit_at = 0
        self._spread = self._encoding.features_of(self._encoding.places_of([]))
        self._model: _Model | None = None
        self._amount: Amount | None = None
        self._amounts: dict[int, float] = {}
        self._gain: float | None = None
        """The estimate by the present model, once it was asked for."""
        self._said: dict[int, float] = {}
        """The latest estimates by the number of results known."""
        self._seed = seed

    def weigh(self, amount: Amount) -> None:
        """See ``Weighs``."""
        self._amount = amount

    def tell(self, trial: Trial) -> None:
        """Learn a time, and the second measure if there is one; or that there is none."""
        super().tell(trial)
        number = None if self._amount is None else self._points.find(trial.config)
        if self._amount is not None and number is not None and number in self._times:
            self._amounts[number] = self._amount(trial)

    @in_one_thread
    def ask(self, limit: int) -> Sequence[Config]:
        """The next configs, at most ``limit``: first those that earlier runs found best."""
        return super().ask(limit)

    @property
    @in_one_thread
    def expected_gain(self) -> float | None:
        """The largest estimate since the last PATIENCE results; None with a second measure. An estimate is
        how much better the best of all candidates is than the best result, the mean over draws of their
        times by what has ended.
        """
        if self._amount is not None:
            return None
        known = len(self._times)
        if self._model is not None and self._gain is None:
            self._gain = self._find_gain(self._model)
        self._said[known] = math.inf if self._gain is None else self._gain
        self._said = {at: gain for at, gain in self._said.items() if at > known - PATIENCE}
        return max(self._said.values())

    def _find_gain(self, model: "_Model") -> float:
        ended = [row for row in model.rows if row in self._times or row in self._failed]
        best = [n for n in model.list_best(self._times, self._failed) if n not in self._proposed]
        hoped = [*best[:MOST_HOPED], *list(self._under_way)[-MOST_AWAITED:]]
        if not hoped or not any(row in self._times for row in ended):
            return math.inf if hoped else 0.0
        generator = np.random.default_rng(self._seed)
        judge = self._model_of(ended, hoped, 0, self._times)
        return judge.draw_gain(self._times, self._failed, generator)

    def _choose(self) -> int:
        is_early = len(self._proposed) < FIRST or len(self._times) < 2
        if is_early or not len(self._encoding.groups):
            return self._choose_apart()
        if self._model is None or not self._model.is_usable:
            self._model, self._gain = self._make_model(), None
        return self._model.take(self._values(), self._failed)

    def _values(self) -> Times:
        """What is to be small, by numbers of points: logarithms of times, or both at random weights."""
        if self._amount is None:
            return self._times
        pairs = [(math.exp(log), self._amounts[number]) for number, log in self._times.items()]
        share = self._generator.random()
        return dict(zip(self._times, weigh_both(pairs, share).tolist(), strict=True))

    def _choose_apart(self) -> int:
        """Of some random points the one that is expected to be fastest, or is farthest from those before."""
        numbers = self._draw(SPREAD)
        features = self._encoding.features_of(self._encoding.places_of(numbers))
        if np.ptp(expected := self._expect(numbers)) > NOTHING:
            chosen = int(np.argmin(expected))
        elif len(self._spread):
            away = np.square(features[:, None] - self._spread).sum(axis=2)
            chosen = int(np.argmax(away.min(axis=1)))
        else:
            chosen = 0
        self._spread = np.vstack([self._spread[1 - MOST_AWAITED :], features[chosen]])
        return numbers[chosen]

    def _make_model(self) -> "_Model":
        values = self._values()
        by_time = sorted(values, key=values.__getitem__)
        if len(by_time) >= self._fit_at:
            rows = self._thin(by_time, MOST_FITTED)
            times = np.array([values[row] for row in rows]) - self._expect(rows)
            self._process.fit(self._features_of(rows), _standardize(times))
            self._fit_at = max(len(by_time) + 4, int(len(by_time) * GROWTH))
        candidates = self._list_candidates(by_time)
        known = [*self._thin(by_time, MOST_ROWS), *list(self._failed)[-MOST_FAILED:]]
        rows = [*known, *list(self._under_way)[-MOST_AWAITED:]]
        room = max(1, min(MOST_PROPOSALS + len(by_time) // 50, len(known) // 8))
        return self._model_of(rows, candidates, room, values)

    def _model_of(
        self, rows: Sequence[int], candidates: Sequence[int], room: int, times: Times
    ) -> "_Model":
        features = self._features_of(rows), self._features_of(candidates)
        return _Model(
            posterior=Posterior(self._process, *features, room),
            rows=rows,
            candidates=candidates,
            expected=np.array([*self._expect(rows), *self._expect(candidates)]),
            times=times,
        )

    def _list_candidates(self, by_time: Sequence[int]) -> list[int]:
        near: dict[int, None] = {}
        for place in self._encoding.places_of(by_time[:CENTRES]):
            kinds = self._encoding.find_neighbours(place, self._generator)
            near |= dict.fromkeys(self._keep_left(self._encoding.numbers_of(np.vstack(kinds))))
            if len(near) >= MOST_NEAR:
                break
        chosen = list(near)
        if len(chosen) > MOST_NEAR:
            kept = self._generator.choice(len(chosen), MOST_NEAR, replace=False)
            chosen = [chosen[index] for index in kept]
        return list(dict.fromkeys([*chosen, *self._draw(CANDIDATES - len(chosen))]))

    def _thin(self, by_time: Sequence[int], most: int) -> list[int]:
        if len(by_time) <= most:
            return list(by_time)
        others = self._generator.choice(len(by_time) - most // 2, most - most // 2, replace=False)
        return [*by_time[: most // 2], *(by_time[most // 2 + index] for index in others)]

    def _features_of(self, numbers: Sequence[int]) -> Floats:
        return self._encoding.features_of(self._encoding.places_of(numbers))

    def _expect(self, numbers: Sequence[int]) -> Floats:
        """Logarithms of times, up to a constant, that are expected without the model, which learns the
        difference.
        """
        return np.zeros(len(numbers))


class _Model:
    """A posterior over candidates that takes those proposed as rows, and times as they come."""

    def __init__(
        self,
        *,
        posterior: Posterior,
        rows: Sequence[int],
        candidates: Sequence[int],
        expected: Floats,
        times: Times,
    ) -> None:
        self._posterior = posterior
        self.rows = list(rows)
        self._candidates = candidates
        self._expected_rows, self._expected = expected[: len(rows)], expected[len(rows) :]
        self._is_left = np.ones(len(candidates), dtype=bool)
        away = self._list_logs(times) - self._expected_rows
        self._middle, self._scale = float(np.nanmean(away)), float(np.nanstd(away)) or 1.0

    @property
    def is_usable(self) -> bool:
        """Whether a candidate can be taken."""
        return self._posterior.has_room and bool(self._is_left.any())

    def take(self, times: Times, failed: Collection[int]) -> int:
        """The best candidate, which becomes a row."""
        best = int(np.argmax(np.where(self._is_left, self._judge(times, failed).gains, -1.0)))
        self._posterior.add(best)
        self._is_left[best] = False
        number = self._candidates[best]
        self.rows.append(number)
        self._expected_rows = np.append(self._expected_rows, self._expected[best])
        return number

    def list_best(self, times: Times, failed: Collection[int]) -> list[int]:
        """The candidates, the best first."""
        order = np.argsort(-self._judge(times, failed).gains)
        return [self._candidates[index] for index in order]

    def draw_gain(
        self, times: Times, failed: Collection[int], generator: np.random.Generator
    ) -> float:
        """The share by which the best candidate is faster than the best result, the mean over draws."""
        judged = self._judge(times, failed)
        noise = generator.standard_normal((len(self._candidates), DRAWS))
        drawn = judged.means[:, None] + self._scale * self._posterior.draw(noise)
        drawn[generator.random(drawn.shape) >= judged.odds[:, None]] = math.inf
        gained = np.minimum(drawn.min(axis=0) - min(times.values()), 0.0)
        return float(1 - np.exp(gained).mean())

    def _judge(self, times: Times, failed: Collection[int]) -> "_Judged":
        logs = self._list_logs(times)
        away = (logs - self._expected_rows - self._middle) / self._scale
        ends = [1.0 if one in times else 0.0 if one in failed else math.nan for one in self.rows]
        means, success = self._posterior.predict(np.array([away, np.array(ends) - USUALLY]))
        means = means * self._scale + self._middle + self._expected
        deviations = self._posterior.deviations
        odds = ndtr((success + USUALLY - 0.5) / (DOUBT + deviations / 2))
        best_log = float(np.nanmin(logs))
        gains = _expected_improvement(best_log, means, deviations * self._scale) * odds
        return _Judged(means=means, odds=odds, gains=gains)

    def _list_logs(self, times: Times) -> Floats:
        """The logarithm of the time of each row, NaN for those without one."""
        return np.array([times.get(row, math.nan) for row in self.rows])


@dataclass(frozen=True, kw_only=True)
class _Judged:
    """Of each candidate the mean, the odds of success, and the expected improvement times these; all are of
    logarithms of times.
    """

    means: Floats
    odds: Floats
    gains: Floats


def _expected_improvement(best: float, means: Floats, deviations: Floats) -> Floats:
    better = (best - means) / deviations
    density = np.exp(-better * better / 2) / math.sqrt(2 * math.pi)
    result: Floats = deviations * (density + better * ndtr(better))
    return result


def _standardize(values: NDArray[np.float64]) -> Floats:
    result: Floats = (values - values.mean()) / (values.std() or 1.0)
    return result
