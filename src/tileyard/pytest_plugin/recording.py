"""Records the results of a run: trials, the ledger of devices, a summary, and a correct exit code.
Also reads earlier results, for the order of tests.
"""

import signal
import statistics
import sys
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from pathlib import Path

import msgspec
import pytest
from _pytest.terminal import TerminalReporter

from tileyard.base.errors import HomeError, UsageError
from tileyard.base.events import CaseEnded, RunEnded, RunStarted, StopReason
from tileyard.base.model import INFRASTRUCTURE, WELL, Outcome, Trial
from tileyard.base.wording import count_of
from tileyard.pytest_plugin.far_records import (
    FACTS,
    INTERRUPTED,
    DeviceUse,
    Hold,
    RunReport,
    StepResult,
    TestEntry,
    TestFacts,
)
from tileyard.service.revision import find_revision
from tileyard.show.guarding import escape
from tileyard.show.words import clean_line
from tileyard.store.base import Store
from tileyard.store.events import EventLog, run_file
from tileyard.verbs.test.view.words import write_atomically

TARGET = "pytest"
"""The target of the trials of tests."""
SHOWN = 3
"""Number of tests of a kind that the summary names."""


def case_of(nodeid: str) -> str:
    """A test as a case of a suite, ``testcase/name``: the testcase is its file."""
    file, _, name = nodeid.partition("::")
    return f"{file}/{name or 'test'}"


def read_durations(store: Store) -> dict[str, float]:
    """Durations of tests in seconds by case, the median of the latest runs. A name without
    parameters has that over all, for those that never ran.
    """
    by_case: dict[str, list[float]] = {}
    by_function: dict[str, list[float]] = {}
    for run in store.list_run_times(TARGET):
        if run.run_s > 0:
            by_case.setdefault(run.case, []).append(run.run_s)
            by_function.setdefault(run.case.partition("[")[0], []).append(run.run_s)
    return {name: statistics.median(times) for name, times in {**by_function, **by_case}.items()}


def sort_longest_first(
    items: list[pytest.Item], durations: Mapping[str, float], processes: int
) -> None:
    """Sort the longest first, tests that never ran before them, for ``processes``. pytest-xdist
    first gives each two tests: one of the longest, one of the shortest.
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
    """Records a run's tests: in its event stream, and in the store, with the revision of the files in
    ``root``. A run without tests leaves no trace.
    """

    def __init__(self, home: Path, store: Store, run: str, root: Path) -> None:
        self._home = home
        self._root = root
        self._revision = ""
        self._store = store
        self._run = run
        self._count = 0
        self._log: EventLog | None = None

    def write(self, nodeid: str, facts: TestFacts) -> None:
        """Record one test that has ended."""
        if self._log is None:
            self._revision = find_revision(self._root)
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
            revision=self._revision,
            kernel=nodeid.rpartition("::")[2].partition("[")[0],
            testcase=nodeid.partition("::")[0],
            target=TARGET,
            outcome=facts.outcome,
            device=hold.device if hold else "",
            lease=hold.lease if hold else 0,
            message=facts.message,
            started_at=time.time() - facts.seconds,
            run_s=facts.seconds,
            log=facts.log,
        )
        self._log.append(CaseEnded(trial=trial))
        self._store.record(trial)

    def close(self, reason: StopReason) -> None:
        """Record the end of the run."""
        if self._log is None:
            run_file(self._home, self._run).unlink(missing_ok=True)
        else:
            self._log.append(RunEnded(run=self._run, at=time.time(), reason=reason))
            self._log.close()


class Recording:
    """Receives the reports of tests in all processes; ``report``: file to write, if any."""

    def __init__(self, run: str, began: float, writer: TrialWriter, report: str) -> None:
        self.find_steps: Callable[[], tuple[StepResult, ...]] = tuple
        self.selected: set[str] = set()
        self.borrowed: list[Hold] = []
        self.ran_whole: dict[str, str] = {}
        self.interrupted: dict[str, TestFacts] = {}
        self._run = run
        self.began = began
        self._writer = writer
        self._report_file = Path(report) if report else None
        self._failed: set[str] = set()
        self._facts: dict[str, TestFacts] = {}
        self._lost: list[str] = []
        self._notes: list[str] = []
        self._report: RunReport | None = None

    # ---- hooks --------------------------------------------------------------------------------

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the facts in the last report of a test."""
        if report.failed:
            self._failed.add(report.nodeid)
        data = getattr(report, FACTS, None)
        if data is not None:
            self._keep(report.nodeid, msgspec.convert(data, TestFacts))
        elif report.when not in ("setup", "call", "teardown"):  # pytest-xdist lost its process
            message = str(report.longrepr).splitlines()[0]
            self._keep(
                report.nodeid, TestFacts(seconds=0.0, outcome=Outcome.CRASHED, message=message)
            )

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object, error: object) -> None:
        """Record a process of pytest-xdist's that died."""
        if error:
            gateway = getattr(node, "gateway", None)
            self._lost.append(f"{getattr(gateway, 'id', 'a worker')}: {clean_line(str(error))}")

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Iterable[str]) -> None:
        """Record the selected tests."""
        self.selected.update(ids)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_keyboard_interrupt(self) -> Generator[None, object, object]:
        """A second Ctrl-C does not end what pytest does about the first one, which takes it a while."""
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            return (yield)
        finally:
            signal.signal(signal.SIGINT, before)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, object, object]:
        """Record a run's results; failed if something failed or is missing, whatever pytest-xdist says."""
        if isinstance(sys.exception(), KeyboardInterrupt):  # a second one; pytest has no status yet
            session.exitstatus = pytest.ExitCode.INTERRUPTED
        self._notes += [f"worker {lost} died" for lost in self._lost]
        self._notes += self._correct(session)
        interrupted = session.exitstatus == pytest.ExitCode.INTERRUPTED
        try:
            self._writer.close("interrupted" if interrupted else "done")
        except HomeError as error:
            self._notes.append(str(error))
        self._report = self._sum_up(int(session.exitstatus))
        if self._report_file is not None:
            data = msgspec.json.format(msgspec.json.encode(self._report))
            try:
                write_atomically(self._report_file, (data, b"\n"))
            except UsageError as error:
                self._notes.append(error.message)
        result = yield
        self._correct(session)
        return result

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        """Report how long devices were held, and other facts for the user."""
        report = self._report
        is_quiet = terminalreporter.config.option.verbose < 0
        if report is None or not (self._notes or ((report.tests or report.steps) and not is_quiet)):
            return

        def write(line: str) -> None:
            terminalreporter.write_line(escape(clean_line(line)))

        terminalreporter.write_sep("-", f"tileyard run {report.run}")
        if report.steps:
            write(_describe_steps(report))
        for use in report.devices:
            write(
                f"device {use.device} was held {count_of(use.holds, 'time')}, {use.held_s:.2f} s of "
                f"{report.wall_s:.2f} s ({use.share:.1%})"
            )
        leased = {hold.test for hold in report.holds if hold.dynamic}
        for entry in report.tests:
            did = [f"compiled {', '.join(entry.compiled)} itself"] if entry.compiled else []
            if entry.test in leased:
                did.append("held a device from its first use outside of a block on")
            if did and entry.outcome in WELL:
                write(f"{entry.test} {' and '.join(did)}")
        if self.ran_whole:
            write(f"{count_of(len(self.ran_whole), 'test')} ran whole on a borrowed device:")
            for test, reason in sorted(self.ran_whole.items())[:SHOWN]:
                write(f"  {test}: {reason}")
        if faults := sum(entry.outcome in INFRASTRUCTURE for entry in report.tests):
            write(
                f"{count_of(faults, 'test')} failed for an infrastructure reason:"
                " a device, a queue or this host"
            )
        for test in self.interrupted:
            write(f"{test} was running when the run ended")
        for note in self._notes:
            write(note)

    # ---- inside -------------------------------------------------------------------------------

    def _correct(self, session: pytest.Session) -> list[str]:
        """Take a false 0 back, and say so."""
        missing = len(self.selected - self._facts.keys())
        wrong = [
            f"{count_of(len(self._failed), 'test')} failed" if self._failed else "",
            f"{count_of(missing, 'test')} {'has' if missing == 1 else 'have'} no result"
            if missing
            else "",
            f"{count_of(len(self._lost), 'worker')} died" if self._lost else "",
        ]
        if session.exitstatus != pytest.ExitCode.OK or not any(wrong):
            return []
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        counts = "; ".join(said for said in wrong if said)
        return [f"exit status changed from 0 to 1: {counts}"]

    def _keep(self, nodeid: str, facts: TestFacts) -> None:
        self._facts[nodeid] = facts
        try:
            self._writer.write(nodeid, facts)
        except HomeError as error:  # a recorder that fails fails no run
            self._notes.append(f"{nodeid} is not recorded: {error}")

    def _sum_up(self, exit_status: int) -> RunReport:
        wall_s = time.monotonic() - self.began
        steps = self.find_steps()
        ends = [step.at + step.seconds for step in steps]
        ended = {**self.interrupted, **self._facts}
        leased = [hold for facts in ended.values() for hold in facts.holds]
        holds = sorted([*leased, *self.borrowed], key=lambda hold: hold.at)
        tests = (
            TestEntry(
                test=nodeid,
                outcome=facts.outcome if nodeid in self._facts else INTERRUPTED,
                seconds=facts.seconds,
                held_s=sum(hold.held_s for hold in facts.holds),
                message=facts.message,
                compiled=facts.compiled,
            )
            for nodeid, facts in ended.items()
        )
        return RunReport(
            run=self._run,
            exit_status=exit_status,
            wall_s=wall_s,
            prepare_s=max(ends) - min(step.at for step in steps) if steps else 0.0,
            build_s=sum(step.seconds for step in steps),
            most_builds_at_once=count_most_at_once(steps),
            steps=steps,
            devices=tuple(measure_use(holds, wall_s)),
            holds=tuple(holds),
            tests=tuple(tests),
        )


def measure_use(holds: Iterable[Hold], wall_s: float) -> Iterable[DeviceUse]:
    """Time for which each device was held, by name."""
    by_device: dict[str, list[float]] = {}
    for hold in holds:
        by_device.setdefault(hold.device, []).append(hold.held_s)
    for device, times in sorted(by_device.items()):
        held_s = sum(times)
        yield DeviceUse(device=device, holds=len(times), held_s=held_s, share=held_s / wall_s)


def count_most_at_once(steps: Iterable[StepResult]) -> int:
    """Maximum number of steps in progress at the same time."""
    changes = [
        change
        for step in steps
        if not step.reused
        for change in ((step.at, 1), (step.at + step.seconds, -1))
    ]
    most = now = 0
    for _, change in sorted(changes):
        now += change
        most = max(most, now)
    return most


def _describe_steps(report: RunReport) -> str:
    reused = sum(step.reused for step in report.steps)
    failed = sum(step.outcome is not Outcome.PASSED for step in report.steps)
    counts = [f"{reused} reused"] if reused else []
    counts += [f"{failed} failed"] if failed else []
    unchecked = sum(bool(step.unchecked) for step in report.steps)
    counts += [f"{unchecked} not checked for races and undefined accesses"] if unchecked else []
    shown = f" ({', '.join(counts)})" if counts else ""
    return (
        f"{count_of(len(report.steps), 'compile step')}{shown} took {report.prepare_s:.2f} s with no device: "
        f"{report.build_s:.2f} s of work, up to {report.most_builds_at_once} at once"
    )
