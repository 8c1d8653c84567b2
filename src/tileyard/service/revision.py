"""The git revision of a user's files, which results record. The repository is not changed."""

import asyncio
import os
import subprocess
from pathlib import Path

from tileyard.base.errors import ToolMissingError, UsageError
from tileyard.base.model import Side
from tileyard.base.wording import count_of


async def find_side(file: str) -> Side:
    """The side of a run that compares nothing, with the revision of its file, which is empty if the client is
    the author.
    """
    return Side(revision=await asyncio.to_thread(find_revision, Path(file)) if file else "")


def find_revision(file: Path) -> str:
    """The commit of the repository that contains a file, behind links, which need not exist, and the number
    of files that differ; see ``read_revision``. Empty without a commit, and if it cannot be read.
    """
    try:
        folder = find_folder(Path(os.path.realpath(file)))
        if not any((one / ".git").exists() for one in (folder, *folder.parents)):
            return ""  # most often, and then no process is started
        return read_revision(folder)
    except (UsageError, ToolMissingError, OSError):
        return ""


def read_revision(folder: Path) -> str:
    """The commit of a repository, as in ``1a2b... with changes in 2 files``. Raises UsageError, also if there
    is none, and ToolMissingError.
    """
    found = run_git(folder, "status", "--porcelain=v2", "--branch").splitlines()
    commit = next((line.split()[2] for line in found if line.startswith("# branch.oid ")), "")
    changed = sum(not line.startswith("#") for line in found)
    if not commit.isalnum():  # "(initial)"
        raise UsageError(f"{folder} has no commit")
    return f"{commit} with changes in {count_of(changed, 'file')}" if changed else commit


def find_folder(file: Path) -> Path:
    """The nearest existing folder of a file."""
    folders = (file.absolute(), *file.absolute().parents)
    return next((one for one in folders if one.is_dir()), Path("/"))


def run_git(folder: Path, *words: str, variables: dict[str, str] | None = None) -> str:
    """The output of git. Raises UsageError with its message, ToolMissingError if git cannot be started."""
    argv = ["git", "--no-optional-locks", "-C", str(folder), *words]
    try:
        done = subprocess.run(
            argv,
            env={**os.environ, **(variables or {})},
            capture_output=True,
            encoding="utf-8",
            errors="replace",  # names of files and messages are bytes
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except FileNotFoundError as error:
        raise ToolMissingError("git is not installed") from error
    except OSError as error:
        raise ToolMissingError(f"git cannot be started: {error.strerror}") from error
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise UsageError(said[0].removeprefix("fatal: ") if said else f"git {words[0]} failed")
    return done.stdout.strip()
