"""Processes that have imported what takes long to import, and run modules in copies of themselves.

Of Tileyard, what is imported ahead are the rooms of its command line and of its engine: they read
nothing when they are imported. An engine that a copy starts is a copy, too, and otherwise what it
would be: a child of its own session with an environment, signals and descriptors of its own. Workers
are fresh processes, and so is all that ``CommandLine.start`` begins.
"""

import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
import types
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

SESSIONS = ("artifact", "ci", "inspect", "kernel", "plan", "suite")
ENGINE = "tileyard.service.process"
AHEAD = {
    "tileyard": (
        *("numpy", "pydantic.fields", "pydantic.type_adapter", "rich.console"),
        *("sqlalchemy", "tileyard.cli.main", "tileyard.cli.session", "zoneinfo"),
        *(f"tileyard.cli.{name}_session" for name in SESSIONS),
        *(
            f"tileyard.service.{name}"
            for name in ("compiling", "static_building", "suites", "tuning")
        ),
        "tileyard.targets.cpu.target",
    ),
    "tileyard.__main__": ("numpy", "tilelang.autotuner", "tileyard.targets.cpu.target"),
    "pytest": (
        *("numpy", "pytest", "sqlalchemy", "tilelang.language"),
        *("tileyard.pytest_plugin.plugin", "tileyard.targets.cpu.target"),
    ),
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
            argv = [self._module, *arguments]
            asked = {
                "arguments": argv,
                "folder": str(folder),
                "environment": dict(environment),
                "cores": sorted(os.sched_getaffinity(0)),
                "printed": [str(path) for path in paths],
            }
            print(json.dumps(asked), file=self._process.stdin, flush=True)
            code = int(self._process.stdout.readline())
            stdout, stderr = (path.read_text(encoding="utf-8") for path in paths)
        return subprocess.CompletedProcess(argv, code, stdout, stderr)

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


class EngineCopy(subprocess.Popen[bytes]):
    """What ``subprocess.Popen`` is; an engine of this Python is a copy of this process."""

    def __init__(  # noqa: PLR0913 - what subprocess.Popen is given
        self,
        argv: Sequence[str],
        *,
        stdin: int,
        stdout: int,
        env: Mapping[str, str],
        pass_fds: Sequence[int],
        start_new_session: bool,
    ) -> None:
        is_ours = tuple(argv) == (sys.executable, "-P", "-m", ENGINE)
        is_same = env.get("PYTHONPATH") == os.environ.get("PYTHONPATH")
        super().__init__(
            argv,
            stdin=stdin,
            stdout=stdout,
            env=env,
            pass_fds=pass_fds,
            start_new_session=start_new_session,
            preexec_fn=partial(become_engine, env, pass_fds) if is_ours and is_same else None,
        )


def become_engine(environment: Mapping[str, str], descriptors: Sequence[int]) -> NoReturn:
    """Be the engine, from the moment at which its program would be executed to its end."""
    above = 3
    for kept in sorted(descriptors):
        os.closerange(above, kept)
        above = kept + 1
    os.closerange(above, os.sysconf("SC_OPEN_MAX"))
    os.environ.clear()
    os.environ.update(environment)
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # as Python does when it begins
        signal.signal(number, signal.SIG_IGN)
    sys.argv[1:] = []
    del sys.path[0]  # what -P does
    try:
        runpy.run_module(ENGINE, run_name="__main__", alter_sys=True)
    finally:  # as the interpreter itself does
        error = sys.exception()
        if error is not None and not isinstance(error, SystemExit):
            traceback.print_exception(error)
        threading._shutdown()  # type: ignore[attr-defined]
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        os._exit(int(error is not None))


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
    ours = importlib.import_module("tileyard")
    ours.__doc__ = f"{ours.__doc__} PYTEST_DONT_REWRITE"  # or pytest warns that it cannot any more
    gc.freeze()  # so that no copy has to touch, and thereby to copy, all that is there
    if is_copy():
        if launch := sys.modules.get("tileyard.processes.launch"):
            copying = types.SimpleNamespace(**{**vars(subprocess), "Popen": EngineCopy})
            launch.subprocess = copying  # type: ignore[attr-defined]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
