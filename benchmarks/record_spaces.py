"""Records the spaces of `space_kernels.py` on this host's CPU: each config with its work, outcome and time.

    python benchmarks/record_spaces.py build [--only NAME]               # other work may run
    python benchmarks/record_spaces.py time [--only NAME] [-o FOLDER]    # nothing else may run
    python benchmarks/record_spaces.py noise [--only NAME] [-o FOLDER]   # nor here

All is kept in $TILEYARD_HOME, and what was built or timed before is not repeated. FOLDER gets a file per
kernel. The noise floor is that of 20 random configs, timed again: by how much the two times of a config
differ.
"""

import argparse
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from tileyard.artifacts.objects import canonical_json
from tileyard.show.opening import load_settings
from tileyard.verbs.tune.plan.recorded.files import read_space

KERNELS = Path(__file__).with_name("space_kernels.py")
NAMES = ("product", "softmax", "attention", "convolution", "transposition", "dequantized")
ALL = "1000000"
AGAIN = "20"
AGAIN_LIMIT = "20s"
HOW = ("--no-check-sync", "--repeat", "60ms")
"""A config is launched for 60 ms at most."""


def run(*words: str, **variables: str) -> None:
    """Run a command of tileyard; one that cannot do its work ends this script."""
    environment = {**os.environ, **variables}
    done = subprocess.run([sys.executable, "-m", "tileyard", *words], check=False, env=environment)
    if done.returncode not in (0, 1):
        raise SystemExit(done.returncode)


def record(name: str, folder: Path) -> None:
    """Time every config once."""
    run("tune", f"{KERNELS}::{name}", *HOW, "--trials", ALL, "--strategy", "grid", "--no-overlap")
    run("trials", "export", name, "--as", "space", "-o", str(file_of(name, folder)))


def record_again(name: str, folder: Path) -> None:
    """Time some configs again, in a data directory that has what was built, and no trial."""
    home = load_settings().home
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copytree(home / "objects", Path(scratch, "objects"))
        again = Path(scratch, "again.jsonl")
        own = {"TILEYARD_HOME": scratch}
        study = (f"{KERNELS}::{name}", *HOW, "--trials", AGAIN, "--strategy", "random")
        run("tune", *study, "--budget", AGAIN_LIMIT, **own)
        run("trials", "export", name, "--as", "space", "-o", str(again), **own)
        print(f"{name}: {say_noise(file_of(name, folder), again)}", flush=True)


def file_of(name: str, folder: Path) -> Path:
    """The file of a kernel's space."""
    return folder / f"{name}.jsonl.gz"


def say_noise(file: Path, again: Path) -> str:
    """How much the times of configs in both files differ, where they were measured twice."""
    first, second = read_space(file), read_space(again)
    known = {canonical_json(one.config): one.time_ns for one in first.configs}
    ratios = [
        abs(math.log(one.time_ns / before))
        for one in second.configs
        if one.time_ns and (before := known.get(canonical_json(one.config)))
    ]
    if not ratios:
        return "nothing was timed twice"
    worst = 100 * math.expm1(max(ratios))
    usual = 100 * math.expm1(statistics.median(ratios))
    counts = f"{len(first.times_ns)} of {len(first.configs)} configs timed"
    return f"{counts}; again, {len(ratios)} differ by {usual:.1f} %, at most {worst:.1f} %"


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("step", choices=("build", "time", "noise"))
    parser.add_argument("--only", action="append", choices=NAMES)
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).with_name("spaces_cpu"))
    given = parser.parse_args()
    given.output.mkdir(exist_ok=True)
    steps = {"time": record, "noise": record_again}
    for name in given.only or NAMES:
        if given.step == "build":
            run("compile", f"{KERNELS}::{name}", "--all-configs")
        else:
            steps[given.step](name, given.output)


if __name__ == "__main__":
    main()
