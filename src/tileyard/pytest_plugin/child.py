"""What happens in a test's own process: pytest's protocol, watched."""

import os
import pickle
import traceback
from collections.abc import Callable, Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from tileyard.errors import NestedLeaseError, WorkerStartError
from tileyard.frontend.blame import is_users
from tileyard.model import Outcome
from tileyard.modes import open_file
from tileyard.pytest_plugin.active import Active
from tileyard.pytest_plugin.copied import Teller
from tileyard.pytest_plugin.devices import Holdings
from tileyard.pytest_plugin.holding import QueueTimeoutError
from tileyard.pytest_plugin.logs import out_log
from tileyard.pytest_plugin.records import Compiled, Left, Reported, Warned
from tileyard.pytest_plugin.threads import allow_threads
from tileyard.pytest_plugin.tilelang_jit import TileLangWatch, watch_tilelang
from tileyard.wording import shorten_path
from tileyard.workers.compiler import Compiler
from tileyard.workers.protocol import BuildKernels, CompilerReply, CompilerRequest


class Inside:
    """The plugin of one test's own process. ``run`` is all that the process does."""

    def __init__(self, item: pytest.Item, active: Active, log: Path) -> None:
        self._item = item
        self._active = active
        self._log = log
        self._teller: Teller | None = None
        self._holdings: Holdings | None = None
        self._failure: tuple[Outcome, str] | None = None
        self._broken: str = ""

    def run(self, teller: Teller, outer: object) -> None:
        """Run the test and tell how it went. ``outer`` is the plugin of the process that copied itself."""
        config = self._item.config
        plugins = config.pluginmanager
        plugins.unregister(outer)
        for plugin in plugins.get_plugins():
            if type(plugin).__name__ == "WorkerInteractor":  # its channel is the original's
                plugins.unregister(plugin)
        plugins.register(self)
        self._teller = teller
        _renew_capture(config, self._log)
        self._failure = self._active.find_failure(self._item)
        self._holdings = self._active.enter(teller)
        allow_threads(len(self._active.settings.cores), self._active.processes)
        watch_compiles(self._begin_compile, self._end_compile)
        try:
            config.hook.pytest_runtest_protocol(item=self._item, nextitem=None)
        except pytest.exit.Exception as error:
            teller.tell(Left(reason=str(error), code=error.returncode))
        except KeyboardInterrupt:
            teller.tell(Left(reason="interrupted", interrupted=True))
        finally:
            self._holdings.close()

    # ---- hooks --------------------------------------------------------------------------------

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool:
        """Run it without logging: the reports are the original's to log."""
        runtestprotocol(item, log=False, nextitem=None)
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """A test whose compile step failed does not begin."""
        if self._failure is not None:
            pytest.fail(self._failure[1], pytrace=False)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Tell every report as it is made."""
        report = yield
        if report.when == "call" and report.passed and self._broken:
            report.outcome = "failed"
            report.longrepr = self._broken
        outcome = self._judge(report, call)
        config = item.config
        data = config.hook.pytest_report_to_serializable(config=config, report=report)
        self._tell(Reported(data=_plain(data), outcome=outcome))
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_warning_recorded(
        self,
        warning_message: Any,  # noqa: ANN401 - pytest's
        when: str,
        nodeid: str,
        location: tuple[str, int, str] | None,
    ) -> None:
        """Tell of every warning that can be told."""
        if self._teller is None:
            return  # a plugin that is new is told all that was warned of before it came
        # Its source is an object of the test's.
        warning_message.source = None
        arguments = {
            "warning_message": warning_message,
            "when": when,
            "nodeid": nodeid,
            "location": location,
        }
        with suppress(pickle.PicklingError, TypeError, AttributeError):
            self._tell(Warned(arguments=arguments))

    # ---- compiling while the test runs ----------------------------------------------------------

    def _begin_compile(self, kernel: str, build: str) -> None:
        __tracebackhide__ = True
        if build in self._active.failed_builds:
            return  # was tried ahead, and is about to fail again
        self._tell(Compiled(kernel=kernel))
        if self._active.options.dynamic == "lease":
            return
        self._broken = (
            f"{self._item.nodeid} compiles {kernel} while it runs{_place()} "
            "(declare it with @pytest.mark.tile_kernel, or allow it with --tileyard-dynamic=lease)"
        )
        pytest.fail(self._broken, pytrace=False)

    def _end_compile(self) -> None:
        """What was compiled may run from now on, in ways that nobody sees."""
        if self._holdings is not None:
            self._holdings.hold_to_the_end()

    # ---- inside -------------------------------------------------------------------------------

    def _judge(self, report: pytest.TestReport, call: pytest.CallInfo[None]) -> Outcome:
        """What a report means in our words."""
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
            case MemoryError():
                return Outcome.OUT_OF_MEMORY
            case _:
                return Outcome.RUNTIME_ERROR

    def _tell(self, message: Reported | Warned | Compiled) -> None:
        if self._teller is None:
            raise AssertionError("a test tells something before it runs")
        self._teller.tell(message)


def watch_compiles(begin: Callable[[str, str], None], end: Callable[[], None]) -> None:
    """From here on, tell of every kernel that this process compiles, ours or TileLang's own."""
    answer = Compiler.answer

    def watched(self: Compiler, request: CompilerRequest) -> CompilerReply:
        __tracebackhide__ = True
        if not isinstance(request, BuildKernels):
            return answer(self, request)
        for wanted in request.kernels:
            begin(wanted.elaborated.kernel.name, wanted.build)
        reply = answer(self, request)
        end()
        return reply

    Compiler.answer = watched  # type: ignore[method-assign]  # in this process alone
    watch_tilelang(TileLangWatch(begin=begin, end=end, run=lambda: None))


def _place() -> str:
    """Where the user's own code is now, as part of a sentence."""
    users = [frame for frame in traceback.extract_stack() if is_users(frame.filename)]
    return f", at {shorten_path(users[-1].filename)}:{users[-1].lineno}" if users else ""


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


def _plain(data: dict[str, Any]) -> dict[str, Any]:
    """A report that can be sent: what is not plain among its properties becomes text."""
    try:
        pickle.dumps(data)
    except (pickle.PicklingError, TypeError, AttributeError):
        shown = [(str(name), str(value)) for name, value in data.get("user_properties", ())]
        return {**data, "user_properties": shown}
    return data
