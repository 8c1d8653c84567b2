"""Replays studies on a recorded space: the strategy is a real one, the answers are those of the file.

No device is used, and no time passes: the clock is that of the trials' recorded costs.
"""

import heapq
import math
from collections.abc import Sequence
from typing import Final, Protocol

from tileyard.base.model import Measurement, Record, Trial
from tileyard.verbs.tune.plan.recorded.space import CONFIDENCE, Recorded, RecordedSpace
from tileyard.verbs.tune.plan.space import OpenSpace
from tileyard.verbs.tune.plan.strategies.base import (
    OF_BINARIES,
    Config,
    Foresees,
    Points,
    Strategy,
    StrategyThread,
    weigh,
)

FORESEEN: Final = 8
"""Configs whose work an author counts while one is built and run; none before the first."""


class MakeStrategy(Protocol):
    """Makes a strategy: ``partial(make_strategy, NAME)``, or the class of one."""

    def __call__(self, points: Points, *, trials: int, seed: int) -> Strategy:
        """A strategy for these points."""
        ...


class Replayed(Record):
    """One replayed trial: when it ended, in seconds of recorded cost; its time, None if it has none; its
    second measure, if that counts; and the ``gain`` that the strategy expected then, if it was asked.
    """

    ended_s: float
    time_ns: float | None
    amount: float = 0.0
    gain: float | None = None


async def replay(  # noqa: PLR0913 - bounds, by keyword only
    space: RecordedSpace,
    make: MakeStrategy,
    *,
    trials: int,
    seed: int,
    budget_s: float = math.inf,
    device_budget_s: float = math.inf,
    until_gain: float | None = None,
    least: int = 0,
    in_flight: int = 1,
    second: str = "",
    seeds: Sequence[Config] = (),
) -> list[Replayed]:
    """The trials of one study, which begins with ``seeds``, in the order in which they end.

    A trial costs what it did when it was recorded, also one that fails. At most ``in_flight`` are under
    way at once. None begins after ``budget_s``, and one that would end later is not counted, unless fewer
    than ``least`` have ended; nor after ``device_budget_s`` seconds of their runs, or once the strategy
    expects less gain than ``until_gain``. With a ``second`` measure the strategy looks for trade-offs with
    that.
    """
    header, points = space.header, space.points
    strategy = make(points, trials=trials, seed=seed)
    if second:
        weigh(strategy, lambda trial: space.find(trial.config).amount(second))
    opened = OpenSpace(
        kernel=header.kernel,
        arguments=header.arguments,
        size=points.size,
        flops=0.0,
        wanted=trials,
        points=points,
        strategy=strategy,
        thread=StrategyThread(in_loop=True),
    )
    await opened.try_early(seeds)
    ended: list[Replayed] = []
    under_way: list[tuple[float, int, Recorded]] = []
    begun, now_s, held_s = 0, 0.0, 0.0
    gain: float | None = None
    while len(ended) < least or (
        now_s < budget_s
        and held_s < device_budget_s
        and (gain is None or until_gain is None or gain >= until_gain)
    ):
        if isinstance(strategy, Foresees) and begun:
            for config in strategy.list_unforeseen(FORESEEN):
                facts = space.find(config).facts
                strategy.foresee(config, {k: v for k, v in facts.items() if k not in OF_BINARIES})
        await opened.draw(begun + in_flight - len(under_way))
        for config in opened.configs[begun : begun + in_flight - len(under_way)]:
            found = space.find(config)
            if isinstance(strategy, Foresees):
                strategy.foresee(config, found.facts)
            heapq.heappush(under_way, (now_s + found.cost_s, begun, found))
            begun += 1
        if not under_way:
            break
        now_s, number, found = heapq.heappop(under_way)
        if now_s <= budget_s or len(ended) < least:
            opened.tell(as_trial(space, found, number))
            held_s += found.run_s
            if until_gain is not None:
                opened.want_gain()
            await opened.settle()
            gain = opened.expected_gain
            time_ns = found.time_ns if found.is_timed else None
            amount = found.amount(second)
            ended.append(Replayed(ended_s=now_s, time_ns=time_ns, amount=amount, gain=gain))
    return ended


def as_trial(space: RecordedSpace, found: Recorded, number: int) -> Trial:
    """A recorded config as the trial that a study makes of it."""
    header = space.header
    return Trial(
        id=f"replay.{number}",
        run="replay",
        case=str(number),
        batch="",
        target=header.target,
        outcome=found.outcome,
        kernel=header.kernel,
        arguments=header.arguments,
        config=found.config,
        device=header.device,
        silicon=header.silicon,
        message=found.reason,
        exceeds=found.exceeds,
        measurement=_as_measurement(found) if found.is_timed else None,
        build_s=found.build_s,
        run_s=found.run_s,
    )


def _as_measurement(found: Recorded) -> Measurement:
    time_ns = found.time_ns or math.inf
    return Measurement(
        median_ns=time_ns,
        low_ns=found.low_ns or time_ns,
        high_ns=found.high_ns or time_ns,
        confidence=CONFIDENCE,
        samples_ns=(time_ns,),
    )


def find_regret(space: RecordedSpace, ended: Sequence[Replayed], trials: int) -> float:
    """How much slower the best of the first ``trials`` is than the best of the space: 0.02 is 2 %.

    Infinite if none of them has a time.
    """
    times_ns = [one.time_ns for one in ended[:trials] if one.time_ns is not None]
    return min(times_ns, default=math.inf) / space.best_ns - 1
