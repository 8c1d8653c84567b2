"""Runs tests in processes of their own: starts one, receives its messages, turns its end into reports."""

import os
import pickle
import time
import traceback
import zlib
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from _pytest.runner import runtestprotocol

from tileyard.base.errors import NestedLeaseError, WorkerStartError
from tileyard.base.model import INFRASTRUCTURE, Outcome, Record
from tileyard.base.modes import open_file
from tileyard.base.wording import shorten_path
from tileyard.devices.holding import QueueTimeoutError
from tileyard.frontend.blame import is_users
from tileyard.pytest_plugin.active import Active
from tileyard.pytest_plugin.far_calls import FarDeathError
from tileyard.pytest_plugin.far_records import (
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
    TurnedTo,
    Warned,
)
from tileyard.pytest_plugin.forked import (
    Forked,
    ForkEnd,
    Teller,
    allow_threads,
    make_lane,
    out_log,
    take_tail,
    wait_any,
)
from tileyard.pytest_plugin.options import read_marked_limit
from tileyard.pytest_plugin.tilelang_jit import watch_compiles, watch_uses
from tileyard.show.guarding import escape


def take_place(config: pytest.Config, outer: object, inner: object, log: Path) -> None:
    """In a copy: replace the plugin that has copied itself with ``inner``, and print to files of its own."""
    plugins = config.pluginmanager
    plugins.unregister(outer)
    for plugin in plugins.get_plugins():
        if type(plugin).__name__ == "WorkerInteractor":  # its channel is the original's
            plugins.unregister(plugin)
    reporting = config.hook.pytest_runtest_logreport  # reports are the original's to log
    for listener in reporting.get_hookimpls():
        if listener.plugin_name != "session":  # which counts failures, for -x
            reporting._remove_plugin(listener.plugin)  # noqa: SLF001 - they keep their other hooks
    plugins.register(inner)
    _renew_capture(config, log)


def _renew_capture(config: pytest.Config, log: Path) -> None:
    """Capture for this process alone, into files that are there when it has crashed."""
    manager = config.pluginmanager.getplugin("capturemanager")
    if manager is None or not manager.is_globally_capturing():
        return
    manager.stop_global_capturing()
    manager.start_global_capturing()
    capturing = manager._global_capturing  # noqa: SLF001 - pytest has no other way to its files
    for stream, path in ((capturing.out, out_log(log)), (capturing.err, log)):
        with suppress(AttributeError, OSError, ValueError):  # captured in memory only
            fd = open_file(path, os.O_RDWR | os.O_CREAT)
            os.dup2(fd, stream.tmpfile.fileno(), inheritable=False)
            os.close(fd)
    manager.suspend_global_capture()


# ---- in a test's own process --------------------------------------------------------------------


class Inside:
    """The plugin of a test's own process. ``run`` is everything that the process does."""

    _item: pytest.Item  # that is run now
    _outcome: Outcome  # of the report that was made last
    _failure: tuple[Outcome, str] | None

    def __init__(self, active: Active, log: Path, teller: Teller) -> None:
        self._active = active
        self._log = log
        self._teller = teller
        self._holdings = active.enter(teller)
        self._has_begun = self._is_calling = False
        self._broken = ""

    def run(
        self,
        items: Sequence[pytest.Item],
        outer: object,
        goes_on: Callable[[pytest.Item], bool] = bool,
    ) -> None:
        """Run the tests, in turn, and report each result. ``outer`` is the plugin of the copied
        process; ``goes_on`` decides whether to begin a further test.
        """
        take_place(items[0].config, outer, self, self._log)
        self._has_begun = True
        allow_threads(len(self._active.settings.cores), self._active.processes)
        watch_compiles(self._begin_compile)
        if self._active.options.dynamic == "lease":
            watch_uses(self._holdings.use)
        try:
            for item, following in zip(items, [*items[1:], None], strict=True):
                self._item, self._failure = item, self._active.find_failure(item)
                self._broken = ""
                self._teller.tell(TurnedTo(test=item.nodeid, at=time.monotonic()))
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                self._holdings.close()
                if following is None:
                    break
                if not (goes_on(following) and self._holdings.is_whole):
                    item.session._setupstate.teardown_exact(None)  # noqa: SLF001 - it has no other way
                    break
        except pytest.exit.Exception as error:
            self._teller.tell(Left(reason=str(error), code=error.returncode))
        except KeyboardInterrupt:
            self._teller.tell(Left(reason="interrupted", interrupted=True))
        finally:
            self._holdings.close()

    # ---- hooks --------------------------------------------------------------------------------

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        """Run it without logging: the original logs the reports."""
        runtestprotocol(item, log=False, nextitem=nextitem)
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Do not begin a test whose compile step failed."""
        if self._failure is not None:
            pytest.fail(self._failure[1], pytrace=False)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self) -> Generator[None, object, object]:
        """What was taken as it was used is given back with the last line of the test's function."""
        self._is_calling = True
        try:
            return (yield)
        finally:
            self._is_calling = False
            self._holdings.end_use()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Tell the report of every phase as it is made; that of a subtest is not complete yet."""
        report = yield
        if self._is_calling:
            self._outcome = self._judge(report, call)
            return report
        if report.when == "call" and report.passed:
            # pytest fails a test for its subtests once it asks for its status, in this process alone
            item.config.hook.pytest_report_teststatus(report=report, config=item.config)
        if report.when == "call" and report.passed and self._broken:
            report.outcome = "failed"
            report.longrepr = self._broken
        self._outcome = self._judge(report, call)
        error = call.excinfo.value if call.excinfo is not None else None
        if self._outcome in INFRASTRUCTURE or isinstance(error, FarDeathError):
            report.longrepr = str(error)  # the line that asked for a device has no part in it
        self.pytest_runtest_logreport(report)
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Tell a report; subtests log theirs."""
        config = self._item.config
        data = config.hook.pytest_report_to_serializable(config=config, report=report)
        self._teller.tell(Reported(data=_plain(data), outcome=self._outcome))

    @pytest.hookimpl(tryfirst=True)
    def pytest_warning_recorded(
        self,
        warning_message: Any,  # noqa: ANN401 - pytest's
        when: str,
        nodeid: str,
        location: tuple[str, int, str] | None,
    ) -> None:
        """Send every warning that can be sent."""
        if not self._has_begun:
            return  # a new plugin receives all warnings from before its registration
        # Its source is an object of the test's.
        warning_message.source = None
        arguments = {
            "warning_message": warning_message,
            "when": when,
            "nodeid": nodeid,
            "location": location,
        }
        with suppress(pickle.PicklingError, TypeError, AttributeError):
            self._teller.tell(Warned(arguments=arguments))

    # ---- compiling while the test runs ----------------------------------------------------------

    def _begin_compile(self, kernel: str, build: str) -> None:
        __tracebackhide__ = True
        if build in self._active.failed_builds:
            return  # was tried ahead, and is about to fail again
        self._teller.tell(Compiled(kernel=kernel))
        if self._active.options.dynamic == "lease":
            return
        self._broken = (
            f"{self._item.nodeid} compiles {kernel} while it runs{_place()} "
            "(declare it with @pytest.mark.tile_kernel, or allow it with --tileyard-dynamic=lease)"
        )
        pytest.fail(self._broken, pytrace=False)

    # ---- inside -------------------------------------------------------------------------------

    def _judge(self, report: pytest.TestReport, call: pytest.CallInfo[None]) -> Outcome:
        if report.skipped:
            return Outcome.PASSED if hasattr(report, "wasxfail") else Outcome.SKIPPED
        if report.passed:
            return Outcome.PASSED
        if self._failure is not None and report.when == "setup":
            return self._failure[0]
        if self._broken:
            return Outcome.COMPILE_ERROR
        match call.excinfo.value if call.excinfo is not None else None:
            case None | AssertionError() | pytest.fail.Exception():
                return Outcome.MISMATCH
            case QueueTimeoutError():
                return Outcome.QUEUE_TIMEOUT
            case WorkerStartError() as error if not isinstance(error, NestedLeaseError):
                return Outcome.INFRA_ERROR
            case FarDeathError() as error:
                return error.outcome
            case MemoryError():
                return Outcome.OUT_OF_MEMORY
            case _:
                return Outcome.RUNTIME_ERROR


def _place() -> str:
    """The current location in the user's own code, as part of a sentence."""
    users = [frame for frame in traceback.extract_stack() if is_users(frame.filename)]
    return f", at {shorten_path(users[-1].filename)}:{users[-1].lineno}" if users else ""


def _plain(data: dict[str, Any]) -> dict[str, Any]:
    """A report that can be sent: properties that are not plain become text."""
    try:
        pickle.dumps(data)
    except (pickle.PicklingError, TypeError, AttributeError):
        shown = [(str(name), str(value)) for name, value in data.get("user_properties", ())]
        return {**data, "user_properties": shown}
    return data


# ---- in the original ----------------------------------------------------------------------------


class RunningTest:
    """One test in its own process. ``began`` is the start of the run, on the monotonic clock."""

    def __init__(self, item: pytest.Item, copy: Forked, began: float) -> None:
        self.item = item
        self.copy = copy
        self.reports: list[pytest.TestReport] = []
        self._began = began
        self._outcomes: list[Outcome] = []
        self._holds: list[Hold] = []
        self._open: list[HoldBegan] = []
        self._compiled: list[str] = []
        self.left: Left | None = None
        self._message = ""
        self.began_at, self._paused_before_s = time.monotonic(), copy.paused_s

    def take(self) -> bool:
        """Receive its messages; returns whether it has ended. ``reports`` are those that are due."""
        for message in self.copy.read():
            self.hear(message)
        if self.copy.end is None:
            return False
        self.conclude(self.copy.end)
        return True

    def log(self, *, starts: bool) -> None:
        """Log everything once it has ended. Ends the whole run if the test has asked for that."""
        if starts:
            log_start(self.item)
        log_end(self.item, self.reports, self.left)

    def hear(self, message: Record) -> None:
        """Process one message."""
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
                self._open.append(message)
            case HoldEnded(at=at):
                self._end_hold(at)
            case Compiled(kernel=kernel):
                self._compiled.append(kernel)
            case Left():
                self.left = message
            case TurnedTo():
                pass  # it is known
            case _:
                raise AssertionError(f"unexpected message {message}")

    def _end_hold(self, at: float) -> None:
        self._holds += [
            Hold(
                test=self.item.nodeid,
                device=began.device,
                lease=began.lease,
                at=began.at - self._began,
                held_s=at - began.at,
                waited_s=began.waited_s,
                dynamic=began.dynamic,
            )
            for began in self._open
        ]
        self._open = []

    def conclude(self, end: ForkEnd) -> None:
        """Derive the missing reports from the end of its process."""
        # The keeper of what it still held sees its end when we do.
        self._end_hold(end.at)
        is_whole = any(report.when == "teardown" for report in self.reports)
        out_tail = take_tail(out_log(self.copy.log))
        if end.is_lost or (is_whole and end.timed_out):
            # It has reported everything, and was killed with its parent, or did not end.
            self.reports = [report for report in self.reports if report.when == "setup"]
            is_whole = False
        if not is_whole and (self.left is None or end.is_lost):
            self.reports.append(self._report_death(end, out_tail))
        self.sum_up(end.at)

    def interrupt(self) -> TestFacts:
        """End its process, with the run; what is known of it."""
        if self.copy.end is None:
            for message in self.copy.read():
                self.hear(message)
            self.copy.close()
        at = time.monotonic()
        self._end_hold(at)
        return self._make_facts(at)

    def sum_up(self, at: float) -> None:
        """Put what is known beside the reports into the last one; the test was over ``at``."""
        if self.reports:
            setattr(self.reports[-1], FACTS, msgspec.to_builtins(self._make_facts(at)))

    def _make_facts(self, at: float) -> TestFacts:
        paused_s = self.copy.paused_s - self._paused_before_s
        return TestFacts(
            seconds=at - self.began_at - paused_s,
            outcome=_worst(self._outcomes),
            message=self._message or _first_line(self.reports),
            log=str(self.copy.log) if self.copy.log.exists() else "",
            holds=tuple(self._holds),
            compiled=tuple(self._compiled),
        )

    def _report_death(self, end: ForkEnd, out_tail: str) -> pytest.TestReport:
        phase = "call"
        # not those of subtests, which have a class of their own
        own = [report for report in self.reports if type(report) is pytest.TestReport]
        if any(report.when == "call" or report.failed for report in own):
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
            sections=[(f"{name} {phase}", escape(text)) for name, text in sections if text],
            duration=end.at - self.began_at,
        )


class Runner:
    """Runs ``items``, each in a copy of this process, as many at once as the options say. ``outer``
    is this process's plugin, ``began`` monotonic; ``interrupted`` tests ended with the run.
    """

    def __init__(
        self, items: Sequence[pytest.Item], active: Active, outer: object, began: float
    ) -> None:
        self._numbers = {item: number for number, item in enumerate(items)}
        self._active = active
        self._began = began
        self._workers = min(active.options.workers, len(items))
        self.interrupted: dict[str, TestFacts] = {}

        def work(number: int, teller: Teller) -> None:
            item = items[number]
            Inside(active, log_of(item, active), teller).run([item], outer)

        self._make_lane = partial(make_lane, work)
        self._idle = [self._make_lane() for _ in range(self._workers)]

    def run(self, items: Sequence[pytest.Item], session: pytest.Session | None = None) -> None:
        """Run these items, in order; none further once the ``session`` is to end, as with ``--maxfail``."""
        waiting = list(reversed(items))
        running: dict[Forked, RunningTest] = {}
        try:
            while waiting or running:
                while waiting and self._idle:
                    item = waiting.pop()
                    if self._workers == 1:
                        log_start(item)
                    copy = self._start(item)
                    running[copy] = RunningTest(item, copy, self._began)
                for copy in wait_any(running):
                    if running[copy].take():
                        self._idle.append(copy.lane)
                        running.pop(copy).log(starts=self._workers > 1)
                        if session is not None and session.shouldfail:
                            raise session.Failed(session.shouldfail)
                        if session is not None and session.shouldstop:
                            raise session.Interrupted(session.shouldstop)
        finally:
            for copy, test in running.items():
                self.interrupted[test.item.nodeid] = test.interrupt()
                self._idle.append(copy.lane)

    def close(self) -> None:
        """End the processes that made the copies."""
        for lane in self._idle:
            lane.close()

    def _start(self, item: pytest.Item) -> Forked:
        lane = self._idle.pop()
        if not lane.is_usable:
            lane.close()
            lane = self._make_lane()
        log = log_of(item, self._active)
        out_log(log).unlink(missing_ok=True)
        limit_s = read_marked_limit(item, self._active.options.limit_s)
        return Forked(lane, self._numbers[item], limit_s, log)


def log_of(item: pytest.Item, active: Active) -> Path:
    """The log of a test's own process, for what is not in its reports."""
    return active.folder / "logs" / f"{zlib.crc32(item.nodeid.encode()):08x}.log"


def log_start(item: pytest.Item) -> None:
    """Log that a test begins."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)


def log_end(
    item: pytest.Item, reports: Sequence[pytest.TestReport], left: Left | None = None
) -> None:
    """Log how a test ended. Ends the whole run if the test has asked for that."""
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    if left is None:
        return
    if left.interrupted:
        raise KeyboardInterrupt
    pytest.exit(left.reason, left.code)


def _worst(outcomes: list[Outcome]) -> Outcome:
    """The outcome of all phases: the first failure, otherwise a skip, otherwise a pass."""
    for outcome in outcomes:
        if outcome not in (Outcome.PASSED, Outcome.SKIPPED):
            return outcome
    return Outcome.SKIPPED if Outcome.SKIPPED in outcomes else Outcome.PASSED


def _first_line(reports: list[pytest.TestReport]) -> str:
    for report in reports:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            text = str(crash.message if crash is not None else report.longrepr).strip()
            return text.splitlines()[0][:500] if text else ""
    return ""
