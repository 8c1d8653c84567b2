"""Repeats replays of a strategy with different seeds, and sums them up: regret and score."""

import asyncio
import math
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property

from tileyard.base.errors import UsageError
from tileyard.base.wording import say_end
from tileyard.measure.statistics import median_interval
from tileyard.verbs.tune.plan.goals import Volume
from tileyard.verbs.tune.plan.recorded.replay import MakeStrategy, Replayed, find_regret, replay
from tileyard.verbs.tune.plan.recorded.score import Unscored, Yardstick, make_yardstick
from tileyard.verbs.tune.plan.recorded.space import CONFIDENCE, RecordedSpace
from tileyard.verbs.tune.result import CHECKPOINTS, End, Regret, Replay, Score

SPARE = 2
"""Number of times as many trials as the score is expected to take: a strategy may choose cheap ones."""


CURVE = 48
"""Steps of the curve of regret."""


class Arena:
    """A recorded space in ``file``, on which strategies are compared; with a ``second`` measure by the
    trade-offs that they find.
    """

    def __init__(self, space: RecordedSpace, file: str, second: str = "") -> None:
        self.space = space
        self.file = file
        self.second = second
        self.yardstick: Yardstick | None = None
        self.unscored = ""
        try:
            self.yardstick = make_yardstick(space)
        except Unscored as reason:
            self.unscored = str(reason)

    def needed(self, in_flight: int = 1) -> int:
        """The number of trials that the score is expected to take."""
        cost_s = self.space.usual_cost_s
        if self.yardstick is None or cost_s <= 0:
            return 0
        return math.ceil(self.yardstick.run_s * in_flight / cost_s)

    def replay(  # noqa: PLR0913 - bounds, by keyword only
        self,
        name: str,
        make: MakeStrategy,
        *,
        repetitions: int,
        in_flight: int = 1,
        trials: int | None = None,
        budget_s: float = math.inf,
        device_budget_s: float = math.inf,
        until_gain: float | None = None,
        begin: Callable[[str, str], None] = lambda strategy, file: None,
    ) -> Replay:
        """Replay a strategy, for at most ``trials``, ``budget_s`` and ``device_budget_s``, and until it
        expects less than ``until_gain``; without ``trials`` as long as the score takes, and for the last
        checkpoint. ``begin`` gets strategy and file before each repetition.
        """
        least = 0
        if trials is None:
            trials = SPARE * max(self.needed(in_flight), CHECKPOINTS[-1])
            if until_gain is None:
                least = CHECKPOINTS[-1]
                budget_s = self.yardstick.run_s if self.yardstick else 0.0
        # A strategy that may try everything need not choose.
        trials = max(1, min(trials, self.space.points.size - 1))
        runs = []
        for seed in range(repetitions):
            begin(name, self.file)
            run = replay(
                self.space,
                make,
                trials=trials,
                seed=seed,
                budget_s=budget_s,
                device_budget_s=device_budget_s,
                until_gain=until_gain,
                least=least,
                in_flight=in_flight,
                second=self.second,
            )
            runs.append(asyncio.run(run))
        return self.sum_up(name, runs, in_flight)

    def sum_up(self, name: str, runs: Sequence[Sequence[Replayed]], in_flight: int = 1) -> Replay:
        """The result of these runs, one for each seed, also of a tuner that is not ours."""
        space, yardstick = self.space, self.yardstick
        if not any(runs):
            raise UsageError(f"the budget is spent before a trial of {space.name} ends")
        longest = max(map(len, runs))
        ends_s = [run[-1].ended_s if run else 0.0 for run in runs]
        is_short = yardstick is not None and statistics.median(ends_s) < yardstick.last_s
        score, unscored = self._score(runs)
        return Replay(
            file=self.file,
            space=space.name,
            strategy=name,
            configs=len(space.configs),
            failures=Counter(
                say_end(one.outcome, one.exceeds) for one in space.configs if not one.is_timed
            ),
            best_ns=space.best_ns,
            repetitions=len(runs),
            in_flight=in_flight,
            trials=statistics.median(map(len, runs)),
            second=self.second,
            regrets=self._sum_up(runs, [n for n in CHECKPOINTS if n <= longest] or [longest]),
            curve=self._sum_up(runs, _spread(longest)),
            score=score,
            unscored=unscored,
            needed=self.needed(in_flight),
            is_short=is_short and longest < space.points.size - 1 and not self.second,
            note=space.note,
            ends=tuple(_find_end(space, run) for run in runs if run and run[-1].gain is not None),
        )

    def _score(self, runs: Sequence[Sequence[Replayed]]) -> tuple[Score | None, str]:
        """The score, or why there is none."""
        if self.second:
            return None, "it is not defined for two goals"
        if self.yardstick is None:
            return None, self.unscored
        try:
            return self.yardstick.score(runs), ""
        except Unscored as reason:
            return None, str(reason)

    def _sum_up(
        self, runs: Sequence[Sequence[Replayed]], counts: Sequence[int]
    ) -> tuple[Regret, ...]:
        """The regret after each of these numbers of trials; a run that was shorter keeps its best."""
        found = []
        for trials in counts:
            over = median_interval([self._find_regret(run[:trials]) for run in runs], CONFIDENCE)
            ends = (
                one if math.isfinite(one) else None for one in (over.median, over.low, over.high)
            )
            median, low, high = ends
            ended_s = statistics.median(run[:trials][-1].ended_s if run else 0.0 for run in runs)
            found.append(Regret(trials=trials, ended_s=ended_s, median=median, low=low, high=high))
        return tuple(found)

    def _find_regret(self, ended: Sequence[Replayed]) -> float:
        if self._volume is None:
            return find_regret(self.space, ended, len(ended))
        timed = [(one.time_ns, one.amount) for one in ended if one.time_ns is not None]
        return self._volume.missing(timed)

    @cached_property
    def _volume(self) -> Volume | None:
        """The volume of all trade-offs in the space; None with one goal."""
        timed = (
            (one.time_ns, one.amount(self.second)) for one in self.space.configs if one.is_timed
        )
        pairs = [(time_ns, amount) for time_ns, amount in timed if time_ns is not None]
        return Volume(pairs) if self.second else None


def _spread(longest: int) -> list[int]:
    """Numbers of trials up to ``longest``: the first ones, then ones further and further apart."""
    return sorted({round(longest ** (step / CURVE)) for step in range(CURVE + 1)})


def _find_end(space: RecordedSpace, run: Sequence[Replayed]) -> End:
    regret, gain = find_regret(space, run, len(run)), run[-1].gain
    return End(
        trials=len(run),
        regret=regret if math.isfinite(regret) else None,
        gain=gain if gain is not None and math.isfinite(gain) else None,
    )
