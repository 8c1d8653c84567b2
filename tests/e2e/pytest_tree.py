"""Small trees of tests for ``pytest --tileyard``, each run in a process of its own."""

import json
import os
import select
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.warm_python import KERNELS as KERNELS_AHEAD
from tests.warm_python import warm

OPTIONS = (
    *("-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:hypothesispytest"),
    *("-W", "error"),
)
KERNELS = """
    import tilelang
    import tilelang.language as T

    @tilelang.jit(out_idx=[-1])
    def scale(N, factor=2.0, block=64):
        @T.prim_func
        def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
            with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
                for i in T.Parallel(block):
                    Y[bx * block + i] = X[bx * block + i] * factor
        return main
"""


@dataclass(frozen=True)
class Ran:
    """One run of pytest: its exit code, what it printed, and its report where it wrote one."""

    code: int
    text: str
    report: dict[str, Any] = field(default_factory=dict)

    def outcome(self, name: str) -> str:
        """How the test of this name ended."""
        return self._entry(name)["outcome"]

    def message(self, name: str) -> str:
        """Why the test of this name failed."""
        return self._entry(name)["message"]

    def _entry(self, name: str) -> dict[str, str]:
        (entry,) = [entry for entry in self.report["tests"] if entry["test"].endswith(name)]
        return entry  # type: ignore[no-any-return]  # as the plugin writes it


@dataclass(frozen=True)
class Tree:
    """A tree of tests with a home and locks of its own."""

    folder: Path

    def write(self, **files: str) -> None:
        """Write modules; ``test_`` before a name makes one of tests."""
        for name, text in files.items():
            (self.folder / f"{name}.py").write_text(textwrap.dedent(text))

    def environment(self) -> dict[str, str]:
        """As a user's shell has it."""
        ours = ("PYTEST_", "TILEYARD_")
        kept = {name: text for name, text in os.environ.items() if not name.startswith(ours)}
        return {
            **kept,
            "TILEYARD_HOME": str(self.folder / "home"),
            "TILEYARD_LOCK_DIR": str(self.folder / "locks"),
            # pytest closes the directory of all temporary ones to others whenever it starts
            "PYTEST_DEBUG_TEMPROOT": str(self.folder),
        }

    def run(self, *arguments: str, env: Mapping[str, str] | None = None) -> Ran:
        """Run pytest with ``--tileyard``."""
        report = self.folder / "report.json"
        report.unlink(missing_ok=True)
        ran = self.warm_run("--tileyard", f"--tileyard-report={report}", *arguments, env=env)
        return replace(ran, report=json.loads(report.read_text()) if report.exists() else {})

    def warm_run(self, *arguments: str, env: Mapping[str, str] | None = None) -> Ran:
        """Run pytest in a copy of the warm process."""
        environment = {**self.environment(), **(env or {})}
        words = (*OPTIONS, *arguments)
        done = warm(KERNELS_AHEAD).run(words, self.folder, environment, "pytest")
        return Ran(code=done.returncode, text=done.stdout + done.stderr)

    def plain(self, *arguments: str, env: Mapping[str, str] | None = None) -> Ran:
        """Run pytest as a shell does."""
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *OPTIONS, *arguments],
            cwd=self.folder,
            env={**self.environment(), **(env or {})},
            capture_output=True,
            text=True,
            check=False,
        )
        return Ran(code=done.returncode, text=done.stdout + done.stderr)


def make_tree(folder: Path) -> Tree:
    """An empty tree, for a run that several tests look at."""
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    return Tree(folder)


@contextmanager
def running(tree: Tree, begun: str, *arguments: str) -> Iterator[tuple[int, Future[Ran]]]:
    """A run that has written a file: its pytest's pid, from ``pytest.pid``, and how it will have ended. That
    pytest sleeps: it has read what its test has told it before.
    """
    with ThreadPoolExecutor(1) as pool:
        ran = pool.submit(tree.run, *arguments)
        wait_for(tree.folder / begun)
        pid = tree.folder / "pytest.pid"
        until = time.monotonic() + 240
        while read_state(pid) not in "SZ":
            assert time.monotonic() < until
            select.select([], [], [], 0.02)
        yield int(pid.read_text()), ran


def wait_for(path: Path) -> None:
    """Return once a file is there."""
    until = time.monotonic() + 240
    while not path.exists():
        assert time.monotonic() < until
        select.select([], [], [], 0.02)


def wait_for_end(*files: Path) -> None:
    """Return once none of the processes whose pids files hold is there."""
    until = time.monotonic() + 240
    while any(map(is_alive, files)):
        assert time.monotonic() < until
        select.select([], [], [], 0.02)


def is_alive(file: Path) -> bool:
    """Whether the process whose pid a file holds is there, and no zombie."""
    return read_state(file) != "Z"


def read_state(file: Path) -> str:
    """The state of the process whose pid a file holds, as ``/proc`` has it; a zombie's if it is gone."""
    try:
        text = Path(f"/proc/{file.read_text()}/stat").read_text()
    except FileNotFoundError:
        return "Z"
    return text.rpartition(")")[2].split()[0]
