"""Records the spaces of `space_kernels.py` on a core of this host: each config, its work, outcome and time.

    python benchmarks/record_spaces.py build [--only NAME]               # other work may run
    python benchmarks/record_spaces.py time [--only NAME] [-o FOLDER]    # nothing else may run
    python benchmarks/record_spaces.py noise [--only NAME] [-o FOLDER]   # nor here
    python benchmarks/record_spaces.py count [--only NAME] [-o FOLDER]   # after a change of ir/work.py

`build` also runs and checks each config. `time` writes a file per kernel: it launches all configs in turn,
round after round, so what disturbs the machine for a while disturbs no config more than others. Of a round
the fastest launch counts, and of all rounds the median. The noise floor is by how much 60 of these times
differ from those of a second run, `noise`. All is kept in $TILEYARD_HOME; what is built is not built again.
"""

import argparse
import math
import os
import random
import statistics
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import msgspec

from tileyard.artifacts.manifest import find_artifact
from tileyard.artifacts.objects import ObjectStore, canonical_json
from tileyard.base.model import Trial
from tileyard.ir.specs import tensor_specs
from tileyard.measure.inputs import make_inputs
from tileyard.measure.statistics import MedianInterval, median_interval
from tileyard.show.opening import load_settings
from tileyard.store.base import TrialQuery
from tileyard.store.trials import open_store
from tileyard.targets.base import Launch
from tileyard.targets.cpu.loaded import CpuLoaded
from tileyard.verbs.tune.plan.recorded.files import read_space, write_space
from tileyard.verbs.tune.plan.recorded.space import Recorded, RecordedSpace
from tileyard.verbs.tune.plan.recorded.studies import list_spaces

KERNELS = Path(__file__).with_name("space_kernels.py")
NAMES = ("product", "softmax", "attention", "convolution", "transposition", "dequantized")
CORE = min(os.sched_getaffinity(0))
ALL = 1_000_000
AGAIN = 60
CHECK = ("--fresh", "--warmup", "1", "--repeat", "3", "--no-check-sync", "--trials", str(ALL))
"""Options of the study that runs each config once: its times do not count."""
ROUNDS, LAUNCHES = 25, 5
CONFIDENCE = 0.95

Times = dict[str, MedianInterval]
"""The times in ns by the text of a config."""


def run(*words: str) -> None:
    """Run a command of tileyard; one that cannot do its work ends this script."""
    done = subprocess.run([sys.executable, "-m", "tileyard", *words], check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(done.returncode)


def build(name: str) -> None:
    """Build all configs, and then run and check each one."""
    kernel = f"{KERNELS}::{name}"
    run("compile", kernel, "--all-configs")
    run("tune", kernel, *CHECK, "--strategy", "grid", "--devices", f"cpu:cores={CORE}")


class Checked:
    """The configs of a kernel that ``build`` has run, by its latest study."""

    def __init__(self, name: str) -> None:
        home = load_settings().home
        self._objects = ObjectStore(home / "objects")
        with open_store(home) as store:
            (latest,) = store.list_trials(TrialQuery(kernel=name, was_run=True, limit=1))
            trials = store.list_trials(TrialQuery(kernel=name, run=latest.run, limit=0))
        self.space = list_spaces(trials, self._objects)[0]
        arguments = self.space.header.arguments
        self._trials = {
            canonical_json(one.config): one
            for one in reversed(trials)
            if one.keys.build and one.arguments == arguments
        }

    def time(self, most: int) -> Times:
        """Launch all right configs in turn, or ``most`` of them at random."""
        right = [text_of(one) for one in self.space.configs if one.is_timed]
        chosen = random.Random(0).sample(right, min(most, len(right)))
        known = {config: self._trials[config] for config in chosen}
        launches = {trial.keys.build: self._load(trial) for trial in known.values()}
        least: dict[str, list[float]] = {build: [] for build in launches}
        for _ in range(ROUNDS):
            for build, launch in launches.items():
                launch.sample_ns(1, 1)
                least[build].append(min(launch.sample_ns(LAUNCHES, 1)))
        found = {build: median_interval(times, CONFIDENCE) for build, times in least.items()}
        return {config: found[trial.keys.build] for config, trial in known.items()}

    def _load(self, trial: Trial) -> Launch:
        artifact = find_artifact(trial.keys.build, self._objects)
        if artifact is None:
            raise SystemExit(f"{trial.case} is not built any more")
        loaded = CpuLoaded(artifact, (CORE,), is_pinned=True)
        numbers = {name: one for name, one in trial.arguments.items() if isinstance(one, int)}
        specs = tensor_specs(loaded.binary.signature, numbers)
        return loaded.bind(make_inputs([spec for spec in specs if spec.role != "out"]), ())


def text_of(config: Recorded) -> str:
    """The text of a config."""
    return canonical_json(config.config)


def write(space: RecordedSpace, file: Path, times: Times) -> None:
    """Write a space with these times."""
    configs = []
    for one in space.configs:
        if one.is_timed:
            found = times[text_of(one)]
            one = msgspec.structs.replace(  # noqa: PLW2901 - the same config
                one,
                time_ns=round(found.median),
                low_ns=round(found.low),
                high_ns=round(found.high),
            )
        configs.append(one)
    write_space(replace(space, configs=tuple(configs)), file)
    print(f"{file}: {len(space.times_ns)} of {len(configs)} configs timed", flush=True)


def read_times(file: Path) -> Times:
    """The times in a file."""
    return {
        text_of(one): MedianInterval(
            median=one.time_ns or math.nan,
            low=one.low_ns or math.nan,
            high=one.high_ns or math.nan,
            coverage=CONFIDENCE,
        )
        for one in read_space(file).configs
    }


def say_noise(first: Times, second: Times) -> str:
    """How much the ratios of two times differ, of the same configs."""
    ratios = [math.log(one.median / first[text].median) for text, one in second.items()]
    middle = statistics.median(ratios)
    away = sorted(100 * math.expm1(abs(one - middle)) for one in ratios)
    usual, most, worst = statistics.median(away), away[int(0.9 * len(away))], away[-1]
    return (
        f"{len(away)} configs, all times {100 * math.expm1(middle):+.1f} %; apart from that they differ"
        f" by {usual:.1f} %, 90 % by up to {most:.1f} %, all by {worst:.1f} %"
    )


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("step", choices=("build", "time", "noise", "count"))
    parser.add_argument("--only", action="append", choices=NAMES)
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).with_name("spaces_cpu"))
    given = parser.parse_args()
    given.output.mkdir(exist_ok=True)
    for name in given.only or NAMES:
        file = given.output / f"{name}.jsonl.gz"
        if given.step == "build":
            build(name)
            continue
        checked = Checked(name)
        if given.step == "noise":
            print(f"{name}: {say_noise(read_times(file), checked.time(AGAIN))}", flush=True)
        elif given.step == "time":
            write(checked.space, file, checked.time(ALL))
        else:
            write(checked.space, file, read_times(file))


if __name__ == "__main__":
    main()
