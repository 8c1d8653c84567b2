"""Optuna's samplers keep the contract of strategies, and learn."""

from importlib.util import find_spec

import numpy as np
import pytest
from tests.unit.verbs.tune.plan.strategies.test_learning import (
    LISTED_TILES,
    best_of,
    study,
    time_of,
)

from tileyard.base.model import Outcome
from tileyard.testing import StrategyContract
from tileyard.testing.strategies import (
    AXES,
    LISTED,
    ONE,
    RULED,
    MakeStrategy,
    drive,
    end,
    is_each_point_once,
)
from tileyard.verbs.tune.plan.strategies.base import Points
from tileyard.verbs.tune.plan.strategies.optuna_samplers import CmaEs, GaussianProcess, Genetic, Tpe
from tileyard.verbs.tune.plan.strategies.proposing import MOST_HINTS, Encoding

pytestmark = pytest.mark.skipif(find_spec("optuna") is None, reason="needs the extra optuna")
LINE = Points({"block": (16, 32, 64, 128, 256)})
BLOCKS = Points({"block": tuple(range(1, 101)), "fast": (False, True)})


class TestGenetic(StrategyContract):
    """The one whose proposals cost least."""

    @pytest.fixture
    def make(self) -> MakeStrategy:
        """Makes it."""
        return Genetic


@pytest.mark.slow
@pytest.mark.parametrize("make", [Tpe, CmaEs])
@pytest.mark.parametrize(
    "points", [LISTED, RULED, ONE, LINE], ids=["listed", "ruled", "one", "line"]
)
def test_others_propose_each_point_once(make: MakeStrategy, points: Points) -> None:
    """Whatever the kind of space; equal seeds and results give equal orders."""
    first, again = (drive(make(points, trials=20, seed=2), points, (3, 1), 2) for _ in range(2))
    assert is_each_point_once(first, points)
    assert first == again


@pytest.mark.slow
@pytest.mark.sweep(0)  # it imports torch
@pytest.mark.parametrize("seed", [0])
def test_a_gaussian_process_prefers_what_was_fast(seed: int) -> None:
    """From results of an earlier run alone: what it proposes first are the largest blocks."""
    strategy = GaussianProcess(BLOCKS, trials=20, seed=seed)
    for number in range(0, BLOCKS.size, 8):
        config = BLOCKS.config_at(number)
        strategy.tell(end(config, took_ns=1e3 - float(config["block"])))
    proposed = strategy.ask(MOST_HINTS + 2)[MOST_HINTS:]
    assert all(float(config["block"]) > 80 for config in proposed)


@pytest.mark.slow
def test_a_sampler_learns_where_configs_are_listed() -> None:
    """It sees their parameters, not their places in the list."""
    found = [best_of(study(Tpe(LISTED_TILES, trials=60, seed=seed), 60, 3)) for seed in range(3)]
    every = [time_of(LISTED_TILES.config_at(number)) for number in range(LISTED_TILES.size)]
    drawn = [
        best_of(list(np.random.default_rng(seed).permutation(every)[:60])) for seed in range(100)
    ]
    assert np.median(found) < np.quantile(drawn, 0.2)


def test_a_sampler_hears_each_result_once() -> None:
    """Of what it asked for, and of what it did not ask for; a failure has the worst time so far."""
    strategy = Genetic(AXES, trials=20, seed=0)
    (asked,) = strategy.ask(1)
    others = [AXES.config_at(number) for number in range(3) if AXES.config_at(number) != asked]
    for config, outcome in ((others[0], Outcome.PASSED), (asked, Outcome.CRASHED)):
        for _ in range(2):
            strategy.tell(end(config, outcome, 1000.0))
    told = [(trial.value, trial.params) for trial in strategy._study.trials]
    assert [round(value, 3) for value, _ in told] == [6.908, 6.908]
    encoding = Encoding(AXES)
    numbers = [encoding.number_near(list(params.values())) for _, params in told]
    assert numbers == [AXES.find(asked), AXES.find(others[0])]


@pytest.mark.parametrize("points", [AXES, LISTED, RULED])
def test_codes_lead_back_to_their_point(points: Points) -> None:
    """And others to a valid point near them."""
    encoding = Encoding(points)
    for number in range(points.size):
        assert encoding.number_near(encoding.codes_of(number)) == number
    counts = [count for count, _ in encoding.parameters]
    number = encoding.number_near([count - 1 for count in counts])
    assert 0 <= number < points.size
