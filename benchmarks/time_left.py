"""Compares the time left that studies show at half of their time with what was really left.

    python benchmarks/time_left.py [FILE...] [--repetitions 5]
    python benchmarks/time_left.py --kernel examples/gemm.py [--shape small] [--trials 24]

FILEs are recorded spaces, by default those of benchmarks/spaces: searches are replayed, with each kind of
bound. Their finals take no time. With --kernel real studies are made, anew each time, finals included.
"""

import argparse
import asyncio
import math
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from rich.console import Console as QuietConsole

from tileyard.base.events import DeviceLeased, DeviceReleased, Event, StudyAdvanced
from tileyard.base.model import Trial
from tileyard.base.settings import read_settings
from tileyard.show.console import Console, new_table, print_table
from tileyard.show.session import carry_out
from tileyard.verbs.tune.options import TuneRequest, start_tune
from tileyard.verbs.tune.plan.budgets import Budgets
from tileyard.verbs.tune.plan.recorded.files import read_space
from tileyard.verbs.tune.plan.recorded.replay import Replayed, replay
from tileyard.verbs.tune.plan.recorded.space import RecordedSpace
from tileyard.verbs.tune.plan.strategies.base import Points
from tileyard.verbs.tune.plan.strategies.bayes import Bayes
from tileyard.verbs.tune.view.progress import StudyLayout

SPACES = Path(__file__).parent / "spaces"
TRIALS = 200
BOUNDS = {
    "100 trials": TuneRequest(trials=100),
    "a budget": TuneRequest(trials=TRIALS, budget_s=200.0),
    "a device budget": TuneRequest(trials=TRIALS, device_budget_s=20.0),
    "a gain of 5 %": TuneRequest(trials=TRIALS, until_gain=0.05),
    "a gain of 2 %": TuneRequest(trials=TRIALS, until_gain=0.02),
    "a gain of 1 %": TuneRequest(trials=TRIALS, until_gain=0.01),
}


@dataclass
class Moment:
    """A clock that is set."""

    now_s: float = 0.0

    def monotonic_s(self) -> float:
        """The time."""
        return self.now_s

    def wall_s(self) -> float:
        """The time."""
        return self.now_s


@dataclass
class Said:
    """The time left that was said at each moment."""

    moments: list[tuple[float, float | None]] = field(default_factory=list)

    def ratio(self, end_s: float) -> float:
        """Said over found at half of the time, or when something was said first; NaN if nothing was."""
        for at_s, left_s in self.moments:
            if left_s is not None and end_s / 2 <= at_s < end_s:
                return left_s / (end_s - at_s)
        return math.nan


class Heard(Bayes):
    """Keeps what it hears."""

    heard: list[Trial]

    def __init__(self, points: Points, *, trials: int, seed: int) -> None:
        super().__init__(points, trials=trials, seed=seed)
        Heard.heard = []

    def tell(self, trial: Trial) -> None:
        """Keep it."""
        super().tell(trial)
        self.heard.append(trial)


Run = Sequence[tuple[Replayed, Trial]]
"""The trials of a replay, as it has them and as the strategy heard of them."""


def search(space: RecordedSpace, seed: int) -> Run:
    """A replay, in which the strategy says after each trial what gain it expects."""
    ended = asyncio.run(replay(space, Heard, trials=TRIALS, seed=seed, until_gain=0.0))
    return list(zip(ended, Heard.heard, strict=True))


def judge(run: Run, request: TuneRequest) -> float:
    """Said over found at half of a replay that has these bounds."""
    clock, said = Moment(), Said()
    budgets = Budgets(request, clock)
    for number, (one, trial) in enumerate(run[: request.trials], start=1):
        clock.now_s = one.ended_s - trial.run_s
        budgets.hear(DeviceLeased(device="gpu", at=0.0, lease=1))
        clock.now_s = one.ended_s
        budgets.hear(DeviceReleased(device="gpu", at=0.0))
        budgets.take(trial)
        budgets.expect(one.gain)
        said.moments.append((clock.now_s, budgets.forecast_s(request.trials - number, 0.0)))
        if budgets.over[1]:
            break
    return said.ratio(clock.now_s)


def tune_once(kernel: str, home: str, options: dict[str, object]) -> float:
    """Said over found at half of one real study."""
    said = Said()
    began_s = time.monotonic()

    def hear(event: Event) -> None:
        if isinstance(event, StudyAdvanced):
            said.moments.append((time.monotonic() - began_s, event.left_s))

    file, _, name = kernel.partition("::")
    start = start_tune(file, name, {"resume": False, **options})  # type: ignore[typeddict-item]
    settings = read_settings({**os.environ, "TILEYARD_HOME": home}, Path.cwd())
    carry_out(start, settings, QuietConsole(quiet=True), StudyLayout(), hear)
    return said.ratio(time.monotonic() - began_s)


def print_ratios(found: dict[str, Sequence[float]]) -> None:
    """A line for each bound."""
    table = new_table(("bound", "studies", "median", "80 %"), left=("bound",))
    for name, ratios in found.items():
        known = [one for one in ratios if math.isfinite(one)]
        low, middle, high = np.quantile(known, (0.1, 0.5, 0.9))
        table.add_row(name, str(len(known)), f"{middle:.2f}", f"[{low:.2f}, {high:.2f}]")
    print_table(Console(), table)


def main() -> None:
    """Replay, or tune, and print said over found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="*")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--kernel", default="")
    parser.add_argument("--shape", default="small")
    parser.add_argument("--trials", type=int, default=24)
    given = parser.parse_args()
    if not given.kernel:
        files = given.files or sorted(map(str, SPACES.glob("*.jsonl.gz")))
        spaces = [read_space(file) for file in files]
        runs = [search(space, seed) for space in spaces for seed in range(given.repetitions)]
        print_ratios({name: [judge(run, one) for run in runs] for name, one in BOUNDS.items()})
        return
    shape = {"shape": given.shape, "trials": given.trials}
    with tempfile.TemporaryDirectory() as home:
        found: dict[str, list[float]] = {}
        for bound in ({}, {"budget": "30s"}, {"device_budget": "10s"}, {"until_gain": "5%"}):
            name = " ".join(f"{key}={value}" for key, value in bound.items()) or "trials"
            found[name] = [
                tune_once(given.kernel, home, {**shape, **bound}) for _ in range(given.repetitions)
            ]
    print_ratios(found)


if __name__ == "__main__":
    main()
