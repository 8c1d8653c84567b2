"""Tests in processes of their own: start one, take in what it tells, turn its end into reports."""

import zlib

import msgspec
import pytest

from tileyard.model import Outcome, Record
from tileyard.pytest_plugin.active import Active
from tileyard.pytest_plugin.child import Inside
from tileyard.pytest_plugin.copied import Teller
from tileyard.pytest_plugin.forked import Forked, ForkEnd, wait_any
from tileyard.pytest_plugin.logs import out_log, take_tail
from tileyard.pytest_plugin.options import read_marked_limit
from tileyard.pytest_plugin.records import (
    FACTS,
    Compiled,
    DeviceRefused,
    DeviceWanted,
    Hold,
    HoldBegan,
    HoldEnded,
    Left,
    Reported,
    TestFacts,
    Warned,
)


class RunningTest:
    """One test in its own process. ``began`` is the run's own, on the monotonic clock."""

    def __init__(self, item: pytest.Item, active: Active, outer: object, began: float) -> None:
        log = active.folder / "logs" / f"{zlib.crc32(item.nodeid.encode()):08x}.log"
        out_log(log).unlink(missing_ok=True)
        inside = Inside(item, active, log)

        def work(teller: Teller) -> None:
            inside.run(teller, outer)

        self.item = item
        self.reports: list[pytest.TestReport] = []
        self._log = log
        self._began = began
        self._outcomes: list[Outcome] = []
        self._holds: list[Hold] = []
        self._open: HoldBegan | None = None
        self._compiled: list[str] = []
        self._left: Left | None = None
        self._message = ""
        self.copy = Forked(work, read_marked_limit(item, active.options.limit_s), log)

    def take(self) -> bool:
        """Take in what it has told; whether it has ended. ``reports`` are those that are due."""
        for message in self.copy.read():
            self._hear(message)
        if self.copy.end is None:
            return False
        self._conclude(self.copy.end)
        return True

    def raise_left(self) -> None:
        """End the whole run, if the test has asked for that."""
        if self._left is None:
            return
        if self._left.interrupted:
            raise KeyboardInterrupt
        pytest.exit(self._left.reason, self._left.code)

    def _hear(self, message: Record) -> None:
        config = self.item.config
        match message:
            case Reported(data=data, outcome=outcome):
                self._outcomes.append(outcome)
                report = config.hook.pytest_report_from_serializable(config=config, data=data)
                self.reports.append(report)
            case Warned(arguments=arguments):
                self.item.ihook.pytest_warning_recorded.call_historic(kwargs=arguments)
            case DeviceWanted():
                self.copy.pause()
            case DeviceRefused():
                self.copy.resume()
            case HoldBegan():
                self.copy.resume()
                self._open = message
            case HoldEnded(at=at):
                self._end_hold(at)
            case Compiled(kernel=kernel):
                self._compiled.append(kernel)
            case Left():
                self._left = message
            case _:
                raise AssertionError(f"a test told {message}")

    def _end_hold(self, at: float) -> None:
        if self._open is None:
            return
        began, self._open = self._open, None
        self._holds.append(
            Hold(
                test=self.item.nodeid,
                device=began.device,
                lease=began.lease,
                at=began.at - self._began,
                held_s=at - began.at,
                waited_s=began.waited_s,
                dynamic=began.dynamic,
            )
        )

    def _conclude(self, end: ForkEnd) -> None:
        # The keeper of what it still held sees its end when we do.
        self._end_hold(end.at)
        is_whole = any(report.when == "teardown" for report in self.reports)
        out_tail = take_tail(out_log(self._log))
        if not is_whole and self._left is None:
            self.reports.append(self._report_death(end, out_tail))
        if not self.reports:
            return
        facts = TestFacts(
            seconds=end.seconds - self.copy.paused_s,
            outcome=_worst(self._outcomes),
            message=self._message or _first_line(self.reports),
            log=str(self._log) if self._log.exists() else "",
            holds=tuple(self._holds),
            compiled=tuple(self._compiled),
        )
        setattr(self.reports[-1], FACTS, msgspec.to_builtins(facts))

    def _report_death(self, end: ForkEnd, out_tail: str) -> pytest.TestReport:
        """The failure of a test whose process ended before it had told everything."""
        phase = "call"
        if any(report.when == "call" or report.failed for report in self.reports):
            phase = "teardown"
        self._message = f"the test's process {end.describe(self.copy.limit_s)}"
        self._outcomes.append(Outcome.TIMEOUT if end.timed_out else Outcome.CRASHED)
        sections = [("Captured stdout", out_tail), ("Captured stderr", end.tail)]
        return pytest.TestReport(
            nodeid=self.item.nodeid,
            location=self.item.location,
            keywords=dict.fromkeys(self.item.keywords, 1),
            outcome="failed",
            longrepr="\n".join(filter(None, [self._message, end.stack])),
            when=phase,  # type: ignore[arg-type]  # one of its three words
            sections=[(f"{name} {phase}", text) for name, text in sections if text],
            duration=end.seconds,
        )


def run_all(session: pytest.Session, active: Active, outer: object, began: float) -> None:
    """Run the session's tests in its order, as many at a time as the options say."""
    workers = active.options.workers
    waiting = list(reversed(session.items))
    running: dict[Forked, RunningTest] = {}
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                item = waiting.pop()
                if workers == 1:
                    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
                test = RunningTest(item, active, outer, began)
                running[test.copy] = test
            for copy in wait_any(running):
                if running[copy].take():
                    test = running.pop(copy)
                    log_test(test, starts=workers > 1)
                    raise_stop(session)
    finally:
        for copy in running:
            copy.close()


def run_one(item: pytest.Item, active: Active, outer: object, began: float) -> None:
    """Run one test and log it."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    test = RunningTest(item, active, outer, began)
    try:
        while not test.take():
            wait_any([test.copy])
    finally:
        test.copy.close()
    log_test(test, starts=False)


def log_test(test: RunningTest, *, starts: bool) -> None:
    """Log all that is known of a test that has ended."""
    item = test.item
    if starts:
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in test.reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    test.raise_left()


def raise_stop(session: pytest.Session) -> None:
    """End the loop if that is asked for, as ``--maxfail`` does."""
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)


def _worst(outcomes: list[Outcome]) -> Outcome:
    """What the phases come to: the first failure, else a skip, else a pass."""
    for outcome in outcomes:
        if outcome not in (Outcome.PASSED, Outcome.SKIPPED):
            return outcome
    return Outcome.SKIPPED if Outcome.SKIPPED in outcomes else Outcome.PASSED


def _first_line(reports: list[pytest.TestReport]) -> str:
    """Why the first phase that failed did."""
    for report in reports:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            text = str(crash.message if crash is not None else report.longrepr).strip()
            return text.splitlines()[0][:500] if text else ""
    return ""
