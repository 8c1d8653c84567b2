"""Notes what each test costs, what it shares with others, and which lines of the source it runs.

A plugin for ``tools/record.py``: ``-p tests.recording``, with ``TEST_NOTES`` the folder in which each test
process leaves its notes. Fixtures that several tests share are noted apart from these, as is the start of
each warm process.
"""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.costs import read_cpu_s
from tests.warm_python import WarmPython
from tools.recorder import LIBRARY, VARIABLE

FOLDER = "TEST_NOTES"
ROOT = int(os.environ.get("TILEYARD_TEST_ROOT", os.getpid()))
run_warm = WarmPython.run


class Notes(msgspec.Struct):
    """What a test process has noted, by test without its parameters, or by what tests share. ``lines`` has a
    bit for each line of the source, in the order of the recording.
    """

    cpu_s: dict[str, float] = {}
    needs: dict[str, set[str]] = {}
    lines: dict[str, bytes] = {}
    tests: set[str] = set()
    slow: set[str] = set()
    passed: set[str] = set()
    failed: set[str] = set()


class Noting:
    """Gives all that is spent and run to whom it is done for, one after another."""

    def __init__(self, path: Path, lines: np.ndarray[Any, np.dtype[np.uint8]] | None) -> None:
        self.notes = Notes()
        self._path = path
        self._lines = lines
        self._owner = ""
        self._spent_s = read_cpu_s(ROOT)

    def turn_to(self, owner: str) -> str:
        """Give what comes from now on to this owner; the one before."""
        before, self._owner = self._owner, owner
        spent_s = read_cpu_s(ROOT)
        self.notes.cpu_s[before] = self.notes.cpu_s.get(before, 0.0) + spent_s - self._spent_s
        self._spent_s = spent_s
        if self._lines is not None:
            ran = np.packbits(self._lines)
            self._lines[:] = 0
            ran |= np.frombuffer(self.notes.lines.get(before, bytes(len(ran))), np.uint8)
            self.notes.lines[before] = ran.tobytes()
        return before

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Function) -> Iterator[None]:
        """Note a test."""
        test = item.nodeid.partition("[")[0]
        self.notes.tests.add(test)
        if item.get_closest_marker("slow"):
            self.notes.slow.add(test)
        found = item._fixtureinfo.name2fixturedefs.values()
        shared = {name_fixture(one[-1]) for one in found if one[-1].scope != "function"}
        self.notes.needs.setdefault(test, set()).update(shared)
        self.turn_to(test)
        try:
            return (yield)
        finally:
            self.turn_to("")

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
        """Note a fixture that tests share."""
        if fixturedef.scope == "function":
            return (yield)
        before = self.turn_to(name_fixture(fixturedef))
        try:
            return (yield)
        finally:
            self.turn_to(before)

    def run_warm(
        self,
        warm: WarmPython,
        arguments: Sequence[str],
        folder: Path,
        env: Mapping[str, str],
        *module: str,
    ) -> CompletedProcess[str]:
        """Run a command in a copy of a warm process, whose start is noted apart."""
        name = f"warm {warm._module}"
        if name not in self.notes.cpu_s:
            before = self.turn_to(name)
            run_warm(warm, ("--version",), folder, env)
            self.turn_to(before)
        self.notes.needs.setdefault(self._owner, set()).add(name)
        return run_warm(warm, arguments, folder, env, *module)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note how a test ended."""
        test = report.nodeid.partition("[")[0]
        if report.failed:
            self.notes.failed.add(test)
        elif report.when == "call" and report.passed:
            self.notes.passed.add(test)

    def pytest_sessionfinish(self) -> None:
        """Leave the notes."""
        self._path.write_bytes(msgspec.msgpack.encode(self.notes))


def name_fixture(fixture: pytest.FixtureDef[Any]) -> str:
    """A fixture's name, with the place of its definition."""
    return f"{fixture.baseid}::{fixture.argname}"


def pytest_configure(config: pytest.Config) -> None:
    """Begin to note, but not in a process that only hands tests out."""
    worker = getattr(config, "workerinput", {}).get("workerid", "")
    if not worker and config.getoption("dist", "no") != "no":
        return
    lines = note_apart(worker) if VARIABLE in os.environ else None
    noting = Noting(Path(os.environ[FOLDER], f"notes-{worker}"), lines)
    config.pluginmanager.register(noting)

    def run(warm: WarmPython, *given: Any) -> CompletedProcess[str]:  # noqa: ANN401 - as its own
        return noting.run_warm(warm, *given)

    WarmPython.run = run  # type: ignore[method-assign]


def note_apart(worker: str) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Have this process, and those that it starts, note lines in a file of their own; those that run in
    calls."""
    shared = Path(os.environ[VARIABLE])
    own = shared.with_name(f"{shared.name}-{worker}")
    own.write_bytes(bytes(shared.stat().st_size))
    own.chmod(0o666)
    os.environ[VARIABLE] = str(own)
    sys.modules[LIBRARY].switch_to(str(own))
    noted = np.memmap(own, np.uint8, "r+")
    return noted[len(noted) // 2 :]
