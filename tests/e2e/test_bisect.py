"""``tileyard bisect``: a history with real kernels, in which commits made something slower, or wrong."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import ONE_CORE, ROOT, CommandLine
from tests.e2e.gpu_builds import share_headers
from tests.e2e.repositories import git, make_history

pytestmark = pytest.mark.slow

KERNEL = """
import tilelang.language as T
import tileyard

@tileyard.kernel(reference=lambda A: A + 1 + TAG - TAG)
def plus(N=1 << 12):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=128) as _:
            x = T.alloc_fragment((N,), "float32")
            T.copy(A, x)
            for _ in T.serial(TIMES):
                for i in T.Parallel(N):
                    x[i] = x[i] * 2.0
                for i in T.Parallel(N):
                    x[i] = x[i] * 0.5
            for i in T.Parallel(N):
                B[i] = x[i] + ADDED
    return main
"""
WIDE = """
import tilelang.language as T
import tileyard

@tileyard.kernel
def third(N=4096):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, BLOCK), threads=128) as bx:
            for i in T.Parallel(BLOCK):
                B[bx * BLOCK + i] = A[bx * BLOCK + i] / T.float32(3)
    return main
"""
STEPS = [
    "TIMES, ADDED, TAG = 1, 1, 0",
    "TIMES, ADDED, TAG = None, 1, 0",
    "TIMES, ADDED, TAG = 1, 1, 0  # built again",
    "TIMES, ADDED, TAG = 100, 1, 0",
    "TIMES, ADDED, TAG = 100, 2, 0",
    "TIMES, ADDED, TAG = 100, 2, 0  # a comment",
]
"""What the commits say, one after another: the second is not built, the fourth is slower, the fifth wrong."""


@pytest.fixture
def project(cli: CommandLine, tmp_path: Path) -> Path:
    """The history."""
    return make_history(cli, tmp_path, ({"kernels.py": f"{step}\n{KERNEL}"} for step in STEPS))


def bisect(cli: CommandLine, good: str, bad: str, *others: str) -> dict[str, Any]:
    """What it has found."""
    done = cli.run("bisect", good, bad, "kernels.py", *others, "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def found_in(found: dict[str, Any]) -> tuple[list[str], bool]:
    """The suspects, and whether the one is confirmed."""
    return [one["subject"] for one in found["suspects"]], found["is_confirmed"]


def test_what_made_it_slower_is_found(cli: CommandLine, project: Path) -> None:
    """It is the one suspect; nothing is left in the repository."""
    before = git(project, "status", "--porcelain"), git(project, "worktree", "list")
    found = bisect(cli, "c0", "c3", *ONE_CORE)
    assert found["sought"]["kind"] == "slower"
    assert found_in(found) == (["step 3"], True)
    shifted = [one for one in cli.run_json("trials", "--rows", "9999") if "shift" in one["target"]]
    assert len({one["run"] for one in shifted}) == 1  # the first comparison alone
    assert (git(project, "status", "--porcelain"), git(project, "worktree", "list")) == before
    assert list((cli.home / "tmp").iterdir()) == []
    check_refusal(cli.run("bisect", "c0", "c2", "kernels.py"), "nothing has changed")


def check_refusal(done: subprocess.CompletedProcess[str], why: str) -> None:
    """What is refused says why, in one line and a hint."""
    assert done.returncode == 2
    assert why in done.stderr
    assert len(done.stderr.splitlines()) <= 2


def test_what_made_it_wrong_is_found(cli: CommandLine, project: Path) -> None:
    """And a range without a commit that could have done it is refused."""
    found = bisect(cli, "c3", "main")
    assert (found["sought"]["kind"], found["sought"]["outcome"]) == ("fails", "mismatch")
    assert found_in(found) == (["step 4"], True)
    for good, bad, why in [
        ("c4", "c0", "is not an ancestor"),
        ("c0", "c0", "there is no commit"),
        ("c0", "nowhere", "nowhere"),
    ]:
        check_refusal(cli.run_here("bisect", good, bad, "kernels.py"), why)


def test_what_made_a_figure_worse_is_found_although_nothing_runs(
    cli: CommandLine, tmp_path: Path
) -> None:
    """Of several the commit that took it over half; unreadable files are skipped, no kernel is timed."""
    added = [1, 10, "1 / 0", 10, 1000, 10000]
    make_history(
        cli,
        tmp_path,
        (
            {"kernels.py": f"TIMES, ADDED, TAG = 100, {one}, 0  # {number}\n{KERNEL}"}
            for number, one in enumerate(added)
        ),
    )
    cli.env["TILEYARD_PLUGINS"] = "counting=counting_target:CountingTarget"
    cli.env["PYTHONPATH"] = str(ROOT / "tests" / "e2e")
    limits = "spills:+0,registers:+0"
    how = ("--target", "counting", "--compile-workers", "1", "--fail-on", limits)
    found = bisect(cli, "c0", "c5", *how)
    figure = found["sought"]["figure"]
    assert (found["sought"]["kind"], figure["metric"]) == ("figure", "registers")
    assert figure["head"] > figure["base"]
    assert None in [one["answer"]["has_it"] for one in found["steps"]]
    assert found_in(found) == (["step 4"], True)
    assert not any(trial["measurement"] for trial in cli.run_json("trials", "--rows", "1000"))
    for others, why in [
        ((*how, "--devices", "cpu"), "--devices has no effect with --fail-on"),
        (("--fail-on", "speed:+1"), "there is no figure 'speed'"),
        (("--fail-on", "build:+1"), "a limit of build times takes"),
    ]:
        check_refusal(cli.run_here("bisect", "c0", "c5", "kernels.py", *others), why)


@pytest.mark.sweep(0)  # by default: times and results are bisected
def test_figures_of_a_gpus_binary_need_no_gpu(
    cli: CommandLine, tmp_path: Path, gpu_caches: Path
) -> None:
    """More elements for each thread take more registers."""
    steps = ({"kernels.py": WIDE.replace("BLOCK", block)} for block in ("128", "1024"))
    make_history(cli, tmp_path, steps)
    share_headers(cli.home, gpu_caches)
    how = ("--target", "cuda:sm_90a", "--compile-workers", "1", "--fail-on", "registers:+0")
    found = bisect(cli, "c0", "c1", *how)
    assert found["sought"]["figure"]["metric"] == "registers"
    assert found_in(found) == (["step 1"], True)
