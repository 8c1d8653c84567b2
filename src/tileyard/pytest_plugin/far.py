"""The far side of a task of tests: one process of pytest runs them in turn on the device that the queue gave.

Only what runs a test is a copy of the process that collected: it goes on from one test to the next, so that
a device is started once. Where it dies or runs past a test's limit, that test fails and a new copy goes on with the next.
"""

import os
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from tileyard.devices.foreign import SUBMISSION_VARIABLE
from tileyard.engine.foreign_queue.artifact_runs import find_device_name
from tileyard.engine.foreign_queue.far_side import INFRASTRUCTURE_CODE, accept_device
from tileyard.engine.foreign_queue.submission import exit_code
from tileyard.errors import TileyardError
from tileyard.model import Device, Outcome
from tileyard.pytest_plugin.active import Active
from tileyard.pytest_plugin.declared import DeclaredSteps
from tileyard.pytest_plugin.far_records import FarAnswer, FarTask, FarTest, write_answer
from tileyard.pytest_plugin.forked import Forked, Teller, make_lane, wait_any
from tileyard.pytest_plugin.options import PluginOptions
from tileyard.pytest_plugin.records import FACTS, TestFacts, TurnedTo, Warned
from tileyard.pytest_plugin.running import Inside, RunningTest
from tileyard.settings import Settings
from tileyard.workers.task_lines import (
    CaseResult,
    CaseTurnedTo,
    Line,
    TaskEnded,
    TaskStarted,
    format_line,
)

FAR: Final = "tileyard-far"
"""The plugin that takes a run over on the far side."""
IMPORTED: Final = "Module already imported so cannot be rewritten; tileyard"
"""What pytest warns of, since it is started from a module of ours."""


def run_far(file: Path, options: Sequence[str]) -> int:
    """Run a task; ``options`` are what the queue has put after our command: ``--device NAME``."""
    task = msgspec.json.decode(file.read_bytes(), type=FarTask)
    lines = os.dup(1)  # pytest captures the other one

    def tell(line: Line) -> None:
        os.write(lines, f"{format_line(line)}\n".encode())

    def give_up(message: str) -> int:
        tell(TaskEnded(token=task.token, code=INFRASTRUCTURE_CODE, cases=0, message=message))
        return INFRASTRUCTURE_CODE

    given = options[1] if options[:1] == ["--device"] and len(options) > 1 else ""
    try:
        device = accept_device(find_device_name(task, given, os.environ))
    except TileyardError as error:
        return give_up(error.message)
    os.environ[SUBMISSION_VARIABLE] = task.token
    tell(
        TaskStarted(
            token=task.token,
            host=socket.gethostname(),
            device=device.name,
            identity=device.identity,
        )
    )
    sys.argv = ["pytest", *task.arguments]
    arguments = [*task.arguments, f"--rootdir={task.rootdir}", "-W", f"ignore:{IMPORTED}"]
    code = pytest.main(arguments, [FarTests(task, device, tell)])
    return give_up(f"pytest ended with code {int(code)} before it ran a test on the far side")


class FarTests:
    """The plugin of that process. Nothing of pytest's end is done here: reports are written on the near side."""

    def __init__(self, task: FarTask, device: Device, tell: Any) -> None:  # noqa: ANN401 - see run_far
        self.__name__ = FAR  # which pytest registers it under
        self._task = task
        self._device = device
        self._tell = tell
        self._tests = {test.nodeid: test for test in task.tests}
        self._outcomes: set[Outcome] = set()
        self._until = time.monotonic() + task.limit_s

    def activate(self, options: PluginOptions, settings: Settings) -> Active:
        """What tests see: the device that was given, and what was built on the near side."""
        active = Active(options, settings, (self._device,), Path(self._task.folder))
        active.declared = DeclaredSteps((), options.target, options.build_limit_s)
        for test in self._task.tests:
            for named, given in (
                (active.declared.kernels, test.kernels),
                (active.declared.functions, test.functions),
            ):
                named[test.nodeid] = {name: result.step for name, result in given.items()}
                active.results.update({result.step: result for result in given.values()})
        self._active = active
        return active

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Collect the files of these tests only."""
        root = Path(self._task.rootdir)
        config.args = list(dict.fromkeys(str(root / _file_of(test)) for test in self._tests))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run the tests of the task, and end."""
        found = {item.nodeid: item for item in session.items}
        items = [found[nodeid] for nodeid in self._tests if nodeid in found]
        if not items:
            return None
        for nodeid in self._tests.keys() - found.keys():
            message = "the far side does not collect this test"
            self._say(
                self._tests[nodeid],
                TestFacts(seconds=0.0, outcome=Outcome.INFRA_ERROR, message=message),
                "",
            )
        self._run(items)
        code = exit_code(self._outcomes)
        self._tell(TaskEnded(token=self._task.token, code=code, cases=len(self._tests)))
        os._exit(code)

    def _run(self, items: list[pytest.Item]) -> None:
        log = Path(self._task.folder) / "logs" / f"{self._task.token}.log"

        def work(number: int, teller: Teller) -> None:
            Inside(self._active, log, teller).run(items[number:], self, self._has_time)

        lane = make_lane(work)
        number = 0
        while number < len(items) and (not number or self._has_time(items[number])):
            if not lane.is_usable:
                lane.close()
                lane = make_lane(work)
            copy = Forked(lane, number, self._tests[items[number].nodeid].limit_s, log)
            number += self._follow(copy, items[number:])
        lane.close()

    def _has_time(self, item: pytest.Item) -> bool:
        return self._tests[item.nodeid].limit_s <= self._until - time.monotonic()

    def _follow(self, copy: Forked, items: Sequence[pytest.Item]) -> int:
        """How many of the tests a copy has run, or begun."""
        running: RunningTest | None = None
        warnings: list[dict[str, Any]] = []
        done = 0
        while copy.end is None:
            for message in (message for ready in wait_any([copy]) for message in ready.read()):
                match message:
                    case TurnedTo(at=at):
                        if running is not None:
                            running.sum_up(at)
                            self._end(running, warnings)
                        item = items[done]
                        done += 1
                        copy.limit_s = self._tests[item.nodeid].limit_s
                        copy.begin_anew()
                        running, warnings = RunningTest(item, copy, 0.0), []
                        running.began_at = at
                        self._tell(CaseTurnedTo(token=self._task.token, case=item.nodeid))
                    case Warned(arguments=arguments):
                        warnings.append(arguments)
                    case _:
                        if running is not None:
                            running.hear(message)
        if running is None:  # it died before it had begun one: the first of them is to blame
            running, done = RunningTest(items[0], copy, 0.0), 1
            self._tell(CaseTurnedTo(token=self._task.token, case=items[0].nodeid))
        running.conclude(copy.end)
        self._end(running, warnings)
        return done

    def _end(self, running: RunningTest, warnings: list[dict[str, Any]]) -> None:
        """Write down what came of a test, and say so."""
        config = running.item.config
        to_data = config.hook.pytest_report_to_serializable
        answer = FarAnswer(
            reports=tuple(to_data(config=config, report=report) for report in running.reports),
            warnings=tuple(warnings),
            left=running.left,
        )
        test = self._tests[running.item.nodeid]
        facts = getattr(running.reports[-1], FACTS, None) if running.reports else None
        read = (
            msgspec.convert(facts, TestFacts)
            if facts
            else TestFacts(seconds=0.0, outcome=Outcome.PASSED)
        )
        self._say(test, read, write_answer(Path(test.answer), answer))

    def _say(self, test: FarTest, facts: TestFacts, digest: str) -> None:
        self._outcomes.add(facts.outcome)
        self._tell(
            CaseResult(
                token=self._task.token,
                case=test.nodeid,
                outcome=facts.outcome,
                seconds=facts.seconds,
                device=self._device.name,
                message=facts.message,
                log=digest,
            )
        )


def _file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]
