"""Strategies keep their contract, and their orders are what they are called."""

import random

import pytest

from tileyard.base.errors import UsageError
from tileyard.testing import StrategyContract
from tileyard.testing.strategies import AXES, HUGE, LISTED, RULED, MakeStrategy
from tileyard.verbs.tune.plan.strategies.base import (
    EXPECTING,
    STRATEGIES,
    Points,
    make_strategy,
    make_suitable,
    require_gain,
)
from tileyard.verbs.tune.plan.strategies.bayes import Bayes
from tileyard.verbs.tune.plan.strategies.in_order import AtRandom, Grid
from tileyard.verbs.tune.plan.strategies.local import Local
from tileyard.verbs.tune.plan.strategies.model import Model

EIGHTHS = ((128, 1), (128, 2), (128, 4), (128, 8))


class TestGrid(StrategyContract):
    """The order of the space."""

    @pytest.fixture
    def make(self) -> MakeStrategy:
        """Makes it."""
        return Grid

    def test_the_order_is_that_of_the_space(self) -> None:
        """Also where not all points are to be tried."""
        expected = [AXES.config_at(number) for number in range(7)]
        assert Grid(AXES, trials=5, seed=0).ask(7) == expected


class TestAtRandom(StrategyContract):
    """A random order."""

    @pytest.fixture
    def make(self) -> MakeStrategy:
        """Makes it."""
        return AtRandom

    def test_the_order_of_a_seed_stays(self) -> None:
        """A study of an earlier version that goes on tries the same configs."""
        expected = random.Random(4).sample(range(36), 36)
        configs = AtRandom(AXES, trials=20, seed=4).ask(36)
        assert list(map(AXES.find, configs)) == expected
        generator = random.Random(4)
        drawn = [generator.randrange(HUGE.size) for _ in range(9)]
        assert list(map(HUGE.find, AtRandom(HUGE, trials=20, seed=4).ask(9))) == drawn

    @pytest.mark.parametrize("trials", [1, 36])
    def test_all_points_or_one_are_in_the_order_of_the_space(self, trials: int) -> None:
        """The first config is then tried first."""
        configs = AtRandom(AXES, trials=trials, seed=4).ask(36)
        assert list(map(AXES.find, configs)) == list(range(36))


class TestLocal(StrategyContract):
    """Local search."""

    @pytest.fixture
    def make(self) -> MakeStrategy:
        """Makes it."""
        return Local


class TestModel(StrategyContract):
    """Bayesian optimisation of what a model of costs leaves open, for which all work, or none, is known."""

    @pytest.fixture(params=[False, True])
    def make(self, request: pytest.FixtureRequest) -> MakeStrategy:
        """Makes it."""

        def make(points: Points, *, trials: int, seed: int) -> Model:
            strategy = Model(points, trials=trials, seed=seed)
            strategy.begin_with(2, ())
            for config in strategy.list_unforeseen(100) if request.param else ():
                work = {"blocks": 4.0, "steps": float(len(str(config)))}
                strategy.foresee(config, work)
            return strategy

        return make


class TestBayes(StrategyContract):
    """Bayesian optimisation."""

    @pytest.fixture
    def make(self) -> MakeStrategy:
        """Makes it."""
        return Bayes


@pytest.mark.parametrize("trials", [1, 36])
def test_nothing_is_learnt_where_all_points_or_one_are_tried(trials: int) -> None:
    """Unless a strategy is named, they are in the order of the space."""
    strategy = make_suitable(AXES, trials=trials, seed=4)
    assert list(map(AXES.find, strategy.ask(36))) == list(range(36))
    assert not strategy.learns
    assert make_suitable(AXES, trials=35, seed=4).learns


@pytest.mark.parametrize("points", [AXES, LISTED, RULED])
def test_a_point_is_found_by_its_config(points: Points) -> None:
    """Whatever the order of its keys; 1 and true are two values."""
    configs = [points.config_at(number) for number in range(points.size)]
    turned = [dict(reversed(config.items())) for config in configs]
    assert list(map(points.find, turned)) == list(range(points.size))
    assert points.find({**configs[0], "other": 1}) is None
    assert points.find({**configs[0], "stages": 1.0}) is None
    assert points.find({}) is None
    places = points.split_all(range(points.size))
    assert list(map(tuple, places.tolist())) == list(map(points.split, range(points.size)))
    assert points.join_all(places) == list(range(points.size))


def test_the_points_of_a_ruled_space_are_the_valid_ones() -> None:
    """In the order of the space; a place that is not valid is that of a valid point near it."""
    configs = [RULED.config_at(number) for number in range(RULED.size)]
    pairs = [(config["block"], config["split"]) for config in configs if config["fast"]]
    assert pairs == [(16, 1), (32, 1), (32, 2), (64, 1), (64, 2), (64, 4), *EIGHTHS]
    assert (RULED.product, RULED.lengths) == (64, (4, 8, 2))
    place = RULED.split(RULED.size - 1)
    assert (place, RULED.join(place)) == ((3, 7, 1), RULED.size - 1)
    assert RULED.split(RULED.join((3, 7, 0))) == (3, 7, 1)
    assert RULED.split(RULED.join((2, 6, 0))) == (2, 3, 1)
    assert RULED.find({"block": 16, "split": 2, "fast": True}) is None


def test_a_long_axis_is_not_listed() -> None:
    """A range stays one."""
    points = Points({"tile": range(0, 10**12, 16), "fast": (False, True)})
    number = points.find({"tile": 160, "fast": True})
    assert number == 21
    assert points.config_at(number) == {"tile": 160, "fast": True}
    assert points.find({"tile": 161, "fast": True}) is None
    assert points.find({"tile": True, "fast": True}) is None


def test_strategies_that_expect_a_gain_are_known_by_name() -> None:
    """Before one is made: the others are refused where the search is to end by it."""
    made = {name: make_strategy(name, AXES, trials=5, seed=0) for name in STRATEGIES}
    assert {n for n, one in made.items() if one.expected_gain is not None} == set(EXPECTING)
    with pytest.raises(UsageError, match=r"local does not know .*these do: auto, bayes, model"):
        require_gain("local")


def test_an_unknown_strategy_is_refused() -> None:
    """With the names of those that there are."""
    expected = f"there is no strategy 'best' .known strategies: {', '.join(sorted(STRATEGIES))}"
    with pytest.raises(UsageError, match=expected):
        make_strategy("best", AXES, trials=1, seed=0)
