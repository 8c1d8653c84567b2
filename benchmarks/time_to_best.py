"""How long a study of a real kernel takes until it has tried a config within 2 % of the best.

    python benchmarks/time_to_best.py [--only NAME] [--runs 10] [--budget 120] [--devices cpu:cores=1]

Kernels are those of `space_kernels.py`, whose spaces were recorded on this host before: the recorded times
say which configs are that good. Nothing was built before. Beside `bayes`, `model`, `random` and `optuna-tpe`:
Optuna's own ask and tell loop (TPE), which builds and runs each config that it asks for by `tileyard.tune`.
All runs of a tuner have different seeds, and the tuners take turns. A run ends with the first such config;
what was not found within the budget counts as infinite.
"""

import argparse
import itertools
import math
import runpy
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from msgspec.structs import replace

import tileyard
from tileyard.api.kernels import settings_for
from tileyard.artifacts.objects import canonical_json
from tileyard.base.errors import InterruptedRunError, TileyardError
from tileyard.base.events import CaseEnded, Event
from tileyard.base.model import WELL, Trial
from tileyard.service.client import RunClient
from tileyard.show.console import Console, new_table, print_table
from tileyard.verbs.tune.options import start_tune
from tileyard.verbs.tune.plan.recorded.files import read_space

HERE = Path(__file__).parent
KERNELS = HERE / "space_kernels.py"
NAMES = ("product", "attention")
NEAR = 1.02
OWN = ("bayes", "model", "random", "optuna-tpe")


@dataclass(frozen=True)
class Task:
    """What a run is of."""

    kernel: str
    axes: Mapping[str, Sequence[Any]]
    seed: int
    budget_s: float
    device: str


class Watch:
    """Ends a study once a good config has ended: ``found_s`` is when. ``trials`` have ended."""

    def __init__(self, good: frozenset[str], budget_s: float) -> None:
        self._good = good
        self._budget_s = budget_s
        self._began_s = time.monotonic()
        self.found_s = math.inf
        self.trials = 0
        self.client: RunClient[Any] | None = None

    def see(self, trial: Trial) -> bool:
        """A config has ended; whether it is a good one, or the time is over."""
        self.trials += 1
        now_s = time.monotonic() - self._began_s
        is_good = trial.outcome in WELL and canonical_json(trial.config) in self._good
        if is_good and now_s <= self._budget_s:
            self.found_s = min(self.found_s, now_s)
        return self.found_s < math.inf

    def hear(self, event: Event) -> None:
        """Take in an event of a run."""
        if isinstance(event, CaseEnded) and self.see(event.trial) and self.client:
            self.client.stop(now=True)


def run_own(strategy: str, task: Task, watch: Watch) -> None:
    """A study, until the watch ends it."""
    with tempfile.TemporaryDirectory() as home:
        given = {
            "strategy": strategy,
            "budget": f"{task.budget_s:g}s",
            "trials": 100_000,
            "devices": [task.device],
        }
        start = start_tune(str(KERNELS), task.kernel, given)  # type: ignore[arg-type]  # options
        start = replace(start, request=replace(start.request, seed=task.seed))
        watch.client = RunClient(start, settings_for(home))
        with suppress(InterruptedRunError):
            watch.client.run(watch.hear)


def run_optuna(task: Task, watch: Watch) -> None:
    """Ask Optuna, build and run, tell Optuna; the kernel is in this process."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    kernel = runpy.run_path(str(KERNELS))[task.kernel]
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=task.seed))
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory() as home:
        while time.monotonic() - began_s < task.budget_s:
            trial = study.ask()
            config = {
                key: trial.suggest_categorical(key, values) for key, values in task.axes.items()
            }
            try:
                found = tileyard.tune(
                    kernel, config=config, home=home, devices=task.device, progress=False
                )
            except TileyardError:  # `where` rejects it
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
                continue
            (ended,) = found.result.trials
            if ended.measurement is None:
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
            else:
                study.tell(trial, ended.measurement.median_ns)
            if watch.see(ended):
                return


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", action="append")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--budget", type=float, default=120.0)
    parser.add_argument("--devices", default="cpu:cores=1")
    parser.add_argument("--spaces", type=Path, default=HERE / "spaces_cpu")
    given = parser.parse_args()
    table = new_table(
        ["space", "tuner", "seconds (median)", "of all runs", "trials"], left=["space", "tuner"]
    )
    for name in given.only or NAMES:
        space = read_space(given.spaces / f"{name}.jsonl.gz")
        limit_ns = NEAR * space.best_ns
        timed = (one for one in space.configs if one.is_timed and one.time_ns)
        good = frozenset(canonical_json(one.config) for one in timed if one.time_ns <= limit_ns)
        taken: dict[str, list[Watch]] = {}
        for seed, tuner in itertools.product(range(given.runs), (*OWN, "Optuna")):
            watch = Watch(good, given.budget)
            taken.setdefault(tuner, []).append(watch)
            task = Task(name, space.header.parameters, seed, given.budget, given.devices)
            if tuner in OWN:
                run_own(tuner, task, watch)
            else:
                run_optuna(task, watch)
            print(
                f"{name} {tuner} {seed}: {watch.found_s:.1f} s, {watch.trials} trials", flush=True
            )
        for tuner, runs in taken.items():
            seconds = sorted(watch.found_s for watch in runs)
            table.add_row(
                f"{name} ({len(good)} of {len(space.configs)} within 2 %)",
                tuner,
                f"{statistics.median(seconds):.1f}",
                " ".join(f"{one:.0f}" for one in seconds),
                f"{statistics.median(watch.trials for watch in runs):g}",
            )
    print_table(Console(), table)


if __name__ == "__main__":
    main()
