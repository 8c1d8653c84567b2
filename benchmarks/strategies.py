"""Compares strategies with other tuners on recorded spaces: score, and regret after 25, 50, 100, 200 trials.

    python benchmarks/strategies.py [FILE...] [--repetitions 50] [--tuners tileyard,kernel-tuner,optuna]
        [--only NAME] [--jobs 2] [--limit SECONDS] [--trials N] [-o RESULTS]
    python benchmarks/strategies.py --table RESULTS [--csv FILE]
    python benchmarks/strategies.py [FILE...] --cost 1000 [--only NAME]
    python benchmarks/strategies.py CACHE... --keep FOLDER [--source TEXT] [--licence NAME]

By default FILEs are those of benchmarks/spaces; any recorded space will do, as for `tileyard tune --replay`.
With --cost it prints the CPU time that a trial takes our strategies, of the 300 after so many, one at a time.

RESULTS is JSON, written after each strategy, and the table is made of it; what it has is not run again. With
--keep the spaces are written in our own format, rounded.

The other tuners are no dependencies of this project. In an environment of its own:

    pip install -c constraints.txt kernel-tuner==1.5.0 optuna cmaes torch scikit-optimize pyatf -e .

Kernel Tuner runs in its simulation mode, on a cache that is made of the space, with every strategy for one
goal that can be imported. Optuna's samplers are asked and told: a parameter of numbers is its index, others
are categories. What is not in the space, and what was tried before, costs neither of them anything, but a
sampler of Optuna ends after STALE such questions in a row. It hears the worst time so far for what failed or
is not in the space. Slow ones (SLOW) run 5 times, to 50 trials. After --limit seconds of a CPU a strategy of
another tuner has as many runs on a space as it has finished, and the table says how many.

The spaces in benchmarks/spaces are from github.com/AutoTuningAssociation/benchmark_hub, commit 8eeb99e7,
folder currently_unused/cachefiles/KernelTuner data (Zenodo, DOI 10.5281/zenodo.15364124), MIT licence.
"""

import argparse
import contextlib
import csv
import gc
import io
import json
import math
import random
import signal
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tileyard.artifacts.objects import canonical_json
from tileyard.base.model import Record
from tileyard.show.console import Console, new_table, print_table, say
from tileyard.verbs.tune.plan.recorded.files import read_space, write_space
from tileyard.verbs.tune.plan.recorded.replay import Replayed, as_trial
from tileyard.verbs.tune.plan.recorded.replaying import SPARE, Arena
from tileyard.verbs.tune.plan.recorded.space import Recorded, RecordedSpace
from tileyard.verbs.tune.plan.strategies.base import FOREIGN, STRATEGIES, make_strategy
from tileyard.verbs.tune.result import CHECKPOINTS, Replay
from tileyard.verbs.tune.view.replay import format_bounds, format_regret, format_score

SPACES = Path(__file__).parent / "spaces"
TUNERS = ("tileyard", "kernel-tuner", "optuna")
SLOW = frozenset({"GPSampler", "skopt"})
SLOW_REPETITIONS, SLOW_TRIALS = 5, 50
STALE = 100
"""Questions in a row without a new config after which a sampler of Optuna has ended."""
COSTLY = 300
"""Trials of which the costs are printed."""
KERNEL_TUNERS_STALE = 2000
"""The same for Kernel Tuner, whose strategies may go on for ever: known configs cost no budget."""
IDLE_S = 3.0
"""Seconds of a CPU without any question after which they have ended."""
NOT_COMPARED = frozenset({"brute_force", "nsga2", "nsga3"})
"""Kernel Tuner's order of the space, which is no search; and its strategies for several goals, which with one
do not end once their population finds nothing new.
"""
Config = dict[str, Any]


class Compared(Record):
    """A replay of a tuner's strategy, with the seconds that its own computation took per trial."""

    tuner: str
    replay: Replay
    own_s: float


class Missing(Record):
    """A strategy that could not run, and why."""

    tuner: str
    strategy: str
    file: str
    reason: str


class Results(Record):
    """A file of results."""

    compared: tuple[Compared, ...]
    missing: tuple[Missing, ...]


class Task(Record):
    """One strategy of a tuner on the space in a file."""

    file: str
    tuner: str
    strategy: str
    repetitions: int
    limit_s: float
    trials: int | None


class OverError(Exception):
    """The limit of a strategy is over."""


# ---- one run -----------------------------------------------------------------------------------


class Ledger:
    """The trials of one run of another tuner; a config counts once, and only if it is in the space."""

    def __init__(self, arena: Arena, trials: int) -> None:
        self.arena = arena
        self.trials = trials
        self.ended: list[Replayed] = []
        self._seen: set[str] = set()

    def find(self, config: Config) -> Recorded | None:
        """What is recorded of a config, None if it is not in the space; counts it if it is new."""
        try:
            found = self.arena.space.find(config)
        except KeyError:
            return None
        key = canonical_json(config)
        if key not in self._seen and not self.is_over:
            self._seen.add(key)
            before_s = self.ended[-1].ended_s if self.ended else 0.0
            time_ns = found.time_ns if found.is_timed else None
            self.ended.append(Replayed(ended_s=before_s + found.cost_s, time_ns=time_ns))
        return found

    @property
    def is_over(self) -> bool:
        """Whether the score and the last checkpoint need no more trials."""
        if len(self.ended) >= min(self.trials, self.arena.space.points.size):
            return True
        yardstick = self.arena.yardstick
        needed_s = yardstick.run_s if yardstick else 0.0
        is_long = bool(self.ended) and self.ended[-1].ended_s >= needed_s
        return is_long and len(self.ended) >= CHECKPOINTS[-1]


def trials_of(arena: Arena, strategy: str, wanted: int | None) -> int:
    """At most as many trials as a strategy of ours gets, or as are wanted; a slow one stops earlier."""
    most = wanted or SPARE * max(arena.needed(), CHECKPOINTS[-1])
    return SLOW_TRIALS if strategy in SLOW else min(most, arena.space.points.size - 1)


# ---- Kernel Tuner ------------------------------------------------------------------------------


def as_cache(space: RecordedSpace) -> dict[str, object]:
    """A space as a cache of Kernel Tuner."""
    keys = list(space.header.parameters)
    words = {"compile_error": "CompilationFailedConfig"}
    entries = {}
    for one in space.configs:
        failed = words.get(str(one.outcome), "RuntimeFailedConfig")
        entries[",".join(str(one.config[key]) for key in keys)] = {
            **{key: one.config[key] for key in keys},
            "time": 1e-6 * one.time_ns if one.is_timed and one.time_ns is not None else failed,
            "compile_time": 1e3 * one.build_s,
            "benchmark_time": 1e3 * one.run_s,
            "verification_time": 0,
            "strategy_time": 0,
            "framework_time": 1e3 * one.other_s,
        }
    return {
        "device_name": space.header.device or "recorded",
        "kernel_name": space.header.kernel or "recorded",
        "problem_size": 1,
        "tune_params_keys": keys,
        "tune_params": {key: list(values) for key, values in space.header.parameters.items()},
        "objective": "time",
        "cache": entries,
    }


class Simulation:
    """Kernel Tuner on the space in a file, which is read and built once."""

    def __init__(self, file: str) -> None:
        from kernel_tuner import interface, util
        from kernel_tuner.searchspace import Searchspace

        space = read_space(file)
        self.document = as_cache(space)
        self.keys = list(space.header.parameters)
        allowed = {tuple(one.config[key] for key in self.keys) for one in space.configs}
        with tempfile.TemporaryDirectory() as folder:
            cache = Path(folder) / "cache.json"
            cache.write_text(json.dumps(self.document))
            entries = util.read_cache(str(cache), open_cache=False)["cache"]
        known = Searchspace(None, None, None, from_cache={**self.document, "cache": entries})
        # Also for those that ask about a config by themselves.
        known._modified_restrictions = lambda one: tuple(one[key] for key in self.keys) in allowed  # noqa: SLF001
        assert known.size == len(space.configs), f"{known.size} of {len(space.configs)} configs"
        # pyATF makes a space of its own, from a function of the parameters by name.
        known.max_threads, known.block_size_names = math.inf, []
        names = ", ".join(self.keys)
        is_allowed = eval(f"lambda {names}: ({names},) in allowed", {"allowed": allowed})
        self.rules = [(is_allowed, self.keys, "")]
        with contextlib.suppress(ImportError):  # its TP takes one argument less than it gets
            import pyatf
            from pyatf.tp import TP

            pyatf.TP = lambda name, values, rule, _source: TP(name, values, rule)
        interface.Searchspace = lambda *_args, **_options: known
        util.process_cache = lambda *_: entries
        util.close_cache = lambda *_: None

    def run(self, strategy: str, trials: int, seed: int) -> list[Config]:
        """The configs that a strategy tries, each once, in its order."""
        from kernel_tuner import interface, util

        random.seed(seed)
        np.random.seed(seed)
        document = self.document
        with (
            tempfile.TemporaryDirectory() as folder,  # pyATF leaves one in the current one
            contextlib.chdir(folder),
            self.watch() as asked,
            contextlib.suppress(util.StopCriterionReached),
        ):
            interface.tune_kernel(
                *(document["kernel_name"], "", 1, [], document["tune_params"]),
                strategy=strategy,
                strategy_options={"max_fevals": trials},
                restrictions=self.rules,
                cache="cache.json",
                simulation_mode=True,
                quiet=True,
                lang="C",
                seed=seed,
            )
        return list(asked.values())

    @contextlib.contextmanager
    def watch(self) -> Iterator[dict[tuple[Any, ...], Config]]:
        """Note the configs that are asked for, and end a strategy that asks for nothing new."""
        from kernel_tuner import util
        from kernel_tuner.runners.simulation import SimulationRunner

        asked: dict[tuple[Any, ...], Config] = {}
        plain = SimulationRunner.run
        stale = 0

        def run(runner: object, configs: Iterable[Any], options: object) -> object:
            nonlocal stale
            signal.setitimer(signal.ITIMER_VIRTUAL, IDLE_S, IDLE_S)
            listed = [tuple(one) for one in configs]
            results = plain(runner, listed, options)
            before = len(asked)
            for one, result in zip(listed, results, strict=False):
                if result is not None:
                    values = (v.item() if isinstance(v, np.generic) else v for v in one)
                    asked.setdefault(one, dict(zip(self.keys, values, strict=True)))
            stale = 0 if len(asked) > before else stale + len(listed)
            if stale > KERNEL_TUNERS_STALE:
                raise util.StopCriterionReached("nothing new")
            return results

        def end(*_: object) -> None:
            raise util.StopCriterionReached("nothing is asked")

        SimulationRunner.run = run
        usual = signal.signal(signal.SIGVTALRM, end)
        try:
            yield asked
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, usual)
            SimulationRunner.run = plain


@lru_cache(maxsize=1)
def open_simulation(file: str) -> Simulation:
    """The simulation of the space in a file; one at a time is kept."""
    return Simulation(file)


def list_kernel_tuner() -> list[str]:
    """Its strategies."""
    from kernel_tuner import interface

    return [name for name in interface.strategy_map if name not in NOT_COMPARED]


def run_kernel_tuner(arena: Arena, task: "Task", seed: int) -> list[Replayed]:
    """One run of a strategy of Kernel Tuner."""
    ledger = Ledger(arena, trials_of(arena, task.strategy, task.trials))
    simulation = open_simulation(arena.file)
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for config in simulation.run(task.strategy, ledger.trials, seed):
            ledger.find(config)
    return ledger.ended


# ---- Optuna ------------------------------------------------------------------------------------


def list_optuna() -> list[str]:
    """Its samplers that choose by themselves."""
    from optuna import samplers

    others = {"PartialFixedSampler", "GridSampler", "BruteForceSampler"}
    names = [name for name in samplers.__all__ if name.endswith("Sampler")]
    return [name for name in names if name not in others and not name.startswith("Base")]


def run_optuna(arena: Arena, task: "Task", seed: int) -> list[Replayed]:
    """One run of a sampler of Optuna."""
    import optuna
    from optuna.distributions import CategoricalDistribution, IntDistribution

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    ledger = Ledger(arena, trials_of(arena, task.strategy, task.trials))
    axes = {
        name: values for name, values in arena.space.header.parameters.items() if len(values) > 1
    }
    fixed = {
        name: values[0]
        for name, values in arena.space.header.parameters.items()
        if len(values) == 1
    }
    are_numbers = {
        name: all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
        for name, values in axes.items()
    }
    asked = {
        name: IntDistribution(0, len(values) - 1)
        if are_numbers[name]
        else CategoricalDistribution(list(values))
        for name, values in axes.items()
    }
    sampler = getattr(optuna.samplers, task.strategy)(seed=seed)
    study = optuna.create_study(sampler=sampler, direction="minimize")
    worst: float | None = None
    stale = 0
    while not ledger.is_over and stale < STALE:
        before = len(ledger.ended)
        trial = study.ask(asked)
        config = {
            name: axes[name][value] if are_numbers[name] else value
            for name, value in trial.params.items()
        }
        found = ledger.find({key: (config | fixed)[key] for key in arena.space.header.parameters})
        if found is not None and found.is_timed and found.time_ns is not None:
            worst = max(worst or 0.0, found.time_ns)
            study.tell(trial, found.time_ns)
        elif worst is None:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            study.tell(trial, worst)
        stale = 0 if len(ledger.ended) > before else stale + 1
    return ledger.ended


# ---- all ---------------------------------------------------------------------------------------

RUN = {"kernel-tuner": run_kernel_tuner, "optuna": run_optuna}
LIST = {
    "tileyard": lambda: [name for name in STRATEGIES if name not in (*FOREIGN, "auto")],
    "kernel-tuner": list_kernel_tuner,
    "optuna": list_optuna,
}


@lru_cache(maxsize=1)
def open_arena(file: str) -> Arena:
    """The space in a file; one at a time is kept."""
    return Arena(read_space(file), Path(file).name)


def run_all(arena: Arena, task: Task, repetitions: int) -> list[list[Replayed]]:
    """The runs of another tuner's strategy that end within its limit. Raises OverError if none does."""
    runs: list[list[Replayed]] = []

    def end(*_: object) -> None:
        raise OverError(f"no run ended within {task.limit_s:g} s")

    usual = signal.signal(signal.SIGPROF, end)
    try:
        signal.setitimer(signal.ITIMER_PROF, task.limit_s, 1.0)
        seeds = range(repetitions)
        runs.extend(RUN[task.tuner](arena, task, seed) for seed in seeds)
    except OverError:
        if not runs:
            raise
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, usual)
    return runs


def carry_out(task: Task) -> Compared | Missing:
    """Run one task; what a tuner fails with is its result."""
    arena = open_arena(task.file)
    arena.file = task.file
    repetitions = (
        min(task.repetitions, SLOW_REPETITIONS) if task.strategy in SLOW else task.repetitions
    )
    began_s = time.process_time()
    try:
        if task.tuner == "tileyard":
            make = partial(make_strategy, task.strategy)
            replay = arena.replay(task.strategy, make, repetitions=repetitions, trials=task.trials)
        else:
            runs = run_all(arena, task, repetitions)
            repetitions = len(runs)
            replay = arena.sum_up(task.strategy, runs)
    except Exception as error:  # noqa: BLE001 - any of many tuners, each in its own way
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        return Missing(
            tuner=task.tuner, strategy=task.strategy, file=Path(task.file).name, reason=reason
        )
    finally:
        gc.collect()
    spent_s = time.process_time() - began_s
    score = None if task.trials else replay.score
    replay = msgspec.structs.replace(replay, file=Path(task.file).name, score=score)
    own_s = spent_s / max(1.0, replay.trials * repetitions)
    return Compared(tuner=task.tuner, replay=replay, own_s=own_s)


def compare(tasks: list[Task], jobs: int) -> Iterator[Compared | Missing]:
    """The results of all tasks, in their order."""
    if jobs == 1:
        yield from map(carry_out, tasks)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(carry_out, tasks)


def print_results(console: Console, results: Results) -> None:
    """Print a table for each space, and one over all of them."""
    files = dict.fromkeys(one.replay.file for one in results.compared)
    for file in files:
        rows = [one for one in results.compared if one.replay.file == file]
        rows.sort(key=lambda one: -score_of(one))
        first = rows[0].replay
        say(console, f"{first.space}, {first.configs} configs ({file})", style="bold")
        heads = [f"regret at {trials}" for trials in CHECKPOINTS]
        columns = ("tuner", "strategy", "runs", "score", *heads, "ms per trial")
        table = new_table(columns, left=("tuner", "strategy"))
        for one in rows:
            regrets = {it.trials: it for it in one.replay.regrets}
            cells = (
                f"{format_regret(regrets[k])} {format_bounds(regrets[k])}" if k in regrets else ""
                for k in CHECKPOINTS
            )
            mark = " (short)" if one.replay.is_short else ""
            table.add_row(
                *(one.tuner, one.replay.strategy, str(one.replay.repetitions)),
                format_score(one.replay.score) + mark,
                *cells,
                f"{1e3 * one.own_s:.1f}",
            )
        print_table(console, table)
    print_standings(console, results, len(files))
    for gone in results.missing:
        say(console, f"{gone.tuner} {gone.strategy} on {gone.file}: {gone.reason}", style="yellow")


def print_standings(console: Console, results: Results, spaces: int) -> None:
    """Print each strategy's mean score, regret, and on how many spaces each is the best."""
    strategies = dict.fromkeys((one.tuner, one.replay.strategy) for one in results.compared)
    lines = []
    for tuner, strategy in strategies:
        own = [o for o in results.compared if (o.tuner, o.replay.strategy) == (tuner, strategy)]
        wins = sum(
            score_of(one) > -math.inf
            and score_of(one)
            >= max(score_of(o) for o in results.compared if o.replay.file == one.replay.file)
            for one in own
        )
        regrets = [
            [it.median for one in own for it in one.replay.regrets if it.trials == trials]
            for trials in (50, 100)
        ]
        means = [
            f"{100 * sum(m for m in medians if m is not None) / len(medians):.1f} %"
            if len(medians) == len(own) and None not in medians
            else ""
            for medians in regrets
        ]
        score = sum(map(score_of, own)) / len(own)
        lines.append((score, tuner, strategy, f"{wins} of {spaces}", *means))
    heads = ("tuner", "strategy", "mean score", "best on", "mean of regret at 50", "at 100")
    table = new_table(heads, left=("tuner", "strategy"))
    for score, tuner, strategy, wins, *means in sorted(lines, reverse=True):
        told = f"{score:.3f}" if score > -math.inf else "none"
        table.add_row(tuner, strategy, told, wins, *means)
    print_table(console, table)


def write_csv(results: Results, out: Path) -> None:
    """Write a line for each strategy and space: score, regrets in percent, their intervals."""
    columns = ["score", *(f"regret_{trials}" for trials in CHECKPOINTS)]
    heads = [f"{name}{end}" for name in columns for end in ("", "_low", "_high")]
    with out.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["space", "tuner", "strategy", "runs", "trials", *heads, "ms_per_trial"])
        for one in sorted(results.compared, key=lambda one: (one.replay.file, -score_of(one))):
            replay = one.replay
            score = replay.score if math.isfinite(score_of(one)) else None
            cells = [None] * 3 if score is None else [score.score, score.low, score.high]
            regrets = {it.trials: (it.median, it.low, it.high) for it in replay.regrets}
            for trials in CHECKPOINTS:
                ends = regrets.get(trials, (None, None, None))
                cells += [None if end is None else 100 * end for end in ends]
            told = [f"{cell:.3f}" if cell is not None else "" for cell in cells]
            space = replay.file.partition(".")[0]
            names = [space, one.tuner, replay.strategy, replay.repetitions, f"{replay.trials:g}"]
            table.writerow([*names, *told, f"{1e3 * one.own_s:.1f}"])


def score_of(one: Compared) -> float:
    """Its score; without one, or of too few trials for it, it is the last."""
    is_whole = one.replay.score is not None and not (
        one.replay.is_short and one.replay.strategy in SLOW
    )
    return one.replay.score.score if is_whole and one.replay.score else -math.inf


def round_to(number: float | None, digits: int) -> float | None:
    """A number with this many significant digits."""
    return None if number is None else float(f"{number:.{digits}g}")


def keep(files: list[str], folder: Path, source: str, licence: str) -> None:
    """Write spaces in our own format, with fewer digits: 8 of times, 6 of intervals, 4 of costs."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        space = read_space(file)
        configs = tuple(
            msgspec.structs.replace(
                one,
                time_ns=round_to(one.time_ns, 8),
                low_ns=round_to(one.low_ns, 6),
                high_ns=round_to(one.high_ns, 6),
                build_s=round_to(one.build_s, 4),
                run_s=round_to(one.run_s, 4),
                other_s=round_to(one.other_s, 4),
            )
            for one in space.configs
        )
        header = msgspec.structs.replace(
            space.header,
            source=source or space.header.source,
            licence=licence or space.header.licence,
        )
        out = folder / f"{Path(file).name.partition('.')[0]}.jsonl.gz"
        write_space(RecordedSpace(header=header, configs=configs), out)
        print(f"{out}: {len(configs)} configs, {out.stat().st_size // 1000} kB")


def print_cost(file: str, strategy: str, known: int) -> None:
    """Print what a proposal and its result cost a strategy once so many are known."""
    space = open_arena(file).space
    make = make_strategy(strategy, space.points, trials=known + COSTLY, seed=0)
    costs_ms = []
    for number in range(min(known + COSTLY, space.points.size)):
        began_s = time.process_time()
        (config,) = make.ask(1)
        found = as_trial(space, space.find(config), number)
        make.tell(found)
        costs_ms.append(1e3 * (time.process_time() - began_s))
    late = costs_ms[known:]
    print(
        f"{Path(file).name} {strategy}: median {statistics.median(late):.1f} ms, "
        f"mean {statistics.fmean(late):.1f} ms, at most {max(late):.0f} ms"
    )


def read_options() -> argparse.Namespace:
    """The options of this script."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="*")
    parser.add_argument("--repetitions", type=int, default=50)
    parser.add_argument("--tuners", default=",".join(TUNERS))
    parser.add_argument("--only", action="append", default=[], help="this strategy, of any tuner")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit", type=float, default=1e6, help="seconds per strategy and space")
    parser.add_argument("--trials", type=int, help="per run, at most: too few for a score")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--cost", type=int)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--source", default="")
    parser.add_argument("--licence", default="")
    return parser.parse_args()


def main() -> None:
    """Compare, keep, or print a table, or costs."""
    given = read_options()
    if given.table:
        results = msgspec.json.decode(given.table.read_bytes(), type=Results)
        print_results(Console(), results)
        if given.csv:
            write_csv(results, given.csv)
        return
    files = given.files or sorted(map(str, SPACES.glob("*.jsonl.gz")))
    if given.keep:
        keep(files, given.keep, given.source, given.licence)
        return
    if given.cost:
        for file in files:
            for strategy in given.only or ["bayes"]:
                print_cost(file, strategy, given.cost)
        return
    results = Results(compared=(), missing=())
    if given.output and given.output.exists():
        results = msgspec.json.decode(given.output.read_bytes(), type=Results)
        results = msgspec.structs.replace(results, missing=())
    known = {(one.replay.file, one.tuner, one.replay.strategy) for one in results.compared}
    tasks = [
        Task(
            file=file,
            tuner=tuner,
            strategy=strategy,
            repetitions=given.repetitions,
            limit_s=given.limit,
            trials=given.trials,
        )
        for file in files
        for tuner in given.tuners.split(",")
        for strategy in LIST[tuner]()
        if not given.only or strategy in given.only
        if (Path(file).name, tuner, strategy) not in known
    ]
    for number, one in enumerate(compare(tasks, given.jobs)):
        task = tasks[number]
        told = format_score(one.replay.score) if isinstance(one, Compared) else one.reason
        where = f"{number + 1}/{len(tasks)} {Path(task.file).name} {task.tuner} {task.strategy}"
        print(f"{where}: {told}", file=sys.stderr, flush=True)
        if isinstance(one, Compared):
            results = msgspec.structs.replace(results, compared=(*results.compared, one))
        else:
            results = msgspec.structs.replace(results, missing=(*results.missing, one))
        if given.output:  # after each: what is known is not run again
            given.output.write_bytes(msgspec.json.format(msgspec.json.encode(results)) + b"\n")
    print_results(Console(), results)


if __name__ == "__main__":
    main()
