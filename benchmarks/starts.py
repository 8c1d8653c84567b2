"""How many trials a search takes to come within 2 % of the best, with and without winners of other devices.

    python benchmarks/starts.py [FILES] [--repetitions 20]

FILES are recorded spaces of kernels on several devices, by default those in benchmarks/spaces. For each of
them the best configs of the kernel's other spaces are tried first, as `tileyard tune` does with what won
elsewhere.
"""

import argparse
import asyncio
import itertools
import math
import statistics
from collections.abc import Sequence
from pathlib import Path

from tileyard.base.model import Trial
from tileyard.verbs.tune.plan.recorded.files import read_space
from tileyard.verbs.tune.plan.recorded.replay import find_regret, replay
from tileyard.verbs.tune.plan.recorded.space import RecordedSpace
from tileyard.verbs.tune.plan.strategies.base import Config, Points, Strategy, make_strategy

SPACES = Path(__file__).parent / "spaces"
NEAR = 0.02
TRIALS = 300
STRATEGIES = ("bayes", "random")


def find_best(space: RecordedSpace) -> Config:
    """The config with the shortest time."""
    return next(
        one.config for one in space.configs if one.is_timed and one.time_ns == space.best_ns
    )


class Until:
    """A strategy that proposes nothing more once a trial is within 2 % of the best."""

    def __init__(self, strategy: Strategy, best_ns: float) -> None:
        self._strategy = strategy
        self._limit_ns = best_ns * (1 + NEAR)
        self.learns = True
        self.is_exhausted = False
        self.ask, self.reject = strategy.ask, strategy.reject

    def tell(self, trial: Trial) -> None:
        """Pass a result on."""
        measured = trial.measurement
        self.is_exhausted |= measured is not None and measured.median_ns <= self._limit_ns
        self._strategy.tell(trial)


def count_trials(space: RecordedSpace, strategy: str, seeds: Sequence[Config], seed: int) -> float:
    """Trials until one is within 2 % of the best; infinite if TRIALS are too few."""

    def make(points: Points, *, trials: int, seed: int) -> Strategy:
        return Until(make_strategy(strategy, points, trials=trials, seed=seed), space.best_ns)

    ended = asyncio.run(replay(space, make, trials=TRIALS, seed=seed, seeds=seeds))
    counts = range(1, len(ended) + 1)
    return next((n for n in counts if find_regret(space, ended, n) <= NEAR), math.inf)


def describe(counts: Sequence[float]) -> str:
    """The median, and the quantile of 90 %."""
    high = sorted(counts)[math.ceil(0.9 * len(counts)) - 1]
    words = (
        f"{n:.0f}" if n < math.inf else f"over {TRIALS}" for n in (statistics.median(counts), high)
    )
    return ", ".join(words)


def main() -> None:
    """Print a line for each space and strategy."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--repetitions", type=int, default=20)
    options = parser.parse_args()
    spaces = [read_space(str(file)) for file in options.files or sorted(SPACES.glob("*.gz"))]
    print("trials to within 2 % of the best: median, 90 % quantile")
    for space, strategy in itertools.product(spaces, STRATEGIES):
        others = [
            one for one in spaces if one.header.kernel == space.header.kernel and one is not space
        ]
        winners = [find_best(one) for one in others]
        known = [config for config in winners if space.points.find(config) is not None]
        found = [space.find(config) for config in known]
        times_ns = [one.time_ns for one in found if one.is_timed and one.time_ns is not None]
        regret = min(times_ns, default=math.inf) / space.best_ns - 1
        plain, begun = (
            [count_trials(space, strategy, seeds, seed) for seed in range(options.repetitions)]
            for seeds in ((), known)
        )
        print(
            f"{space.name}, {strategy}: {describe(plain)}; after the {len(known)} winners of other devices, "
            f"the best of which is {regret:.1%} slower than the best config: {describe(begun)}",
            flush=True,
        )


if __name__ == "__main__":
    main()
