"""The far side of a task: one process does the parts in turn, on the device that the queue gave. It is a copy
of one with the tests imported; if it dies or hangs, its part has failed, and a new copy goes on.
"""

import contextlib
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from tileyard.base.errors import TileyardError
from tileyard.base.model import Device, Outcome, Record
from tileyard.base.modes import open_file
from tileyard.base.settings import Settings, read_settings
from tileyard.devices.foreign import SUBMISSION_VARIABLE
from tileyard.devices.health import find_fault, run_apart
from tileyard.engine.foreign_queue.far_side import accept_device, find_device_name
from tileyard.processes.answers import find_set
from tileyard.pytest_plugin.active import FAR_SITE, Active
from tileyard.pytest_plugin.declared import DeclaredSteps
from tileyard.pytest_plugin.devices import Holdings
from tileyard.pytest_plugin.far_calls import carry_out, import_modules
from tileyard.pytest_plugin.far_records import (
    FACTS,
    Answered,
    DevicesNeeded,
    FarAnswer,
    FarCall,
    FarTask,
    FarTest,
    TestFacts,
    TurnedTo,
    Warned,
    lines_of,
    write_answer,
)
from tileyard.pytest_plugin.forked import Forked, ForkEnd, Teller, make_lane, wait_any
from tileyard.pytest_plugin.options import PluginOptions
from tileyard.pytest_plugin.running import Inside, RunningTest
from tileyard.workers.task_lines import (
    INFRASTRUCTURE_CODE,
    CaseResult,
    CaseTurnedTo,
    Line,
    TaskEnded,
    TaskStarted,
    exit_code,
    format_line,
    place_of,
)

FAR: Final = "tileyard-far"
"""The plugin that takes a run of pytest over on the far side."""
IMPORTED: Final = "Module already imported so cannot be rewritten; tileyard"
"""A pytest warning that appears because a module of ours starts it."""
LEASE_LIMIT_S: Final = 60.0
"""Limit for recording that a device is held, although nobody else can have it."""


def run_far(file: Path, options: Sequence[str]) -> int:
    """Run a task; ``options`` is what the queue appended to our command: ``--device NAME``."""
    task = msgspec.json.decode(file.read_bytes(), type=FarTask)
    lines = os.dup(1)  # the other one is captured
    written = open_file(lines_of(file), os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def tell(line: Line) -> None:
        for end in (written, lines):  # a queue may lose what a task prints
            os.write(end, f"{format_line(line)}\n".encode())

    def give_up(message: str) -> int:
        tell(TaskEnded(token=task.token, code=INFRASTRUCTURE_CODE, cases=0, message=message))
        return INFRASTRUCTURE_CODE

    given = options[1] if options[:1] == ["--device"] and len(options) > 1 else ""
    try:
        device = accept_device(find_device_name(task, given, os.environ), task)
    except TileyardError as error:
        return give_up(error.message)
    if device.count < task.devices:
        return give_up(
            f"the queue gave {device.name}, and the task needs {task.devices} devices; its `device` and "
            "`device_variable` have to name all"
        )
    os.environ[SUBMISSION_VARIABLE] = task.token
    started = TaskStarted(
        token=task.token, host=socket.gethostname(), device=device.name, identity=device.identity
    )
    tell(started)
    if place_of(started) in task.doubted and (fault := run_apart(find_fault(device))):
        return give_up(fault)
    turns = Turns(task, device, tell)
    if task.calls:
        return run_calls(turns)
    sys.argv = ["pytest", *task.arguments]
    arguments = [*task.arguments, f"--rootdir={task.rootdir}", "-W", f"ignore:{IMPORTED}"]
    code = pytest.main(arguments, [FarTests(turns)])
    return give_up(f"pytest ended with code {int(code)} before it ran a test on the far side")


def read_prologue(file: Path) -> dict[str, str]:
    """The variables set by the prologue of a task's queue; its error ends the task, in its last line."""
    task = msgspec.json.decode(file.read_bytes(), type=FarTask)
    try:
        return find_set(task.prologue, os.environ, Path.cwd(), "prologue")
    except TileyardError as error:
        ended = TaskEnded(
            token=task.token, code=INFRASTRUCTURE_CODE, cases=0, message=error.message
        )
        os.write(1, f"{format_line(ended)}\n".encode())
        raise SystemExit(INFRASTRUCTURE_CODE) from None


class Turns:
    """The parts of a task, one after another, and the lines about them."""

    def __init__(self, task: FarTask, device: Device, tell: Callable[[Line], None]) -> None:
        self.task = task
        self.device = device
        self._tell = tell
        self._until = time.monotonic() + task.limit_s
        self._outcomes: set[Outcome] = set()
        self._fault = ""

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices that its parts may hold: all that the queue gave as one, or the number they need."""
        return self.device.members if self.task.devices > 1 else (self.device,)

    def has_time(self, part: FarTest | FarCall) -> bool:
        """Whether there is time for its whole limit; if not, it is for another task."""
        return part.limit_s <= self._until - time.monotonic()

    def run(
        self, parts: Sequence[FarTest | FarCall], work: Callable[[int, Teller], None]
    ) -> Iterator[tuple[int, Forked, Record]]:
        """Have copies do the ``work``, each from one part on; yields reports with the part's
        number. A part's first is a `TurnedTo`; the last of a copy is its `ForkEnd`.
        """
        lane = make_lane(work)
        log = Path(self.task.folder) / "logs" / f"{self.task.token}.log"
        number = -1
        while (following := number + 1) < len(parts):
            if following and not self.has_time(parts[following]):
                break
            if not lane.is_usable:
                lane.close()
                lane = make_lane(work)
            copy = Forked(lane, following, parts[following].limit_s, log)
            while copy.end is None:
                for message in (message for ready in wait_any([copy]) for message in ready.read()):
                    if isinstance(message, TurnedTo):
                        number += 1
                        copy.limit_s = parts[number].limit_s
                        copy.begin_anew()
                        self._turn_to(parts[number])
                    yield number, copy, message
            if number < following:  # it died before it had begun any: the first one is to blame
                number = following
                self._turn_to(parts[number])
                yield number, copy, TurnedTo(test=parts[number].name, at=time.monotonic())
            yield number, copy, copy.end
            is_suspect = copy.end.timed_out or copy.end.signal is not None
            if is_suspect and number + 1 < len(parts):
                self._fault = run_apart(find_fault(self.device))
            if self._fault:
                break
        lane.close()

    def _turn_to(self, part: FarTest | FarCall) -> None:
        self._tell(CaseTurnedTo(token=self.task.token, case=part.name))

    def end(self, part: FarTest | FarCall, facts: TestFacts, digest: str = "") -> None:
        """Report how one ended; ``digest`` is that of its answer, if it has one."""
        self._outcomes.add(facts.outcome)
        self._tell(
            CaseResult(
                token=self.task.token,
                case=part.name,
                outcome=facts.outcome,
                seconds=facts.seconds,
                device=self.device.name,
                message=facts.message,
                log=digest,
            )
        )

    def finish(self) -> int:
        """Report that this is all; returns the exit code."""
        code = exit_code(self._outcomes)
        count = len(self.task.tests) + len(self.task.calls)
        ended = TaskEnded(token=self.task.token, code=code, cases=count, message=self._fault)
        self._tell(ended)
        return code


def run_calls(turns: Turns) -> int:
    """Run the parts of tests that hold a device."""
    calls = turns.task.calls
    settings = read_settings(os.environ, Path.cwd())
    for call in calls:
        with contextlib.suppress(Exception):  # otherwise its copy will report it
            import_modules(call)

    def work(number: int, teller: Teller) -> None:
        holdings = Holdings(turns.devices, LEASE_LIMIT_S, teller)
        FAR_SITE.set((settings, holdings))
        with holdings.hold(turns.task.devices) as leased:
            for call in calls[number:]:
                if call is not calls[number] and not turns.has_time(call):
                    break
                teller.tell(TurnedTo(test=call.name, at=time.monotonic()))
                teller.tell(Answered(reply=carry_out(call, leased)))

    answered, began_at = -1, 0.0
    for number, copy, message in turns.run(calls, work):
        match message:
            case TurnedTo(at=at):
                began_at = at
            case Answered(reply=digest):
                answered = number
                seconds = time.monotonic() - began_at
                turns.end(calls[number], TestFacts(seconds=seconds, outcome=Outcome.PASSED), digest)
            case ForkEnd() if answered < number:
                said = f"the process of its device part {message.describe(copy.limit_s)}"
                outcome = Outcome.TIMEOUT if message.timed_out else Outcome.CRASHED
                text = "\n".join(filter(None, [said, message.stack]))
                facts = TestFacts(seconds=message.at - began_at, outcome=outcome, message=text)
                turns.end(calls[number], facts)
            case _:
                pass
    return turns.finish()


class FarTests:
    """The plugin of pytest's process, without pytest's own end of a run: the near side writes reports."""

    def __init__(self, turns: Turns) -> None:
        self.__name__ = FAR  # which pytest registers it under
        self._turns = turns
        self._tests = {test.name: test for test in turns.task.tests}

    def activate(self, options: PluginOptions, settings: Settings) -> Active:
        """The run as tests see it: the given device, and what was built on the near side."""
        task = self._turns.task
        active = Active(options, settings, self._turns.devices, Path(task.folder))
        active.is_far = True
        active.declared = DeclaredSteps((), options.target, options.build_limit_s)
        for test in task.tests:
            for named, given in (
                (active.declared.kernels, test.kernels),
                (active.declared.functions, test.functions),
            ):
                named[test.name] = {name: result.step for name, result in given.items()}
                active.results.update({result.step: result for result in given.values()})
        self._active = active
        return active

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Collect the files of these tests only."""
        root = Path(self._turns.task.rootdir)
        files = (test.partition("::")[0] for test in self._tests)
        config.args = list(dict.fromkeys(str(root / file) for file in files))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run the tests of the task, and end."""
        found = {item.nodeid: item for item in session.items}
        if not self._tests.keys() & found.keys():
            return None
        for name in self._tests.keys() - found.keys():
            message = "the far side does not collect this test"
            facts = TestFacts(seconds=0.0, outcome=Outcome.INFRA_ERROR, message=message)
            self._turns.end(self._tests[name], facts)
        self._run([found[name] for name in self._tests if name in found])
        os._exit(self._turns.finish())

    def _run(self, items: list[pytest.Item]) -> None:
        tests = [self._tests[item.nodeid] for item in items]
        log = Path(self._turns.task.folder) / "logs" / f"{self._turns.task.token}.log"

        def work(number: int, teller: Teller) -> None:
            Inside(self._active, log, teller).run(
                items[number:], self, lambda item: self._turns.has_time(self._tests[item.nodeid])
            )

        running: RunningTest | None = None
        warnings: list[dict[str, Any]] = []
        needs = 0
        for number, copy, message in self._turns.run(tests, work):
            if isinstance(message, TurnedTo):
                if running is not None:
                    running.sum_up(message.at)
                    self._end(running, warnings)
                running, warnings, needs = RunningTest(items[number], copy, 0.0), [], 0
                running.began_at = message.at
            elif isinstance(message, Warned):
                warnings.append(message.arguments)
            elif isinstance(message, DevicesNeeded):
                needs = message.count
            elif isinstance(message, ForkEnd):
                if running is not None and needs:
                    test, facts = tests[number], TestFacts(seconds=0.0, outcome=Outcome.PASSED)
                    answer = write_answer(Path(test.answer), FarAnswer(needs=needs))
                    self._turns.end(test, facts, answer)
                elif running is not None:
                    running.conclude(message)
                    self._end(running, warnings)
                running = None
            elif running is not None:
                running.hear(message)

    def _end(self, running: RunningTest, warnings: list[dict[str, Any]]) -> None:
        config = running.item.config
        to_data = config.hook.pytest_report_to_serializable
        answer = FarAnswer(
            reports=tuple(to_data(config=config, report=report) for report in running.reports),
            warnings=tuple(warnings),
            left=running.left,
        )
        test = self._tests[running.item.nodeid]
        data = getattr(running.reports[-1], FACTS, None) if running.reports else None
        facts = TestFacts(seconds=0.0, outcome=Outcome.PASSED)
        if data is not None:
            facts = msgspec.convert(data, TestFacts)
        self._turns.end(test, facts, write_answer(Path(test.answer), answer))
