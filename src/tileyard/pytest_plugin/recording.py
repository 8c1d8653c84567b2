"""What a run came to: trials, the ledger of devices, a summary, and an exit code that tells the truth."""

import time
from collections.abc import Callable, Generator, Iterable
from pathlib import Path

import msgspec
import pytest
from _pytest.terminal import TerminalReporter

from tileyard.errors import HomeError, UsageError
from tileyard.model import WELL, Outcome
from tileyard.pytest_plugin.history import TrialWriter
from tileyard.pytest_plugin.records import (
    FACTS,
    DeviceUse,
    Hold,
    RunReport,
    StepResult,
    TestEntry,
    TestFacts,
)
from tileyard.report.suite_files import write_atomically
from tileyard.report.words import clean_line


class Recording:
    """Listens to the reports of all tests, in whatever process they ran.

    ``began`` is when the run did, on the monotonic clock; ``report`` is the file to write, or empty.
    """

    def __init__(self, run: str, began: float, writer: TrialWriter, report: str) -> None:
        self.find_steps: Callable[[], tuple[StepResult, ...]] = tuple
        self.selected: set[str] = set()
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
        """Keep what the last report of a test tells."""
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
        """Take note of a process of pytest-xdist's that died."""
        if error:
            gateway = getattr(node, "gateway", None)
            self._lost.append(f"{getattr(gateway, 'id', 'a worker')}: {clean_line(str(error))}")

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Iterable[str]) -> None:
        """Take note of what was selected."""
        self.selected.update(ids)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, object, object]:
        """Write down what the run came to; where something failed or is missing, it has failed.

        Whatever else is done at its end: pytest-xdist has been seen to return 0 over nine failures.
        """
        self._notes += [f"worker {lost} died" for lost in self._lost]
        self._notes += self._correct(session)
        interrupted = session.exitstatus == pytest.ExitCode.INTERRUPTED
        try:
            self._writer.close("interrupted" if interrupted else "done")
        except HomeError as error:
            self._notes.append(str(error))
        self._report = self._sum_up(int(session.exitstatus))
        if self._report_file is not None:
            self._write(self._report_file, self._report)
        result = yield
        self._correct(session)
        return result

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        """Say how long devices were held, and what else people should know."""
        report = self._report
        is_quiet = terminalreporter.config.option.verbose < 0
        if report is None or not (self._notes or ((report.tests or report.steps) and not is_quiet)):
            return

        def write(line: str) -> None:
            terminalreporter.write_line(clean_line(line))

        terminalreporter.write_sep("-", f"tileyard run {report.run}")
        if report.steps:
            write(_describe_steps(report))
        for use in report.devices:
            write(
                f"device {use.device} was held {use.holds} times, {use.held_s:.2f} s of "
                f"{report.wall_s:.2f} s ({use.share:.1%})"
            )
        for entry in report.tests:
            if entry.compiled and entry.outcome in WELL:
                kernels = ", ".join(entry.compiled)
                write(f"{entry.test} compiled {kernels} itself and held a device from then on")
        for note in self._notes:
            write(note)

    # ---- inside -------------------------------------------------------------------------------

    def _correct(self, session: pytest.Session) -> list[str]:
        """Take a false 0 back, and say so."""
        wrong = {
            "failed": len(self._failed),
            "without a result": len(self.selected - self._facts.keys()),
            "dead workers": len(self._lost),
        }
        if session.exitstatus != pytest.ExitCode.OK or not any(wrong.values()):
            return []
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        counts = ", ".join(f"{count} {name}" for name, count in wrong.items() if count)
        return [f"exit status 1 in place of 0: {counts}"]

    def _write(self, path: Path, report: RunReport) -> None:
        try:
            write_atomically(path, (msgspec.json.format(msgspec.json.encode(report)), b"\n"))
        except UsageError as error:
            self._notes.append(error.message)

    def _keep(self, nodeid: str, facts: TestFacts) -> None:
        self._facts[nodeid] = facts
        try:
            self._writer.write(nodeid, facts, 0.0)
        except HomeError as error:  # a recorder that fails fails no run
            self._notes.append(f"{nodeid} is not recorded: {error}")

    def _sum_up(self, exit_status: int) -> RunReport:
        wall_s = time.monotonic() - self.began
        steps = self.find_steps()
        ends = [step.at + step.seconds for step in steps]
        holds = sorted(
            (hold for facts in self._facts.values() for hold in facts.holds),
            key=lambda hold: hold.at,
        )
        tests = (_entry(nodeid, facts) for nodeid, facts in self._facts.items())
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
    """How long each device was held, by name."""
    by_device: dict[str, list[float]] = {}
    for hold in holds:
        by_device.setdefault(hold.device, []).append(hold.held_s)
    for device, times in sorted(by_device.items()):
        held_s = sum(times)
        yield DeviceUse(device=device, holds=len(times), held_s=held_s, share=held_s / wall_s)


def count_most_at_once(steps: Iterable[StepResult]) -> int:
    """How many steps were under way at the same time, at most."""
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


def _entry(nodeid: str, facts: TestFacts) -> TestEntry:
    return TestEntry(
        test=nodeid,
        outcome=facts.outcome,
        seconds=facts.seconds,
        held_s=sum(hold.held_s for hold in facts.holds),
        message=facts.message,
        compiled=facts.compiled,
    )


def _describe_steps(report: RunReport) -> str:
    reused = sum(step.reused for step in report.steps)
    failed = sum(step.outcome is not Outcome.PASSED for step in report.steps)
    counts = [f"{reused} reused"] if reused else []
    counts += [f"{failed} failed"] if failed else []
    shown = f" ({', '.join(counts)})" if counts else ""
    return (
        f"{len(report.steps)} compile steps{shown} took {report.prepare_s:.2f} s with no device: "
        f"{report.build_s:.2f} s of work, up to {report.most_builds_at_once} at once"
    )
