"""How surely ``tileyard bisect`` finds a commit, beside ``git bisect run``; ``--help`` says how to run it.

A made history of 64 commits has a merge, three commits that cannot be built and one that makes a kernel 4 %
slower; each changes the kernel's binary. First whole runs with real measurement; then runs with noise that
was recorded here, in one comparison of builds that differ in a constant alone: a test draws from the
processes of one pair of these, so what the place of its code is worth stays with a binary. A process runs its
kernels for 0.2 s and takes about a second in all, so the usual 8 pairs of 2.5 s are about 100 processes.
``--spread`` makes normal noise up instead.
"""

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from regress import BODIES, KERNEL, keep_busy

from tileyard.measure.looks import LOOKS, mean_interval
from tileyard.store.base import TrialQuery
from tileyard.store.trials import open_store
from tileyard.verbs.regress.plan.bisection import LIKELY, Answer, Bisection, Commit
from tileyard.verbs.regress.plan.pairs import (
    FALSE_DISCOVERIES,
    as_ratio,
    compare_rounds,
    judge_interval,
)
from tileyard.verbs.regress.plan.sought import WRONG_TIMES, SoughtChange, judge_commit
from tileyard.verbs.regress.result import Regression, TimedRow

COMMITS: Final = 64
FORK, JOIN = 20, 40
"""A branch leaves after the first of these commits, and comes back at the second."""
WORK = 200
SLOWER: Final = 1.04
TILEYARD: Final = str(Path(sys.executable).with_name("tileyard"))
HEAD = "import tilelang.language as T\nimport tileyard\nfrom amount import TAG, WORK\n"
STEP = """
tileyard="$1"; good="$2"; margin="$3"; kernels="$4"
"$tileyard" regress "$good" . "$kernels" --margin "$margin" --each 10s --json > ../row.json 2> /dev/null
grep -q '"verdict": "failed"' ../row.json && exit 125
! grep -q '"verdict": "regressed"' ../row.json
"""
"""A test for ``git bisect run``: the same measurement, and a commit that cannot be built is skipped."""


class History(NamedTuple):
    """A made history: the parents of each commit as indices, the culprit, and those that cannot be built."""

    parents: list[list[int]]
    culprit: int
    broken: set[int]

    def has_it(self, index: int) -> bool:
        """Whether a commit has the change."""
        return index == self.culprit or any(self.has_it(one) for one in self.parents[index])


def make_history(seed: int) -> History:
    """64 commits after the first one. No broken commit is next to the culprit, or none could find it."""
    chance = random.Random(seed)
    parents = [[index - 1] if index else [] for index in range(COMMITS + 1)]
    side = range(FORK + 1, FORK + 9)  # on the branch
    parents[side.stop] = [FORK]
    parents[JOIN] = [JOIN - 1, side.stop - 1]
    culprit = chance.choice([one for one in range(1, COMMITS + 1) if one != JOIN])
    near = {culprit, *parents[culprit], *(i for i, own in enumerate(parents) if culprit in own)}
    others = [one for one in range(1, COMMITS) if one not in near]
    return History(parents, culprit, set(chance.sample(others, 3)))


def commit_all(history: History, folder: Path, kernel: str, names: Sequence[str]) -> list[str]:
    """The history of a file with a kernel by each of these names, as a repository; the commits' hashes."""

    def git(*words: str) -> str:
        name = ("-c", "user.name=bench", "-c", "user.email=bench@example.org")
        argv = ["git", *name, *words]
        done = subprocess.run(argv, cwd=folder, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    dtype, body = BODIES[kernel]
    kernels = (KERNEL.format(name=name, dtype=dtype, body=body) for name in names)
    (folder / "kernels.py").write_text(HEAD + "".join(kernels))
    git("init", "-q", "-b", "main")
    made: list[str] = []
    for index, parents in enumerate(history.parents):
        work = round(WORK * SLOWER) if history.has_it(index) else WORK
        amount = f"TAG, WORK = {1 + index / 128}, {None if index in history.broken else work}\n"
        (folder / "amount.py").write_text(amount)
        git("add", ".")
        tree = git("write-tree")
        above = [word for one in parents for word in ("-p", made[one])]
        made.append(git("commit-tree", tree, *above, "-m", f"change {index}"))
    git("update-ref", "refs/heads/main", made[-1])
    git("reset", "-q", "--hard", made[-1])
    return made


def find_really(seed: int, kernel: str) -> str:
    """One line on both ways to find the commit, measured here."""
    history = make_history(seed)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "project"
        folder.mkdir()
        made = commit_all(history, folder, kernel, [kernel])
        ours = find_with_tileyard(folder, made, history.culprit, kernel)
        plain = find_with_git(folder, made, history.culprit, kernel)
    return f"culprit {history.culprit}: tileyard bisect {ours}; git bisect run {plain}"


def find_with_tileyard(folder: Path, made: Sequence[str], culprit: int, kernel: str) -> str:
    """Whether it is right, of how many tests, in how many seconds."""
    words = ["bisect", made[0], "main", f"kernels.py::{kernel}", "--each", "10s", "--json"]
    done = run_in(folder, "home", [TILEYARD, *words])
    if done.returncode > 1:
        raise SystemExit(done.stderr)
    found = json.loads(done.stdout)
    is_right = [one["sha"] for one in found["suspects"]] == [made[culprit]]
    return describe(is_right, len(found["steps"]) + 1, found["seconds"])


def find_with_git(folder: Path, made: Sequence[str], culprit: int, kernel: str) -> str:
    """The same, by a script for each test, which knows the size of the change."""
    (folder.parent / "step.sh").write_text(STEP)
    margin = f"{100 * (math.sqrt(SLOWER) - 1):.3f}%"
    step = ["sh", "../step.sh", TILEYARD, made[0], margin, f"kernels.py::{kernel}"]
    began = time.monotonic()
    run_in(folder, "other", ["git", "bisect", "start", "main", made[0]])
    done = run_in(folder, "other", ["git", "bisect", "run", *step])
    is_right = f"{made[culprit]} is the first bad commit" in done.stdout
    return describe(is_right, done.stdout.count("running "), time.monotonic() - began)


def describe(is_right: bool, tests: int, seconds: float) -> str:
    """One way's end."""
    return f"{'right' if is_right else 'WRONG'}, {tests} tests, {seconds:.0f} s"


def run_in(folder: Path, home: str, argv: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    """Run a program in the project, with a home beside it."""
    env = {**os.environ, "TILEYARD_HOME": str(folder.parent / home)}
    return subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, check=False)


def record_noise(kernel: str, pairs: int, each: str) -> list[list[float]]:
    """ln(head / base) per process that timed two builds of a kernel with unlike constants, by pair."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "project"
        folder.mkdir()
        names = [f"{kernel}{number}" for number in range(pairs)]
        base, head = commit_all(History([[], [0]], 0, set()), folder, kernel, names)
        # No pair is decided at this margin, so each takes its time.
        words = ["regress", base, head, "kernels.py", "--margin", "0.01%", "--each", each]
        done = run_in(folder, "home", [TILEYARD, *words])
        batches: dict[str, dict[str, Sequence[float]]] = {}
        with open_store(Path(scratch) / "home") as store:
            for trial in store.list_trials(TrialQuery(limit=100_000)):
                if trial.measurement:
                    slot = trial.case.rpartition("/")[2]
                    batches.setdefault(trial.batch, {})[slot] = trial.measurement.samples_ns
    found: dict[str, list[float]] = {}
    for name, batch in batches.items():
        ratios = compare_rounds(batch) if len(batch) == 3 else None
        if ratios:
            found.setdefault(name.rpartition("/")[0], []).append(ratios["head"])
    if not found:
        raise SystemExit(f"nothing was recorded: {done.stderr or done.stdout}")
    return list(found.values())


def find_simulated(
    seed: int, noise: Sequence[Sequence[float]], likely: float
) -> tuple[bool, int, int]:
    """Whether the commit is found, in how many tests, and of how many processes; each draws its noise."""
    history = make_history(seed)
    chance = random.Random(seed)
    sought = SoughtChange(case="it", kind="slower", ratio=SLOWER)
    processes = 0

    def test(base: str, head: str) -> Answer:
        nonlocal processes
        if int(head) in history.broken or int(base) in history.broken:
            row = TimedRow(case="it", verdict="failed", head_message="compile_error: no")
        else:
            more = history.has_it(int(head)) - history.has_it(int(base))
            values: list[float] = []
            drawn = chance.choice(noise)
            while len(values) < LOOKS[-1]:
                values.append(chance.choice(drawn) + more * math.log(SLOWER))
                found = mean_interval(values, FALSE_DISCOVERIES)
                verdict = judge_interval(found, math.log1p(sought.margin))
                if len(values) in LOOKS and verdict != "inconclusive":
                    break
            processes += len(values)
            row = TimedRow(case="it", verdict=verdict, ratio=as_ratio(found, len(values)))
        sides = {"base": base, "head": head, "run": "", "target": "", "device": "", "silicon": ""}
        return judge_commit(sought, Regression(**sides, margin=sought.margin, rows=(row,)))

    commits = [
        Commit(sha=str(index), parents=tuple(map(str, own)), subject="")
        for index, own in enumerate(history.parents)
    ][1:]
    bisection = Bisection("0", commits, WRONG_TIMES, test, likely=likely)
    tests = 1 + len(list(bisection.run()))  # the first one compares the bad revision
    return [one.sha for one in bisection.suspects] == [str(history.culprit)], tests, processes


def main() -> None:
    """Print a line for each real run, and one for all others."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="with real measurement")
    parser.add_argument("--simulated", type=int, default=100, help="with recorded noise")
    parser.add_argument("--pairs", type=int, default=8, help="of which noise is recorded")
    parser.add_argument("--each", default="2.5s", help="how long kernels of a pair run")
    parser.add_argument("--spread", type=float, help="percent: normal noise, and none is recorded")
    parser.add_argument("--likely", type=float, default=LIKELY, help="see Bisection")
    parser.add_argument("--kernel", default="chain", choices=sorted(BODIES))
    parser.add_argument("--busy", action="store_true", help="keep one core busy meanwhile")
    asked = parser.parse_args()
    with keep_busy(asked.busy):
        for seed in range(asked.runs):
            print(find_really(seed, asked.kernel), flush=True)
        if not asked.simulated:
            return
        if asked.spread is None:
            noise = record_noise(asked.kernel, asked.pairs, asked.each)
        else:
            chance = random.Random(0)
            noise = [[chance.gauss(0, asked.spread / 100) for _ in range(1000)]]
    values = [value for pair in noise for value in pair]
    print(
        f"noise: {len(values)} processes of {len(noise)} pairs, "
        f"standard deviation {100 * statistics.stdev(values):.2f} %",
        flush=True,
    )
    found = [find_simulated(seed, noise, asked.likely) for seed in range(asked.simulated)]
    right = sum(one[0] for one in found)
    tests = statistics.mean(one[1] for one in found)
    print(
        f"{right} of {len(found)} right, {tests:.1f} tests, "
        f"{statistics.mean(one[2] for one in found):.0f} processes"
    )


if __name__ == "__main__":
    main()
