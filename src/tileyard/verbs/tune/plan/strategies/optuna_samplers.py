"""Optuna's samplers as strategies: each chooses values of parameters; a valid point near them is tried."""

from collections import defaultdict
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final

from tileyard.verbs.tune.plan.strategies.base import Points
from tileyard.verbs.tune.plan.strategies.proposing import Proposing

REPEATS: Final = 3
"""Times in a row that a sampler may ask for a known point, until one near it is tried."""


class _Sampled(Proposing):
    """Proposes what a sampler asks for: of each parameter the index of its value, among numbers in their
    order, otherwise as a category.

    A sampler that asks for a known point hears its result again. What failed has the worst time so far. The
    first result of a point counts.
    """

    _sampler: ClassVar[str]
    _options: ClassVar[Mapping[str, Any]] = MappingProxyType({})

    def __init__(self, points: Points, *, trials: int, seed: int) -> None:
        import optuna  # here alone: it is an extra

        super().__init__(points, seed=seed)
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        make = getattr(optuna.samplers, self._sampler)
        self._study = optuna.create_study(sampler=make(seed=seed % (1 << 32), **self._options))
        self._failed_state = optuna.trial.TrialState.FAIL
        self._parameters = {
            f"p{number}": optuna.distributions.IntDistribution(0, count - 1)
            if is_ordered
            else optuna.distributions.CategoricalDistribution(tuple(range(count)))
            for number, (count, is_ordered) in enumerate(self._encoding.parameters)
        }
        self._asked: defaultdict[int, list[Any]] = defaultdict(list)
        self._heard: set[int] = set()

    def _choose(self) -> int:
        number = 0
        for _ in range(REPEATS):
            trial = self._study.ask(self._parameters)
            number = self._encoding.number_near([trial.params[name] for name in self._parameters])
            if number in self._heard:
                self._answer(trial, number)
            else:
                self._asked[number].append(trial)
            if number not in self._proposed:
                return number
        (place,) = self._encoding.places_of([number])
        for places in self._encoding.find_neighbours(place, self._generator):
            if left := self._keep_left(self._encoding.numbers_of(places)):
                return left[int(self._generator.integers(len(left)))]
        return self._draw(1)[0]

    def _notice(self, number: int) -> None:
        is_known = number in self._times or number in self._failed
        if number in self._heard or not is_known:
            return
        self._heard.add(number)
        for trial in self._asked.pop(number, None) or [self._ask_for(number)]:
            self._answer(trial, number)

    def _ask_for(self, number: int) -> Any:  # noqa: ANN401 - a trial of Optuna's
        """A trial of a point that the sampler did not choose."""
        codes = self._encoding.codes_of(number)
        self._study.enqueue_trial(dict(zip(self._parameters, codes, strict=True)))
        return self._study.ask(self._parameters)

    def _answer(self, trial: Any, number: int) -> None:  # noqa: ANN401 - a trial of Optuna's
        value = self._times.get(number, max(self._times.values(), default=None))
        self._study.tell(trial, value, None if value is not None else self._failed_state)


class Tpe(_Sampled):
    """Optuna's tree-structured Parzen estimator."""

    _sampler = "TPESampler"


class GaussianProcess(_Sampled):
    """Optuna's Gaussian process, which takes seconds for a proposal."""

    _sampler = "GPSampler"


class CmaEs(_Sampled):
    """Optuna's covariance matrix adaptation evolution strategy; categories are chosen at random."""

    _sampler = "CmaEsSampler"
    _options = MappingProxyType({"warn_independent_sampling": False})


class Genetic(_Sampled):
    """Optuna's genetic algorithm NSGA-II."""

    _sampler = "NSGAIISampler"
