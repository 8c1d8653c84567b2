"""A made history: a repository of 40 commits, and 60 runs that timed them."""

import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.unit.verbs.regress.plan.recorded_runs import BASE_NS, record_runs

from tileyard.base.model import Measurement, Outcome, Trial
from tileyard.store.trials import TrialStore

COMMITS, RUNS = 40, 60
PLANTED = 25
"""The commit that makes a case slower, counted from 0."""
STEADY = tuple(f"layer{number}/config-1" for number in range(5))
SLOWED = "softmax/M=1024/config-1"


def make_repository(folder: Path, count: int = COMMITS) -> tuple[str, ...]:
    """A git repository in ``folder`` with a line of commits, ``change N``; their hashes."""

    def git(*words: str, given: str = "") -> str:
        argv = ["git", "-C", str(folder), *words]
        done = subprocess.run(argv, input=given, capture_output=True, text=True, check=True)
        return done.stdout

    folder.mkdir()
    git("init", "-q", "-b", "main")
    commits = []
    for number in range(count):
        subject = "Softmax rounds once" if number == PLANTED else f"change {number}"
        commits.append(
            f"commit refs/heads/main\nmark :{number + 1}\n"
            f"committer A <a@b.example> {1_700_000_000 + number} +0000\n"
            f"data {len(subject)}\n{subject}\n" + (f"from :{number}\n" if number else "")
        )
    git("fast-import", "--quiet", given="\n".join(commits))
    git("tag", "v1", f"main~{count - 11}")
    return tuple(git("rev-list", "--reverse", "main").split())


def list_revisions(commits: tuple[str, ...]) -> tuple[str, ...]:
    """The commit of each run: most are timed once, some twice."""
    return tuple(commits[day * COMMITS // RUNS] for day in range(RUNS)) + commits[-1:] * 10


def draw_times(seed: int, *, is_slowed: bool = False) -> Iterator[float]:
    """The times of runs, which move by half a percent."""
    noise = random.Random(seed)
    for day in range(RUNS + 10):
        factor = 1.06 if is_slowed and day * COMMITS // RUNS >= PLANTED else 1.0
        yield BASE_NS * factor * noise.gauss(1, 0.005)


def record_history(home: Path, commits: tuple[str, ...], first: int = 0, runs: int = RUNS) -> None:
    """Runs of ``regress`` from the ``first`` on: one case becomes slower, five stay as they are."""
    for seed, case in enumerate((SLOWED, *STEADY)):
        times = list(draw_times(seed, is_slowed=case == SLOWED))[first : first + runs]
        record_runs(home, times, case=case, revisions=list_revisions(commits), first=first)


def record_suite(
    home: Path, times_s: tuple[float, ...], suite: str = "nightly", *, failing: bool = False
) -> None:
    """Runs of a suite's case, one a day; the last one crashes if it is ``failing``."""
    with TrialStore.open(home) as store:
        for day, run_s in enumerate(times_s):
            is_last = failing and day == len(times_s) - 1
            store.record(
                Trial(
                    id=f"{suite}{day}.1",
                    run=f"{suite}{day}",
                    case="rows/f16_32x48",
                    batch="b",
                    testcase="rows",
                    suite=suite,
                    target="command",
                    device="npu:3",
                    outcome=Outcome.CRASHED if is_last else Outcome.PASSED,
                    message="signal 11" if is_last else "",
                    started_at=1.8e9 + 86400 * day,
                    run_s=run_s,
                )
            )


def record_study(home: Path, day: int, times_ns: dict[int, float], kernel: str = "gemm") -> None:
    """A run of ``tune`` with these times by ``block``, screened once and then timed in finals."""
    with TrialStore.open(home) as store:
        for number, (block, time_ns) in enumerate(times_ns.items()):
            for stage, batch in enumerate((f"block={block}", "finals")):
                samples = tuple(time_ns * (1 + 0.001 * part) for part in range(-9, 10))
                store.record(
                    Trial(
                        id=f"tune{day}.{2 * number + stage + 1}",
                        run=f"tune{day}",
                        case=f"block={block}" + "/finals" * stage,
                        batch=batch,
                        kernel=kernel,
                        arguments={"M": 64},
                        config={"block": block},
                        target="cpu",
                        device="cpu:0",
                        silicon="a CPU",
                        outcome=Outcome.PASSED,
                        started_at=1.8e9 + 86400 * day,
                        measurement=Measurement(
                            median_ns=time_ns,
                            low_ns=samples[4],
                            high_ns=samples[-5],
                            confidence=0.95,
                            samples_ns=samples,
                        ),
                    )
                )
