"""``tileyard bisect``: a history with real kernels, in which one commit made something slower, and another one wrong."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import CommandLine
from tests.e2e.repositories import git

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
STEPS = [
    "TIMES, ADDED, TAG = 1, 1, 0",
    "TIMES, ADDED, TAG = 1, 1, 0  # a comment",
    "TIMES, ADDED, TAG = 100, 1, 0",
    "TIMES, ADDED, TAG = None, 1, 0",
    "TIMES, ADDED, TAG = 100, 1, 0  # built again",
    "TIMES, ADDED, TAG = 100, 2, 0",
    "TIMES, ADDED, TAG = 100, 2, 0  # a comment",
]
"""What the commits say, one after another: the third one is slower, the fourth one is not built, the sixth one is wrong."""


@pytest.fixture
def project(cli: CommandLine, tmp_path: Path) -> Path:
    """The history; each commit has a tag, ``c0`` and so on."""
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    for number, step in enumerate(STEPS):
        (folder / "kernels.py").write_text(f"{step}\n{KERNEL}")
        git(folder, "add", ".")
        git(folder, "commit", "-q", "-m", f"step {number}")
        git(folder, "tag", f"c{number}")
    cli.cwd = folder
    cli.env |= {
        "TILEYARD_HOME": str(tmp_path / "home"),
        "TILEYARD_LOCK_DIR": str(tmp_path / "locks"),
    }
    return folder


def bisect(cli: CommandLine, good: str, bad: str) -> dict[str, Any]:
    """What it has found."""
    done = cli.run("bisect", good, bad, "kernels.py", "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_what_made_it_slower_is_found(cli: CommandLine, project: Path) -> None:
    """A commit that cannot be built is passed over; nothing is left in the repository."""
    before = git(project, "status", "--porcelain"), git(project, "worktree", "list")
    found = bisect(cli, "c0", "c4")
    assert found["sought"]["kind"] == "slower"
    assert ([one["subject"] for one in found["suspects"]], found["is_confirmed"]) == (
        ["step 2"],
        True,
    )
    assert (git(project, "status", "--porcelain"), git(project, "worktree", "list")) == before
    assert list((cli.home / "tmp").iterdir()) == []


def test_what_made_it_wrong_is_found(cli: CommandLine, project: Path) -> None:
    """And a range without a change is refused."""
    found = bisect(cli, "c4", "main")
    assert (found["sought"]["kind"], found["sought"]["outcome"]) == ("fails", "mismatch")
    assert ([one["subject"] for one in found["suspects"]], found["is_confirmed"]) == (
        ["step 5"],
        True,
    )
    for good, bad, why in [
        ("c0", "c1", "nothing has changed"),
        ("c4", "c0", "is no ancestor"),
        ("c0", "c0", "there is no commit"),
        ("c0", "nowhere", "nowhere"),
    ]:
        done = cli.run("bisect", good, bad, "kernels.py")
        assert done.returncode == 2
        assert why in done.stderr
        assert len(done.stderr.splitlines()) <= 2
