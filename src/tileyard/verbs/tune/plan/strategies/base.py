"""The interface of a strategy, and the thread in which it computes: the engine goes on meanwhile, so no
device waits for it.
"""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from importlib.util import find_spec
from pkgutil import resolve_name
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from tileyard.artifacts.objects import canonical_json
from tileyard.base.errors import ToolMissingError, UsageError
from tileyard.base.model import Trial, Value
from tileyard.base.wording import install_extra
from tileyard.frontend.constraints import Expr
from tileyard.verbs.tune.plan.diagram import Variable, solve

Config = dict[str, Value]
STRATEGIES: dict[str, str] = {
    "auto": "tileyard.verbs.tune.plan.strategies.base:make_suitable",
    "bayes": "tileyard.verbs.tune.plan.strategies.bayes:Bayes",
    "model": "tileyard.verbs.tune.plan.strategies.model:Model",
    "local": "tileyard.verbs.tune.plan.strategies.local:Local",
    "random": "tileyard.verbs.tune.plan.strategies.in_order:AtRandom",
    "grid": "tileyard.verbs.tune.plan.strategies.in_order:Grid",
    "optuna-tpe": "tileyard.verbs.tune.plan.strategies.optuna_samplers:Tpe",
    "optuna-gp": "tileyard.verbs.tune.plan.strategies.optuna_samplers:GaussianProcess",
    "optuna-cmaes": "tileyard.verbs.tune.plan.strategies.optuna_samplers:CmaEs",
    "optuna-nsga2": "tileyard.verbs.tune.plan.strategies.optuna_samplers:Genetic",
}
"""Names of strategies, each with the ``module:name`` of what makes it."""
FOREIGN: Final[Mapping[str, tuple[str, ...]]] = {
    "optuna-tpe": ("optuna",),
    "optuna-gp": ("optuna", "torch"),
    "optuna-cmaes": ("optuna", "cmaes"),
    "optuna-nsga2": ("optuna",),
}
"""Packages, all in the extra ``optuna``, of strategies that need any. Their proposals take long, so a study
has them in a process of their own (``Ahead``).
"""
EXPECTING: Final = ("auto", "bayes", "model")
"""Those that know their ``expected_gain``."""
INDEX: Final = "@"
"""Ends the name of a parameter where constraints of ours ask for the index of its value."""


class Points:
    """The points of a space: a product of ``axes``, for each of the configs ``listed``, if any, as far as
    they meet the ``constraints``. A parameter that a listed config lacks has its value of ``defaults``.

    A point has a number below ``size``: all of these are valid. Numbers count in the space's order, the
    last axis fastest, or, where constraints join many axes, in the order of ``diagram``. A point's place is
    an index for each of ``lengths``: into the listed configs, if any, and then into the values of each axis.
    The places of a product of ``product`` points are valid or not; those of a diagram that ``is_part`` of
    the valid ones are a random choice.
    """

    def __init__(
        self,
        axes: Mapping[str, Sequence[Value]],
        listed: Sequence[Config] = (),
        constraints: Sequence[Expr] = (),
        defaults: Mapping[str, Value] = MappingProxyType({}),
    ) -> None:
        self.axes = {name: unique(values) for name, values in axes.items()}
        bare = ({k: v for k, v in one.items() if k not in axes} for one in listed)
        self.listed = tuple({canonical_json(one): one for one in bare}.values())
        base = [len(self.listed)] if self.listed else []
        self.lengths = (*base, *(len(values) for values in self.axes.values()))
        self.constraints = tuple(constraints)
        self.defaults = defaults
        self.product = math.prod(self.lengths)
        self.diagram = solve(self.variables, constraints) if constraints else None
        self.size = self.product if self.diagram is None else self.diagram.size

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters, in order."""
        return (*(name for name in self._listed_names if name not in self.axes), *self.axes)

    @cached_property
    def _listed_names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for config in self.listed for name in config))

    @cached_property
    def variables(self) -> list[Variable]:
        """What constraints see of each index of a place. ``NAME@`` is the index of a value of NAME."""
        columns = {
            name: [config.get(name, self.defaults.get(name)) for config in self.listed]
            for name in self._listed_names
        }
        base = [Variable(len(self.listed), columns)] if self.listed else []
        axes = [
            Variable(len(values), {name: values, f"{name}{INDEX}": range(len(values))})
            for name, values in self.axes.items()
        ]
        return [*base, *axes]

    def config_at(self, number: int) -> Config:
        """The config of the point with this number."""
        place = list(self.split(number))
        config = dict(self.listed[place.pop(0)]) if self.listed else {}
        axes = zip(self.axes.items(), place, strict=True)
        return config | {name: values[index] for (name, values), index in axes}

    def find(self, config: Config) -> int | None:
        """The number of the point of a config; None for one that is not in the space."""
        rest = dict(config)
        place: list[int | None] = []
        for name, values in self.axes.items():
            value = rest.pop(name, None)
            if isinstance(values, range):
                is_known = isinstance(value, int) and type(value) is int and value in values
                place.append(values.index(value) if is_known else None)  # type: ignore[arg-type]  # an int
            else:
                place.append(self._indexes[name].get((type(value), value)))
        if self.listed:
            place.insert(0, self._listed_indexes.get(canonical_json(rest)))
        elif rest:
            return None
        known = [index for index in place if index is not None]
        if len(known) < len(place):
            return None
        if self.diagram is None:
            return self.join(known)
        if not self.size:
            return None
        numbers, is_valid = self.diagram.numbers_of(np.array([known]))
        return numbers[0] if is_valid[0] else None

    def split(self, number: int) -> tuple[int, ...]:
        """The place of the point with this number."""
        if self.diagram is not None:
            return tuple(self.diagram.places_of([number])[0].tolist())
        place = []
        for length in reversed(self.lengths):
            number, index = divmod(number, length)
            place.append(index)
        return tuple(reversed(place))

    def join(self, place: Sequence[int]) -> int:
        """The number of the point at this place; if it is not valid, of a valid one near it, whose indexes
        differ as little as each index before them allows. ``split`` tells which.
        """
        if self.diagram is not None:
            return self.diagram.numbers_of(np.array([place]))[0][0]
        number = 0
        for length, index in zip(self.lengths, place, strict=True):
            number = number * length + index
        return number

    def split_all(self, numbers: Sequence[int]) -> npt.NDArray[np.int64]:
        """The places of the points with these numbers, one per row: as ``split``, and faster for many."""
        if self.diagram is not None:
            return self.diagram.places_of(numbers)
        left: npt.NDArray[Any] = np.array(numbers, dtype=self._dtype)
        places = np.zeros((len(numbers), len(self.lengths)), dtype=np.int64)
        for axis, length in reversed(list(enumerate(self.lengths))):
            places[:, axis], left = left % length, left // length
        return places

    def join_all(self, places: npt.NDArray[np.int64]) -> list[int]:
        """The numbers of the points at, or near, the places in the rows: as ``join``, and faster for many."""
        if self.diagram is not None:
            return self.diagram.numbers_of(places)[0]
        found: npt.NDArray[Any] = np.zeros(len(places), dtype=self._dtype)
        for length, indexes in zip(self.lengths, places.T, strict=True):
            found = found * length + indexes
        numbers: list[int] = found.tolist()
        return numbers

    @property
    def _dtype(self) -> type:
        return np.int64 if self.product < 1 << 62 else object

    def values_of(self, name: str) -> Sequence[Value]:
        """The values of a parameter in all points, valid or not."""
        if name in self.axes:
            return self.axes[name]
        return unique([config[name] for config in self.listed if name in config])

    @cached_property
    def _indexes(self) -> dict[str, dict[tuple[type, object], int]]:
        return {
            name: {(type(value), value): index for index, value in enumerate(values)}
            for name, values in self.axes.items()
            if not isinstance(values, range)
        }

    @cached_property
    def _listed_indexes(self) -> dict[str, int]:
        return {canonical_json(config): index for index, config in enumerate(self.listed)}


def unique(values: Sequence[Value]) -> Sequence[Value]:
    """Values without repetition; 1, 1.0 and true are three values. A range stays one."""
    if isinstance(values, range):
        return values
    return tuple({(type(value), value): value for value in values}.values())


class Strategy(Protocol):
    """Chooses the configs of one study, while any number of those that it has proposed are under way.

    No method waits. All are called in a thread beside the engine (``StrategyThread``), one at a time. What
    takes seconds belongs in a process of its own (``Ahead``), and its result in a later proposal. Else, and
    unless it ``Foresees``, equal seeds, limits and results give equal proposals.
    ``learns``: proposals depend on results. Such a strategy is asked for no more than can be tried now, and
    learns what was recorded before; others are asked ahead.
    """

    learns: bool

    def __init__(self, points: Points, *, trials: int, seed: int) -> None:
        """A strategy for these points, of which the study tries at most ``trials``."""

    @property
    def is_exhausted(self) -> bool:
        """Whether nothing will be proposed any more."""
        ...

    @property
    def expected_gain(self) -> float | None:
        """The share by which the best time is expected to improve if the search goes on, 0.01 for 1 %;
        infinite before anything is known, None if the strategy cannot say.
        """
        ...

    def ask(self, limit: int) -> Sequence[Config]:
        """The next configs, at most ``limit``, each a point of the space that was not proposed before.

        At least one, unless the strategy is exhausted: the results of those under way are not waited for.
        """
        ...

    def tell(self, trial: Trial) -> None:
        """Learn how a config ended, whatever the outcome, in any order.

        A config may be told of several times, for each kind of device and if it is measured again: the
        latest counts. One that was not proposed is from an earlier run (``reused``), and is still to be
        proposed.
        """
        ...

    def reject(self, config: Config) -> None:
        """Learn that the kernel's ``where`` rejects a proposed config: it will have no trial, and does
        not count as one.
        """
        ...


Work = Mapping[str, Value]
"""Amounts of what a launch does, by name, as ``ir/work.py`` counts them; empty if they are not known."""

OF_BINARIES: Final = {"spilled_bytes": 0.0, "occupancy": 1.0}
"""Numbers that may be beside them, known only of what was built; as they are if its target reports none."""

Subject = tuple[int, Sequence[tuple[Work, float]]]
"""Units of a device (cores, multiprocessors) among which blocks are divided, 1 if they are not known; and the
work of configs with their times in ns.
"""


@runtime_checkable
class Foresees(Protocol):
    """A strategy that wants to know the work of configs before it proposes them."""

    def begin_with(self, units: int, subjects: Sequence[Subject]) -> None:
        """Learn the units of the device; and the times of the kernel's configs for other arguments, or on
        other devices: of each such subject by itself.
        """
        ...

    def list_unforeseen(self, limit: int) -> Sequence[Config]:
        """Configs whose work it wants to know next, at most ``limit``, the most promising first."""
        ...

    def foresee(self, config: Config, work: Work) -> None:
        """Learn the work of a config; and again, with OF_BINARIES, once it is built."""
        ...

    def rank(self, work: Work) -> float | None:
        """The place of a config with this work, and OF_BINARIES, among those that are built, the least first;
        None if it is not known. Called in the loop, and changes nothing.
        """
        ...


Amount = Callable[[Trial], float]
"""The second measure of a trial, which is to be small, too."""


@runtime_checkable
class Weighs(Protocol):
    """A strategy that can look for all trade-offs of time and a second measure."""

    def weigh(self, amount: Amount) -> None:
        """From now on look for short times and small amounts alike. Called before the first ``tell``."""
        ...


def weigh(strategy: Strategy, amount: Amount) -> None:
    """Have a strategy look for trade-offs. Raises UsageError for one that learns and cannot."""
    if isinstance(strategy, Weighs):
        strategy.weigh(amount)
    elif strategy.learns:
        raise UsageError(
            "--pareto: this strategy looks for short times alone", "bayes looks for both"
        )


def check_strategy(name: str) -> None:
    """Raise UsageError for a name that no strategy has, ToolMissingError for one that cannot run here."""
    if name not in STRATEGIES:
        known = ", ".join(sorted(STRATEGIES))
        raise UsageError(f"there is no strategy {name!r}", hint=f"known strategies: {known}")
    for package in FOREIGN.get(name, ()):
        if find_spec(package) is None:
            raise ToolMissingError(
                f"the strategy {name} needs the package {package}", install_extra("optuna")
            )


def require_gain(name: str) -> None:
    """Raise UsageError unless the strategy of this name knows its expected gain."""
    check_strategy(name)
    if name not in EXPECTING:
        raise UsageError(
            f"--until-gain: the strategy {name} does not know what gain to expect",
            hint=f"these do: {', '.join(EXPECTING)}",
        )


def make_strategy(name: str, points: Points, *, trials: int, seed: int) -> Strategy:
    """The strategy of this name for a space of which at most ``trials`` points are tried. Raises
    UsageError, or ToolMissingError.
    """
    check_strategy(name)
    strategy: Strategy = resolve_name(STRATEGIES[name])(points, trials=trials, seed=seed)
    return strategy


def make_suitable(points: Points, *, trials: int, seed: int) -> Strategy:
    """The usual strategy: ``bayes``, or the order of the space if all of it, or one config, is tried."""
    name = "random" if points.size <= trials or trials == 1 else "bayes"
    return make_strategy(name, points, trials=trials, seed=seed)


AnswerT = TypeVar("AnswerT")
Call = Callable[[], object]


class StrategyThread:
    """Calls a strategy in a thread, in the order in which it was told and asked.

    News wait for the next question, so what ends during a computation is known to the next one,
    and equal calls give equal answers, however long they take.
    """

    def __init__(self, *, in_loop: bool = False) -> None:
        """``in_loop``: without a thread, where nothing else goes on, or answers cost nothing."""
        self._in_loop = in_loop
        self._news: list[Call] = []
        # One of its own: the end of a loop waits for the threads that all share.
        self._thread = ThreadPoolExecutor(1, "strategy")

    def tell(self, news: Call) -> None:
        """Make this call before the next question is answered."""
        self._news.append(news)

    async def ask(self, question: Callable[[], AnswerT]) -> AnswerT:
        """The answer of a strategy, or its exception. If the caller is cancelled, nobody waits for the
        computation.
        """
        news, self._news = self._news, []
        if self._in_loop:
            await asyncio.sleep(0)  # here Ctrl-C is noticed
            return _answer(news, question)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, _answer, news, question)


def _answer(news: Sequence[Call], question: Callable[[], AnswerT]) -> AnswerT:
    for call in news:
        call()
    return question()
