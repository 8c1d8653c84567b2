"""What each test costs: CPU seconds of all its processes, processes that were started, kernels that were
compiled.

CPU seconds are those of the whole tree below ``tools/reaping.py``, orphans included. Starts are counted where
a process is started: in the test process and in copies of a warm one; a fresh process counts once, whatever
it starts itself. A budget (``tests/budget.toml``) says how many each file may start and compile; CPU seconds
depend on the machine, and are only printed.
"""

import contextlib
import os
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.warm_python import count_starts

SLACK = 1.1
VARYING = 3.0
"""The same for a budget that varies."""
SPARE = 4
"""Starts, and kernels, that each file may have beyond its budget and the slack: some things are done again
on a slow machine."""
FREE = 6
"""Starts, and kernels, that a file without a budget may have."""
TICKS = os.sysconf("SC_CLK_TCK")


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of a test, or of a file. A budget ``varies`` if its tests measure again what other work on the
    machine disturbed.
    """

    cpu_s: float = 0.0
    started: int = 0
    compiled: int = 0
    varies: bool = False

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            cpu_s=self.cpu_s + other.cpu_s,
            started=self.started + other.started,
            compiled=self.compiled + other.compiled,
        )


def read_cpu_s(pid: int) -> float:
    """The CPU time of a process, of those below it that live, and of those that have ended and were waited
    for."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - each test waits for it
    except OSError:  # it has ended: its parent has its time
        return 0.0
    below: list[str] = []
    for thread in threads:
        with contextlib.suppress(OSError):  # the thread has ended
            below += Path(f"/proc/{pid}/task/{thread}/children").read_text().split()
    own_s = sum(map(int, fields[11:15])) / TICKS
    return own_s + sum(read_cpu_s(int(child)) for child in below)


class Counting:
    """Adds to each report of a teardown what its test has cost since the one before."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()
        path.chmod(0o666)  # some tests start processes as other users
        self._root = int(os.environ.pop("TILEYARD_TEST_ROOT", os.getpid()))
        self._cpu_s = read_cpu_s(self._root)
        self._seen = 0
        count_starts(str(path))

    def pytest_unconfigure(self) -> None:
        """Remove the file of starts."""
        self._path.unlink(missing_ok=True)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Iterator[None]:
        """Measure at the end of a teardown."""
        report: Any = yield
        if call.when == "teardown":
            cpu_s = read_cpu_s(self._root)
            letters = self._path.read_bytes()[self._seen :]
            cost = Cost(
                cpu_s=round(cpu_s - self._cpu_s, 2),
                started=letters.count(b"p"),
                compiled=letters.count(b"c"),
            )
            self._cpu_s, self._seen = cpu_s, self._seen + len(letters)
            report.user_properties.append(("cost", msgspec.to_builtins(cost)))
        return report


@dataclass(frozen=True)
class Excess:
    """A file that did more than its budget allows."""

    file: str
    what: str
    count: int
    budget: int

    def __str__(self) -> str:
        return f"{self.file}: {self.count} {self.what}, {self.budget} budgeted"


class Costs:
    """Adds up what the tests of a run have cost."""

    def __init__(self, budget: Mapping[str, Cost], file: Path | None, *, has_table: bool) -> None:
        self._budget = budget
        self._file = file
        self._has_table = has_table
        self.tests: dict[str, Cost] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take what a test has cost."""
        for name, value in report.user_properties:
            if name == "cost" and report.when == "teardown":
                test = report.nodeid.partition("[")[0]
                cost = msgspec.convert(value, Cost)
                self.tests[test] = self.tests.get(test, Cost()) + cost

    def add_up(self, parts: int | None) -> dict[str, Cost]:
        """The cost of each file, or of each folder of so many parts."""
        sums: dict[str, Cost] = {}
        for test, cost in self.tests.items():
            name = "/".join(test.partition("::")[0].split("/")[:parts])
            sums[name] = sums.get(name, Cost()) + cost
        return sums

    def list_excesses(self) -> list[Excess]:
        """The files that started or compiled more than they may."""
        found = []
        for file, cost in self.add_up(None).items():
            budget = self._budget.get(file)
            for what in ("started", "compiled"):
                count = getattr(cost, what)
                slack = VARYING if budget and budget.varies else SLACK
                allowed = getattr(budget, what) * slack + SPARE if budget else FREE
                if count > allowed:
                    found.append(Excess(file, what, count, getattr(budget, what, 0)))
        return found

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A run fails that starts or compiles more than it may."""
        if self._file is not None:
            self._file.write_bytes(msgspec.json.encode(self.tests))
        if self._budget and session.exitstatus == 0 and self.list_excesses():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the sum, the files that grew most, and excesses; the tables where they were asked for."""
        write = terminalreporter.write_line
        files = self.add_up(None)
        total = sum(files.values(), Cost())
        write(f"cost: {describe(total)}")
        grown = Counter(
            {
                f: round(c.cpu_s - self._budget[f].cpu_s, 1)
                for f, c in files.items()
                if f in self._budget
            }
        )
        for file, more_s in grown.most_common(10) if total.cpu_s > 60 else ():
            write(f"  {more_s:+7.1f} s  {file} ({files[file].cpu_s:.1f} s)")
        for excess in self.list_excesses() if self._budget else ():
            write(f"over budget (tests/budget.toml): {excess}")
        if self._has_table:
            for title, costs in (
                ("folders", self.add_up(2)),
                ("files", files),
                ("the 50 dearest tests", self.tests),
            ):
                most = 50 if costs is self.tests else None
                write(f"\n{'CPU s':>8} {'started':>8} {'compiled':>9}  {title}")
                dearest = sorted(costs.items(), key=lambda pair: -pair[1].cpu_s)[:most]
                for name, cost in dearest:
                    write(f"{cost.cpu_s:8.1f} {cost.started:8} {cost.compiled:9}  {name}")


def describe(cost: Cost) -> str:
    """A cost in words."""
    return f"{cost.cpu_s:.0f} CPU seconds, {cost.started} processes started, {cost.compiled} kernels compiled"


def read_budget(path: Path) -> dict[str, Cost]:
    """The budget of each file."""
    return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), dict[str, Cost])
