"""The score of autotuning-methodology on recorded spaces."""

import asyncio
from functools import partial

import msgspec
import numpy as np
import pytest
from tests.unit.verbs.tune.plan.recorded.recorded_spaces import make_valley

from tileyard.verbs.tune.plan.recorded.replay import Replayed, replay
from tileyard.verbs.tune.plan.recorded.score import Unscored, Yardstick, make_yardstick
from tileyard.verbs.tune.plan.recorded.space import make_space
from tileyard.verbs.tune.plan.strategies.base import make_strategy

VALLEY = make_valley()


@pytest.fixture(scope="module")
def yardstick() -> Yardstick:
    """That of the valley."""
    return make_yardstick(VALLEY)


def run_at(yardstick: Yardstick, *found: tuple[float, float]) -> list[Replayed]:
    """A run that finds times at shares of the last moment."""
    return [Replayed(ended_s=share * yardstick.last_s, time_ns=time_ns) for share, time_ns in found]


def test_the_best_at_once_is_one(yardstick: Yardstick) -> None:
    """And nothing is better."""
    run = run_at(yardstick, (1e-4, VALLEY.best_ns), (0.5, 2000.0), (1.0, 2000.0))
    found = yardstick.score([run, run])
    assert (found.score, found.low, found.high) == (1, 1, 1)


def test_the_worst_throughout_is_below_random_search(yardstick: Yardstick) -> None:
    """A score is negative where random search is expected to be better."""
    worst = VALLEY.times_ns[-1]
    assert yardstick.score([run_at(yardstick, (0.01, worst), (1.0, worst))]).score < -1


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
    assert alone == more


@pytest.mark.parametrize(
    ("runs", "reason"),
    [
        ([[(1.0, None)], [(2.0, None), (60.0, None)]], "nothing was right in 3 trials"),
        (
            [[(0.5, 1100.0)], [(1.0, None)]],
            "the trials end at 1 s of recorded time, and the score begins at 1.95 s",
        ),
        (
            [[(1.0, None), (99.0, 1100.0)], [(1.0, 1100.0)]],
            "no trial ended within its moments, 2.33 s to 62.5 s of recorded time, with a right config found "
            "by then",
        ),
    ],
)
def test_runs_without_a_score_say_why(
    runs: list[list[tuple[float, float | None]]], reason: str, yardstick: Yardstick
) -> None:
    """Nothing right, too short, or a trial in place of all moments."""
    ended = [[Replayed(ended_s=at_s, time_ns=time_ns) for at_s, time_ns in run] for run in runs]
    with pytest.raises(Unscored) as found:
        yardstick.score(ended)
    assert str(found.value) == reason


@pytest.mark.parametrize(
    ("count", "fields", "reason"),
    [
        (343, {"time_ns": 5.0}, "all of 343 configs with a time are equally fast"),
        (1, {}, "only 1 config with a time"),
        (
            343,
            {"build_s": 0.0, "run_s": 0.0},
            "half of the configs or more took no time when they were recorded",
        ),
        (
            3,
            {},
            "random search is expected to find the best of 3 configs with a time within the 2 trials that "
            "the score takes",
        ),
    ],
)
def test_spaces_without_a_score_say_why(count: int, fields: dict[str, float], reason: str) -> None:
    """Of the first configs of the valley with a time, with other values of some fields."""
    timed = [one for one in VALLEY.configs if one.is_timed][:count]
    configs = [msgspec.structs.replace(one, **fields) for one in timed]
    with pytest.raises(Unscored) as found:
        make_yardstick(make_space(VALLEY.header, configs, "computed"))
    assert str(found.value) == reason
