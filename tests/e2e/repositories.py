"""Git repositories of tests."""

import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.conftest import CommandLine

COPY = """
@tileyard.kernel(reference=lambda A: A)
def {name}(N=1024):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=128) as _:
            for i in T.Parallel(N):
                B[i] = A[i]
    return main
"""
"""A kernel by this name, for a file that imports TileLang's language as T, and tileyard."""
SUMS = """
name = "sums"
[build]
argv = ["cc", "-O1", "-o", "{out}/{testcase}", "{testcase}.c"]
inputs = ["{testcase}.c"]
[golden]
argv = ["sh", "-c", "printf 7 > $0/right", "{out}"]
[check]
argv = ["sh", "-c", "cmp -s result right || exit 2"]
"""
"""The head of a suite whose programs write 7 into a file."""


def git(folder: Path, *arguments: str) -> str:
    """What a git command prints."""
    who = {
        f"GIT_{role}_{key}": "a@b" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")
    }
    done = subprocess.run(
        ["git", *arguments],
        cwd=folder,
        env={**os.environ, **who, "GIT_CONFIG_GLOBAL": os.devnull},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def make_history(cli: CommandLine, tmp_path: Path, steps: Iterable[Mapping[str, str]]) -> Path:
    """A repository in which commands are run, with a commit for each step, which writes these files. Commits
    are called ``step 0`` and so on, and have tags ``c0`` and so on.
    """
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    for number, files in enumerate(steps):
        for file, text in files.items():
            (folder / file).parent.mkdir(exist_ok=True)
            (folder / file).write_text(text)
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", f"step {number}")
        git(folder, "tag", f"c{number}")
    cli.cwd = folder
    cli.env |= {
        "TILEYARD_HOME": str(tmp_path / "home"),
        "TILEYARD_LOCK_DIR": str(tmp_path / "locks"),
    }
    return folder
