"""Processes that have imported what takes long to import, and run modules in copies of themselves.

Only packages of others are imported ahead. A copy imports Tileyard itself, as a fresh process does.
"""

import gc
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

AHEAD = {
    "tileyard": ("msgspec", "numpy", "rich.console", "sqlalchemy", "typer"),
    "tileyard.__main__": ("msgspec", "numpy", "tilelang.autotuner"),
    "pytest": ("msgspec", "numpy", "pytest", "sqlalchemy", "tilelang.language"),
}
"""What is imported before a module is run."""


class WarmPython:
    """Runs ``python -m module`` one after another, each in a process of its own."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._process = subprocess.Popen(
            [sys.executable, __file__, module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(
        self, arguments: Sequence[str], folder: Path, environment: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with tempfile.TemporaryDirectory() as printed:
            paths = [Path(printed, name) for name in ("stdout", "stderr")]
            asked = {
                "arguments": [self._module, *arguments],
                "folder": str(folder),
                "environment": dict(environment),
                "cores": sorted(os.sched_getaffinity(0)),
                "printed": [str(path) for path in paths],
            }
            print(json.dumps(asked), file=self._process.stdin, flush=True)
            code = int(self._process.stdout.readline())
            stdout, stderr = (path.read_text(encoding="utf-8") for path in paths)
        return subprocess.CompletedProcess(asked["arguments"], code, stdout, stderr)

    def close(self) -> None:
        """End it, with a run that goes on."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()


_BEGUN: dict[str, WarmPython] = {}


def warm(module: str) -> WarmPython:
    """The one of this test process for a module of ``AHEAD``; ``close_all`` ends it."""
    if module not in _BEGUN:
        _BEGUN[module] = WarmPython(module)
    return _BEGUN[module]


def close_all() -> None:
    """End all that were begun."""
    while _BEGUN:
        _BEGUN.popitem()[1].close()


def become(run: Mapping[str, Any]) -> None:
    """Turn a copy into what ``python -m`` is when it begins."""
    os.chdir(run["folder"])
    os.sched_setaffinity(0, run["cores"])
    os.environ.clear()
    os.environ.update(run["environment"])
    paths = run["environment"].get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:1] = [run["folder"], *filter(None, paths)]
    sys.argv = run["arguments"]
    silence = os.open(os.devnull, os.O_RDONLY)
    printed = [os.open(path, os.O_WRONLY | os.O_CREAT) for path in run["printed"]]
    for stream, opened in enumerate((silence, *printed)):
        os.dup2(opened, stream)
        os.close(opened)


def is_copy() -> bool:
    """Whether this process is a copy by now: one is made for each run, and the first returns at their end."""
    while line := sys.stdin.readline():
        pid = os.fork()
        if not pid:
            become(json.loads(line))
            return True
        os.write(1, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    return False


if __name__ == "__main__":
    for name in AHEAD[sys.argv[1]]:
        importlib.import_module(name)
    gc.freeze()  # so that no copy has to touch, and thereby to copy, all that is there
    if is_copy():
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
