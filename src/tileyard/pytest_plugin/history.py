"""What the store remembers of tests: how long they took, and every time they are run."""

import statistics
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tileyard.events import CaseEnded, RunEnded, RunStarted, StopReason
from tileyard.model import Trial
from tileyard.pytest_plugin.records import TestFacts
from tileyard.store.events import EventLog, run_file
from tileyard.store.run_times import RunTimeQuery
from tileyard.store.trials import TrialStore

TARGET = "pytest"
"""The target of the trials of tests."""


def case_of(nodeid: str) -> str:
    """A test as a case of a suite, ``testcase/name``: the testcase is its file."""
    file, _, name = nodeid.partition("::")
    return f"{file}/{name or 'test'}"


def read_durations(store: TrialStore) -> dict[str, float]:
    """How long tests take, in seconds by case: the median of the latest runs.

    A case's name without its parameters has the median over all of these, which stands for those
    that were not run before.
    """
    by_case: dict[str, list[float]] = {}
    by_function: dict[str, list[float]] = {}
    for run in store.list_run_times(RunTimeQuery(target=TARGET)):
        if run.run_s > 0:
            by_case.setdefault(run.case, []).append(run.run_s)
            by_function.setdefault(run.case.partition("[")[0], []).append(run.run_s)
    return {name: statistics.median(times) for name, times in {**by_function, **by_case}.items()}


def sort_longest_first(
    items: list[pytest.Item], durations: Mapping[str, float], processes: int
) -> None:
    """Put the longest first, and before them what was never run; ``processes`` share them.

    pytest-xdist hands each of several processes two tests to begin with, in order: so that none has
    two long ones, each gets one of the longest and one of the shortest.
    """
    items.sort(key=lambda item: -_expect_s(item.nodeid, durations))
    if processes > 1 and len(items) >= 2 * processes:
        longest, rest = items[:processes], items[processes:]
        shortest = rest[-processes:]
        pairs = [item for pair in zip(longest, shortest, strict=True) for item in pair]
        items[:] = [*pairs, *rest[: len(rest) - processes]]


def _expect_s(nodeid: str, durations: Mapping[str, float]) -> float:
    case = case_of(nodeid)
    return durations.get(case, durations.get(case.partition("[")[0], float("inf")))


class TrialWriter:
    """Writes a run's tests down: in its event stream, and in the store. A run without any leaves no trace."""

    def __init__(self, home: Path, store: TrialStore, run: str) -> None:
        self._home = home
        self._store = store
        self._run = run
        self._count = 0
        self._log: EventLog | None = None

    def write(self, nodeid: str, facts: TestFacts, build_s: float) -> None:
        """One test that has ended."""
        if self._log is None:
            self._log = EventLog(self._home, self._run)
            self._log.append(
                RunStarted(run=self._run, at=time.time(), title="pytest", target=TARGET, devices=())
            )
        self._count += 1
        hold = facts.holds[-1] if facts.holds else None
        trial = Trial(
            id=f"{self._run}.{self._count}",
            run=self._run,
            case=case_of(nodeid),
            batch="",
            kernel=nodeid.rpartition("::")[2].partition("[")[0],
            arguments={},
            config={},
            target=TARGET,
            outcome=facts.outcome,
            device=hold.device if hold else "",
            lease=hold.lease if hold else 0,
            message=facts.message,
            started_at=time.time() - facts.seconds,
            build_s=build_s,
            run_s=facts.seconds,
            log=facts.log,
        )
        self._log.append(CaseEnded(trial=trial))
        self._store.record(trial)

    def close(self, reason: StopReason) -> None:
        """The run is over."""
        if self._log is None:
            run_file(self._home, self._run).unlink(missing_ok=True)
        else:
            self._log.append(RunEnded(run=self._run, at=time.time(), reason=reason))
            self._log.close()
