"""Studies replayed on recorded spaces."""

import asyncio
import itertools
import math
import signal
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec
import pytest
from tests.unit.verbs.tune.plan.recorded.recorded_spaces import make_valley

from tileyard.artifacts.objects import ObjectStore, canonical_json
from tileyard.base.errors import UsageError
from tileyard.base.model import Outcome, Trial
from tileyard.testing.stores import make_trial
from tileyard.verbs.tune.plan.goals import Volume
from tileyard.verbs.tune.plan.recorded.replay import Replayed, as_trial, find_regret, replay
from tileyard.verbs.tune.plan.recorded.replaying import Arena
from tileyard.verbs.tune.plan.recorded.space import make_space
from tileyard.verbs.tune.plan.recorded.studies import list_spaces
from tileyard.verbs.tune.plan.strategies.base import Config, Points, Work, make_strategy
from tileyard.verbs.tune.plan.strategies.in_order import Grid
from tileyard.verbs.tune.plan.strategies.model import Model

VALLEY = make_valley()
AT_RANDOM = partial(make_strategy, "random")


class Watched(Grid):
    """The grid, which learns: it is asked for no more than there is room, and keeps what it hears."""

    learns = True
    made: "list[Watched]" = []

    def __init__(self, points: Points, *, trials: int, seed: int) -> None:
        super().__init__(points, trials=trials, seed=seed)
        self.log: list[str] = []
        self.heard: list[Trial] = []
        self.made.append(self)

    def ask(self, limit: int) -> Sequence[Config]:
        """The next configs."""
        self.log.append(f"ask {limit}")
        return super().ask(limit)

    def tell(self, trial: Trial) -> None:
        """Keep it."""
        self.log.append("tell")
        self.heard.append(trial)


def test_a_replay_depends_on_its_seed_alone() -> None:
    """Equal seeds give equal trials, others give others."""
    first, again, other = (
        asyncio.run(replay(VALLEY, AT_RANDOM, trials=30, seed=seed, in_flight=3))
        for seed in (1, 1, 2)
    )
    assert first == again != other


def test_a_strategy_hears_of_each_trial_before_the_next_question() -> None:
    """With one trial in flight; a failure has its outcome and no time, and takes what it cost."""
    ended = asyncio.run(replay(VALLEY, Watched, trials=6, seed=0))
    strategy = Watched.made[-1]
    assert strategy.log == ["ask 1", "tell"] * 6
    outcomes = [Outcome.PASSED] * 5 + [Outcome.COMPILE_ERROR]
    assert sorted(one.outcome for one in strategy.heard) == sorted(outcomes)
    costs_s = [VALLEY.find(one.config).cost_s for one in strategy.heard]
    assert [one.ended_s for one in ended] == list(itertools.accumulate(costs_s))
    for trial, one in zip(strategy.heard, ended, strict=True):
        assert one.time_ns == (trial.measurement.median_ns if trial.measurement else None)


class Foreseeing(Model):
    """Keeps of which configs it was told the work alone, and of which what their binaries are like, too."""

    told: "list[tuple[Config, bool]]" = []

    def foresee(self, config: Config, work: Work) -> None:
        """Keep it."""
        self.told.append((config, "occupancy" in work))
        super().foresee(config, work)


def test_a_binary_is_known_once_its_config_has_begun() -> None:
    """Of others the work alone, as if an author had counted it."""
    configs = [
        msgspec.structs.replace(one, facts={"blocks": 4, "steps": 1, "occupancy": 0.5})
        for one in VALLEY.configs
    ]
    space = make_space(VALLEY.header, configs, "computed")
    Foreseeing.told.clear()
    ended = asyncio.run(replay(space, Foreseeing, trials=9, seed=0))
    begun = [config for config, is_built in Foreseeing.told if is_built]
    foreseen = [config for config, is_built in Foreseeing.told if not is_built]
    assert len(begun) == len(ended) == 9
    assert len(foreseen) > 9


def test_trials_in_flight_end_in_the_order_of_time() -> None:
    """Several begin at once, each takes what it cost, and the next one begins when the first ends."""
    ended = asyncio.run(replay(VALLEY, Watched, trials=8, seed=0, in_flight=4))
    strategy = Watched.made[-1]
    assert strategy.log[:4] == ["ask 4", "tell", "ask 1", "tell"]
    times_s = [one.ended_s for one in ended]
    assert times_s == sorted(times_s)
    costs_s = [VALLEY.find(one.config).cost_s for one in strategy.heard]
    assert times_s[-1] < sum(costs_s)
    assert len({canonical_json(one.config) for one in strategy.heard}) == 8


class Interrupted(Watched):
    """The user presses Ctrl-C once, while it chooses the first config."""

    def ask(self, limit: int) -> Sequence[Config]:
        """The next configs."""
        if not self.log:
            signal.raise_signal(signal.SIGINT)
        return super().ask(limit)


def test_ctrl_c_ends_a_replay_at_once() -> None:
    """And not after the repetition, which may take minutes."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            Arena(VALLEY, "file").replay("grid", Interrupted, repetitions=2, trials=30)
    finally:
        signal.signal(signal.SIGINT, before)
    assert Interrupted.made[-1].log == ["ask 1"]


def test_a_budget_ends_a_replay() -> None:
    """In seconds that the trials took when they were recorded; not before the least number of trials."""
    ended = asyncio.run(replay(VALLEY, Grid, trials=100, seed=0, budget_s=10.0))
    assert 10.0 - 1.75 < ended[-1].ended_s <= 10.0
    more = asyncio.run(replay(VALLEY, Grid, trials=100, seed=0, budget_s=10.0, least=20))
    assert len(more) == 20
    assert more[: len(ended)] == ended


def test_a_device_budget_counts_recorded_runs() -> None:
    """No further trial begins once those before have run that long."""
    ended = asyncio.run(replay(VALLEY, Grid, trials=100, seed=0, device_budget_s=4.0))
    whole = asyncio.run(replay(VALLEY, Grid, trials=100, seed=0))
    assert ended == whole[: len(ended)]
    runs_s = [VALLEY.find(VALLEY.points.config_at(number)).run_s for number in range(len(ended))]
    assert sum(runs_s[:-1]) < 4.0 <= sum(runs_s)


def test_little_expected_gain_ends_a_replay() -> None:
    """Of a strategy that expects one; each repetition says what was really left."""
    arena = Arena(VALLEY, "file")
    found = arena.replay("bayes", partial(make_strategy, "bayes"), repetitions=2, until_gain=0.05)
    for one in found.ends:
        assert (one.gain or 0.0) < 0.05
        assert 8 < one.trials < 200
        assert one.regret is not None
    assert len(found.ends) == 2
    assert arena.replay("grid", Grid, repetitions=1, trials=30).ends == ()


def test_regret_is_that_of_the_best_so_far() -> None:
    """Without a right config it is infinite."""
    best = VALLEY.best_ns
    ended = [
        Replayed(ended_s=1.0, time_ns=None),
        Replayed(ended_s=2.0, time_ns=best * 1.5),
        Replayed(ended_s=3.0, time_ns=best * 2),
    ]
    assert find_regret(VALLEY, ended, 1) == math.inf
    assert find_regret(VALLEY, ended, 3) == pytest.approx(0.5)


def test_repetitions_are_summed_up() -> None:
    """As many checkpoints as there are trials, each with its interval; a budget that is too small is said."""
    arena = Arena(VALLEY, "file")
    found = arena.replay("random", AT_RANDOM, repetitions=9, trials=60)
    assert [one.trials for one in found.regrets] == [25, 50]
    for one in found.regrets:
        assert (one.low or 0) <= (one.median or 0) <= (one.high or 0)
    medians = [one.median for one in found.curve if one.median is not None]
    assert medians == sorted(medians, reverse=True)
    ended_s = [one.ended_s for one in found.curve]
    assert ended_s == sorted(ended_s)
    assert (found.curve[0].trials, found.curve[-1].trials) == (1, 60)
    short = arena.replay("random", AT_RANDOM, repetitions=3, trials=7)
    assert [one.trials for one in short.regrets] == [7]
    whole = arena.replay("random", AT_RANDOM, repetitions=3)
    assert [one.trials for one in whole.regrets] == [25, 50, 100, 200]
    assert not whole.is_short
    with pytest.raises(UsageError, match="the budget is spent before a trial of valley ends"):
        arena.replay("random", AT_RANDOM, repetitions=1, trials=5, budget_s=0.1)


def test_a_study_becomes_a_space() -> None:
    """One for each silicon; a failed build belongs to each, a trial that was measured counts more than one
    that was known, and what infrastructure lost is left out.
    """
    fast = make_trial("r1.1", config={"b": 1}, silicon="x", build_s=2.0, message="")
    known = make_trial("r2.1", config={"b": 1}, silicon="x", reused=True)
    other = make_trial("r1.2", config={"b": 1}, silicon="y")
    unbuilt = make_trial(
        "r1.3",
        config={"b": 2},
        outcome=Outcome.COMPILE_ERROR,
        measurement=None,
        message="line one\nline two",
        exceeds="registers",
    )
    lost = make_trial("r1.4", config={"b": 3}, outcome=Outcome.INFRA_ERROR, measurement=None)
    final = make_trial("r1.5", config={"b": 1}, silicon="x", batch="finals")
    control = make_trial("r1.6", config={"b": 1}, silicon="x", control=True)
    trials = [control, final, known, lost, unbuilt, other, fast]
    spaces = list_spaces(trials, ObjectStore(Path("/nowhere")))
    assert [one.header.silicon for one in spaces] == ["x", "y"]
    for space in spaces:
        assert [one.config for one in space.configs] == [{"b": 1}, {"b": 2}]
        assert (space.configs[1].reason, space.configs[1].exceeds) == ("line one", "registers")
        assert space.header.parameters == {"b": (1, 2)}
    assert [space.configs[0].build_s for space in spaces] == [2.0, 0.0]


def test_a_bound_fails_what_exceeds_it() -> None:
    """It costs its build alone, and the best of the space is one within the bounds."""
    space = VALLEY.within({"bytes": 8_999})
    assert {one.config["a"] for one in space.configs if one.is_timed} == set(range(8))
    failed = space.find({"a": 11, "b": 6})
    assert (failed.outcome, failed.cost_s) == (Outcome.COMPILE_ERROR, 1.0)
    assert failed.reason == "bytes is 12006, and its bound 8999"
    assert as_trial(space, failed, 1).exceeds == failed.exceeds
    replayed = Arena(space, "f").replay("random", AT_RANDOM, repetitions=1, trials=5)
    failures = Counter(str(one.outcome) for one in VALLEY.configs if not one.is_timed)
    count = sum(one.is_timed for one in VALLEY.configs) - sum(one.is_timed for one in space.configs)
    assert replayed.failures == failures | {"too large (--bound bytes)": count}
    assert space.best_ns == min(
        one.time_ns or math.inf
        for one in VALLEY.configs
        if one.config["a"] < 8  # type: ignore[operator]
    )
    with pytest.raises(UsageError, match="within the bounds: bytes is at least 0") as raised:
        VALLEY.within({"bytes": -1})
    assert "\n" not in str(raised.value)
    assert VALLEY.measures == {"bytes"}


@pytest.mark.slow
def test_two_goals_are_judged_by_the_volume_that_is_missing() -> None:
    """The strategy looks for both, and finds more of it than one that looks for short times alone."""
    both = Arena(VALLEY, "file", "bytes")
    found = {
        name: both.replay(name, partial(make_strategy, name), repetitions=2, trials=50)
        for name in ("bayes", "random")
    }
    missing = {name: one.regrets[-1].median or 0.0 for name, one in found.items()}
    assert 0.0 <= missing["bayes"] < missing["random"] / 2
    assert (found["bayes"].second, found["bayes"].score) == ("bytes", None)
    with pytest.raises(UsageError, match="--pareto: this strategy looks for short times alone"):
        both.replay("local", partial(make_strategy, "local"), repetitions=1, trials=10)


def test_a_volume_is_that_of_logarithms() -> None:
    """Of two trade-offs a factor e apart, each 1.1 x 0.1 up to the reference, with 0.01 in common; 0 counts
    as half the least amount.
    """
    first, second = (1.0, math.e), (math.e, 1.0)
    volume = Volume([first, second, (10.0, 10.0)])
    assert volume.missing([first, (10.0, 10.0)]) == pytest.approx(1 - 0.11 / 0.21)
    assert volume.missing([second, first]) == pytest.approx(0.0)
    assert volume.missing([]) == 1.0
    assert Volume([(1.0, 0.0), (2.0, 0.0)]).missing([(1.0, 0.0)]) == 0.0
