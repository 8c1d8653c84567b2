"""The score of autotuning-methodology on recorded spaces."""

import asyncio
from functools import partial

import msgspec
import numpy as np
import pytest
from tests.unit.verbs.tune.plan.recorded.recorded_spaces import make_valley

from tileyard.verbs.tune.plan.recorded.replay import Replayed, replay
from tileyard.verbs.tune.plan.recorded.score import Yardstick, make_yardstick
from tileyard.verbs.tune.plan.recorded.space import RecordedSpace, make_space
from tileyard.verbs.tune.plan.strategies.base import make_strategy

VALLEY = make_valley()


@pytest.fixture(scope="module")
def yardstick() -> Yardstick:
    """That of the valley."""
    found = make_yardstick(VALLEY)
    assert found is not None
    return found


def run_at(yardstick: Yardstick, *found: tuple[float, float]) -> list[Replayed]:
    """A run that finds times at shares of the last moment."""
    return [Replayed(ended_s=share * yardstick.last_s, time_ns=time_ns) for share, time_ns in found]


def test_the_best_at_once_is_one(yardstick: Yardstick) -> None:
    """And nothing is better."""
    run = run_at(yardstick, (1e-4, VALLEY.best_ns), (0.5, 2000.0), (1.0, 2000.0))
    found = yardstick.score([run, run])
    assert found is not None
    assert (found.score, found.low, found.high) == (1, 1, 1)


def test_the_worst_throughout_is_below_random_search(yardstick: Yardstick) -> None:
    """A score is negative where random search is expected to be better."""
    worst = VALLEY.times_ns[-1]
    found = yardstick.score([run_at(yardstick, (0.01, worst), (1.0, worst))])
    assert found is not None
    assert found.score < -1


def test_random_search_is_about_zero(yardstick: Yardstick) -> None:
    """As the definition wants it: its interval contains 0, and it is narrower with more seeds."""
    runs = [
        asyncio.run(
            replay(
                VALLEY,
                partial(make_strategy, "random"),
                trials=200,
                seed=i,
                budget_s=yardstick.run_s,
            )
        )
        for i in range(60)
    ]
    found, less = yardstick.score(runs), yardstick.score(runs[:10])
    assert found is not None
    assert less is not None
    assert found.low < 0 < found.high
    assert found.high - found.low < less.high - less.low


def test_what_random_search_is_expected_to_find(yardstick: Yardstick) -> None:
    """The definition's numbers, as the package autotuning-methodology 1.1.0 computes them for this space."""
    assert yardstick.moments_s[[0, -1]] == pytest.approx([3.0, 51.0])
    assert yardstick.random_ns[[0, 499, -1]] == pytest.approx([1076.0, 1012.0, 1004.0])
    assert (np.diff(yardstick.random_ns) <= 0).all()


def test_a_run_that_ends_early_keeps_its_best(yardstick: Yardstick) -> None:
    """Later moments repeat what was found, as if the run had gone on and found nothing better."""
    short = run_at(yardstick, (0.001, 1100.0), (0.5, 1050.0))
    longer = [*short, *run_at(yardstick, (0.8, 1100.0), (1.1, 1100.0))]
    alone, more = yardstick.score([short] * 3), yardstick.score([longer] * 3)
    assert alone is not None
    assert alone == more


def test_no_score_where_there_is_nothing_to_compare(yardstick: Yardstick) -> None:
    """A space of equal times, one without costs, and runs in which nothing was right."""
    assert yardstick.score([[Replayed(ended_s=1.0, time_ns=None)]]) is None
    assert yardstick.score([[]]) is None
    assert make_yardstick(change(time_ns=5.0)) is None
    assert make_yardstick(change(build_s=0.0, run_s=0.0)) is None


def change(**fields: float) -> RecordedSpace:
    """The configs of the valley with a time, with other values of some fields."""
    configs = [msgspec.structs.replace(one, **fields) for one in VALLEY.configs if one.is_timed]
    return make_space(VALLEY.header, configs, "computed")
