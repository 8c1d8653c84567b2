"""The contract of strategies: every point of a space is proposed once, whatever comes of those before.

A strategy's test class inherits ``StrategyContract`` and defines the fixture ``make``.
"""

import math
import random
from collections.abc import Sequence
from typing import Protocol

import pytest

from tileyard.artifacts.objects import canonical_json
from tileyard.base.model import WELL, Measurement, Outcome, Trial
from tileyard.frontend.constraints import read_constraint
from tileyard.testing.stores import make_trial
from tileyard.verbs.tune.plan.strategies.base import Config, Points, Strategy

AXES = Points({"block": (16, 32, 64, 128), "stages": (1, 2, 3), "fast": (False, True, 1)})
LISTED = Points({"stages": (1, 2)}, [{"block": 16, "split": 2}, {"block": 32}, {"block": 32.0}])
RULED = Points(
    {"block": (16, 32, 64, 128), "split": range(1, 9), "fast": (False, True)},
    constraints=[read_constraint("block % (split * 16) == 0 and (fast or split < 4)").expr],
)
ONE = Points({"block": (16,)})
HUGE = Points({name: tuple(range(1000)) for name in ("m", "n", "k", "stages")})
OUTCOMES = tuple(Outcome)


class MakeStrategy(Protocol):
    """Makes the strategy under test, as a study does."""

    def __call__(self, points: Points, *, trials: int, seed: int) -> Strategy:
        """A strategy for these points."""
        ...


def end(config: Config, outcome: Outcome = Outcome.PASSED, took_ns: float = 100.0) -> Trial:
    """The trial of a config; only what passed has a time."""
    samples_ns = (took_ns,) * 3
    measured = Measurement(
        median_ns=took_ns, low_ns=took_ns, high_ns=took_ns, confidence=0.95, samples_ns=samples_ns
    )
    measurement = measured if outcome in WELL else None
    return make_trial("t", config=config, outcome=outcome, measurement=measurement)


def make_end(number: int, config: Config) -> Trial:
    """The trial of a config of which the outcome and the time depend on its number: all outcomes occur."""
    return end(config, OUTCOMES[number % len(OUTCOMES)], 100.0 + number * 37 % 101)


def list_asked(strategy: Strategy, limit: int) -> list[Config]:
    """What a strategy proposes next, no more than asked for; nothing only once it is exhausted."""
    configs = list(strategy.ask(limit))
    assert len(configs) <= limit
    assert configs or strategy.is_exhausted
    return configs


def drive(
    strategy: Strategy,
    points: Points,
    limits: Sequence[int],
    under_way: int,
    *,
    asks_gain: bool = False,
) -> list[Config]:
    """What a strategy proposes in all, a third of it rejected, while up to ``under_way`` results are awaited.

    Results arrive in a random order, always the same one. With ``asks_gain`` it also says what it expects.
    """
    generator = random.Random(7)
    proposed: list[Config] = []
    awaited: list[Config] = []
    while configs := list_asked(strategy, limits[len(proposed) % len(limits)]):
        proposed += configs
        for config in configs:
            number = points.find(config)
            assert number is not None
            if number % 3:
                awaited.append(config)
            else:
                strategy.reject(config)
        while len(awaited) > under_way:
            config = awaited.pop(generator.randrange(len(awaited)))
            strategy.tell(make_end(points.find(config) or 0, config))
            if asks_gain:
                gain = strategy.expected_gain
                assert gain is None or 0 <= gain <= 1 or math.isinf(gain)
    return proposed


def is_each_point_once(configs: Sequence[Config], points: Points) -> bool:
    """Whether these are all points of a space, with values of the right types."""
    every = [points.config_at(number) for number in range(points.size)]
    return sorted(map(canonical_json, configs)) == sorted(map(canonical_json, every))


class StrategyContract:
    """Tests of what every strategy promises."""

    @pytest.fixture
    def make(self) -> MakeStrategy:
        """Makes the strategy under test."""
        raise NotImplementedError

    @pytest.mark.parametrize(
        "points", [AXES, LISTED, RULED, ONE], ids=["axes", "listed", "ruled", "one"]
    )
    @pytest.mark.parametrize("trials", [1, 5, 1000])
    @pytest.mark.parametrize("under_way", [0, 3])
    def test_every_point_is_proposed_once(
        self, make: MakeStrategy, points: Points, trials: int, under_way: int
    ) -> None:
        """Rejections, failures, late results and the number of wanted trials leave out no point of a
        small space.
        """
        strategy = make(points, trials=trials, seed=3)
        proposed = drive(strategy, points, (1, 4, 2), under_way)
        assert is_each_point_once(proposed, points)
        assert strategy.is_exhausted

    @pytest.mark.parametrize("limit", [1, 5, 100])
    def test_no_result_is_waited_for(self, make: MakeStrategy, limit: int) -> None:
        """However many configs are under way, each request gets at least one until no point is left."""
        strategy = make(AXES, trials=20, seed=0)
        proposed: list[Config] = []
        while configs := list_asked(strategy, limit):
            proposed += configs
        assert is_each_point_once(proposed, AXES)

    def test_a_space_that_is_all_rejected_ends(self, make: MakeStrategy) -> None:
        """A rejected config is not proposed again, and not replaced by one outside of the space."""
        strategy = make(AXES, trials=10, seed=0)
        proposed: list[Config] = []
        while configs := list_asked(strategy, 3):
            proposed += configs
            for config in configs:
                strategy.reject(config)
        assert is_each_point_once(proposed, AXES)

    @pytest.mark.parametrize("outcome", OUTCOMES)
    def test_nothing_but_one_outcome(self, make: MakeStrategy, outcome: Outcome) -> None:
        """A study in which all configs end alike, however badly, comes to its end."""
        strategy = make(AXES, trials=20, seed=0)
        proposed: list[Config] = []
        while configs := list_asked(strategy, 3):
            proposed += configs
            for config in configs:
                strategy.tell(end(config, outcome))
        assert is_each_point_once(proposed, AXES)

    def test_equal_seeds_give_equal_orders(self, make: MakeStrategy) -> None:
        """With the same requests and results; to be asked for the expected gain changes nothing."""
        first, again = (
            drive(make(AXES, trials=20, seed=5), AXES, (2, 3), under_way=2, asks_gain=asks_gain)
            for asks_gain in (False, True)
        )
        assert first == again

    def test_a_huge_space_is_not_listed(self, make: MakeStrategy) -> None:
        """Of 10^12 points some hundred are proposed, each once, with their results in between."""
        strategy = make(HUGE, trials=500, seed=0)
        seen: set[int | None] = set()
        for _ in range(100):
            configs = list_asked(strategy, 4)
            assert seen.isdisjoint(map(HUGE.find, configs))
            seen.update(map(HUGE.find, configs))
            for config in configs:
                strategy.tell(make_end(len(seen), config))
        assert None not in seen
        assert len(seen) >= 100

    def test_what_was_recorded_is_proposed_all_the_same(self, make: MakeStrategy) -> None:
        """Results of an earlier run may be told before any proposal: its configs are part of this study,
        too.
        """
        strategy = make(AXES, trials=1000, seed=0)
        for number in range(0, AXES.size, 2):
            strategy.tell(make_end(number, AXES.config_at(number)))
        assert is_each_point_once(drive(strategy, AXES, (3,), under_way=1), AXES)

    def test_a_config_may_be_told_of_again(self, make: MakeStrategy) -> None:
        """As from devices of several kinds, or when it is measured again: it is not proposed again."""
        strategy = make(AXES, trials=1000, seed=0)
        (config,) = strategy.ask(1)
        for outcome, took_ns in (
            (Outcome.PASSED, 9.0),
            (Outcome.NOT_RUN, 0),
            (Outcome.PASSED, 8.0),
        ):
            strategy.tell(end(config, outcome, took_ns))
        rest = drive(strategy, AXES, (5,), under_way=0)
        assert is_each_point_once([config, *rest], AXES)
