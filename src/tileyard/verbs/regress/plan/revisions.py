"""Git revisions as folders to import from, kept by their content. The repository is not changed."""

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from tileyard.artifacts.copying import scratch_folder
from tileyard.artifacts.pins import note_use
from tileyard.base.clock import Clock
from tileyard.base.errors import ToolMissingError, UsageError
from tileyard.base.modes import make_folder
from tileyard.service.revision import find_folder, run_git
from tileyard.verbs.regress.plan.bisection import Commit

FOLDER = "sides"
"""Folder of checkouts, below the data directory."""
SHORT = 10
_CLOCK = Clock()


class Project:
    """The git repository that contains a file. ``root`` is its top folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def of(cls, file: Path) -> "Project | None":
        """The repository of a file, which need not exist; None without a repository or without git."""
        try:
            root = run_git(find_folder(file), "rev-parse", "--show-toplevel")
        except (UsageError, ToolMissingError):
            return None
        return cls(Path(root))

    def find(self, revision: str) -> str:
        """The commit that a revision names. Raises UsageError if there is none."""
        asked = f"{revision}^{{commit}}"
        try:
            return run_git(self.root, "rev-parse", "--verify", "--quiet", "--end-of-options", asked)
        except UsageError:
            raise UsageError(f"{revision} is not a git revision of {self.root}") from None

    def list_commits(self, good: str, bad: str) -> list[Commit]:
        """The commits that ``bad`` has and ``good``, an ancestor, lacks, parents first. Raises UsageError."""
        first, last = self.find(good), self.find(bad)
        shared = run_git(self.root, "merge-base", first, last)
        if shared != first:
            raise UsageError(
                f"{good} is not an ancestor of {bad}",
                f"what they share is {shared[:SHORT]}: try that as GOOD",
            )
        layout = ("--topo-order", "--reverse", "--format=%H%x00%P%x00%s")
        listed = run_git(self.root, "log", *layout, f"{first}..{last}").splitlines()
        return [
            Commit(sha=sha, parents=tuple(parents.split()), subject=subject)
            for sha, parents, subject in (line.split("\0") for line in listed)
        ]

    def sort_commits(self, commits: Iterable[str]) -> list[str]:
        """The existing ones of these commits, and all commits before them, each after its parents."""
        words = ("rev-list", "--topo-order", "--reverse", "--ignore-missing")
        return run_git(self.root, *words, *commits, "--").splitlines()

    def read_subjects(self, commits: Iterable[str]) -> dict[str, str]:
        """The first line of the message of each of these commits, which exist."""
        named = sorted(commits)
        if not named:
            return {}
        listed = run_git(self.root, "show", "-s", "--format=%H%x00%s", *named, "--").splitlines()
        return dict(line.split("\0", 1) for line in listed if "\0" in line)

    def check_out(self, commit: str, home: Path) -> Path:
        """A folder with a commit's files but submodules, one for equal ones; a pin of ``home`` keeps it."""
        tree = run_git(self.root, "rev-parse", f"{commit}^{{tree}}")
        folder = home / FOLDER / tree
        if is_kept(folder, home):
            return folder
        make_folder(folder.parent)
        with scratch_folder(folder.parent, "tmp-") as scratch:
            # An index of its own: neither the user's index nor the list of worktrees is touched.
            index = {"GIT_INDEX_FILE": str(scratch / "index")}
            run_git(self.root, "read-tree", tree, variables=index)
            files = scratch / "files"
            files.mkdir()
            run_git(self.root, "checkout-index", "--all", f"--prefix={files}/", variables=index)
            try:
                files.rename(folder)
            except OSError:
                if not folder.is_dir():  # otherwise another process was faster
                    raise
        return folder

    def variables(self, folder: Path) -> dict[str, str]:
        """The environment in which Python finds in ``folder`` what it now finds in the project itself."""
        # The working folder is part of the project: a side has its own.
        here = [self.root, Path.cwd(), *_outer_path(), *map(Path, filter(None, sys.path))]
        found = self._move_path(folder, here)
        return {"PYTHONPATH": os.pathsep.join(found), "PYTHONSAFEPATH": "1"}

    def step_variables(self, folder: Path) -> dict[str, str]:
        """The same for programs; empty if no folder of the module path is in the project."""
        # ``python -m`` has put the working folder first for this process alone.
        own = (Path(entry) for entry in sys.path if entry and Path(entry) != Path.cwd())
        found = self._move_path(folder, [*_outer_path(), *own])
        is_moved = any(Path(path).is_relative_to(folder) for path in found)
        return {"PYTHONPATH": os.pathsep.join(found)} if is_moved else {}

    def _move_path(self, folder: Path, here: list[Path]) -> list[str]:
        """``PYTHONPATH``, and the paths of ``here`` in the project, moved to ``folder``."""
        ours = [path for path in here if path.is_relative_to(self.root)]
        # All sides run this very Tileyard.
        moved = [
            folder / path.relative_to(self.root)
            for path in ours
            if not (path / "tileyard" / "__init__.py").is_file()
        ]
        kept = [path for path in _outer_path() if path not in ours]
        return list(dict.fromkeys(map(str, (*moved, *kept))))


def _outer_path() -> list[Path]:
    return [Path(entry) for entry in os.environ.get("PYTHONPATH", "").split(":") if entry]


def is_kept(folder: Path, home: Path) -> bool:
    """Whether a side exists. Records its use: garbage collections remove what was not used for long."""
    try:
        status = folder.stat()
    except FileNotFoundError:
        return False
    return note_use(home / "objects", folder, status, _CLOCK.wall_s())
