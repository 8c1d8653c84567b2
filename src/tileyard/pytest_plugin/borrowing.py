"""Runs tests whose devices belong to another queue: sends the part that holds one, or the whole
test. A test runs here up to its block; one task does the work of several that wait. If a part
cannot be sent, the summary states why.
"""

import asyncio
import contextlib
import os
import secrets
import signal
from collections.abc import Sequence
from typing import Final

import msgspec
import pytest

from tileyard.base.errors import UsageError
from tileyard.base.model import Outcome
from tileyard.base.settings import Settings
from tileyard.devices.base import class_of
from tileyard.devices.foreign import ForeignQueue, find_queue, is_queue, refuse_nesting
from tileyard.engine.foreign_queue.slots import require_tools
from tileyard.pytest_plugin.active import Active
from tileyard.pytest_plugin.far_calls import FarDevice
from tileyard.pytest_plugin.far_records import (
    FACTS,
    FarAnswer,
    FarCallWanted,
    FarReply,
    FarTest,
    NotSeparable,
    TestFacts,
    read_answer,
)
from tileyard.pytest_plugin.far_tasks import FarTasks
from tileyard.pytest_plugin.forked import Forked, Teller, follow, make_lane, run_loop, yield_cores
from tileyard.pytest_plugin.options import PluginOptions, is_distributed, read_marked_limit
from tileyard.pytest_plugin.recording import Recording
from tileyard.pytest_plugin.running import Inside, RunningTest, log_end, log_of, log_start
from tileyard.pytest_plugin.separating import DEVICE, CutTest, NotSeparableError, cut
from tileyard.targets.registry import find_needs

MESSAGE_CHARS: Final = 1000
"""Maximum characters of a message that go through a pipe at once, whatever the characters are."""


class Borrowing:
    """Runs tests with devices of a queue. ``outer`` is the plugin of this process."""

    def __init__(
        self, queue: ForeignQueue, active: Active, recording: Recording, outer: object
    ) -> None:
        self._queue = queue
        self._active = active
        self._recording = recording
        self._outer = outer

    def run(self, items: Sequence[pytest.Item], session: pytest.Session) -> None:
        """Run them. An error that ends the whole run cancels every task first."""
        try:
            run_loop(self._run_all(items, session))
        except BaseExceptionGroup as group:
            error: BaseException = group
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            raise error from None

    async def _run_all(self, items: Sequence[pytest.Item], session: pytest.Session) -> None:
        queue = self._queue
        self._tasks = FarTasks(queue, self._active, session.config, self._recording)
        self._room = asyncio.Semaphore(queue.cases * queue.slots)  # waiting processes
        self._lanes = asyncio.Semaphore(self._active.options.workers)  # the others
        async with asyncio.TaskGroup() as all_of_it:
            async with asyncio.TaskGroup() as tests:
                for item in items:
                    tests.create_task(self._run(item, session))
                serving = [all_of_it.create_task(self._tasks.serve()) for _ in range(queue.slots)]
            for task in serving:
                task.cancel()

    async def _run(self, item: pytest.Item, session: pytest.Session) -> None:
        try:
            if self._active.options.dynamic == "lease":
                raise NotSeparableError(
                    "what it compiles while it runs may run at any time after that"
                )
            if DEVICE not in getattr(item, "fixturenames", ()):
                raise NotSeparableError(f"it uses a device without {DEVICE}")
            test = cut(getattr(item, "function", item))
            async with self._room:
                await self._run_in_parts(item, test)
        except NotSeparableError as error:
            self._recording.ran_whole[item.nodeid] = str(error)
            needs = error.devices
            while needs:
                needs = await self._run_whole(item, needs)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)

    # ---- in parts -----------------------------------------------------------------------------

    async def _run_in_parts(self, item: pytest.Item, test: CutTest) -> None:
        active, log = self._active, log_of(item, self._active)
        limit_s = read_marked_limit(item, active.options.limit_s)

        def work(_: int, teller: Teller) -> None:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            yield_cores()
            folder = active.folder / "answers"
            active.far_device = FarDevice(test, item.nodeid, limit_s, folder, teller)
            Inside(active, log, teller).run([item], self._outer)

        running: RunningTest | None = None
        self._tasks.busy += 1
        try:
            async with self._lanes:
                copy = Forked(make_lane(work), 0, limit_s, log)
                running = RunningTest(item, copy, self._recording.began)
                async with contextlib.aclosing(follow(copy)) as messages:
                    async for message in messages:
                        match message:
                            case FarCallWanted():
                                await self._call(copy, message)
                            case NotSeparable(reason=reason, devices=devices):
                                raise NotSeparableError(reason, devices)
                            case _:
                                running.hear(message)
        except asyncio.CancelledError:
            if running is not None:
                self._recording.interrupted[item.nodeid] = running.interrupt()
            raise
        finally:
            self._tasks.rest()
        if copy.end is not None:
            running.conclude(copy.end)
        running.log(starts=True)

    async def _call(self, copy: Forked, wanted: FarCallWanted) -> None:
        """Have a call made while its test waits, and run others in its place."""
        copy.pause()
        self._lanes.release()
        self._tasks.rest()
        result = await self._tasks.run(wanted.call)
        self._tasks.busy += 1
        await self._lanes.acquire()
        copy.resume()
        message = result.message[:MESSAGE_CHARS]
        reply = FarReply(digest=result.log, outcome=result.outcome, message=message)
        with contextlib.suppress(OSError):  # its test has died
            pipe = os.open(wanted.pipe, os.O_WRONLY | os.O_NONBLOCK)
            os.write(pipe, msgspec.json.encode(reply))
            os.close(pipe)

    # ---- whole --------------------------------------------------------------------------------

    async def _run_whole(self, item: pytest.Item, devices: int) -> int:
        """Run it on this number of devices; returns the number it needs if these are too few, else 0."""
        active, declared, config = self._active, self._active.declared, item.config
        kernels, functions = (
            {name: active.results[step] for name, step in named.get(item.nodeid, {}).items()}
            for named in (declared.kernels, declared.functions)
        )
        test = FarTest(
            name=item.nodeid,
            limit_s=read_marked_limit(item, active.options.limit_s),
            answer=str(active.folder / "answers" / secrets.token_hex(8)),
            devices=devices,
            kernels=kernels,
            functions=functions,
        )
        result = await self._tasks.run(test)
        if not result.log:
            log_start(item)
            log_end(item, [_report_fault(item, result.outcome, result.message)])
            return 0
        answer = read_answer(test.answer, result.log, FarAnswer)
        if answer.needs:
            return answer.needs
        log_start(item)
        for warning in answer.warnings:
            item.ihook.pytest_warning_recorded.call_historic(kwargs=warning)
        from_data = config.hook.pytest_report_from_serializable
        reports = [from_data(config=config, data=data) for data in answer.reports]
        for report in reports:
            facts = getattr(report, FACTS, None)
            if facts is not None:
                facts["holds"] = []  # the ledger has a line for each task
        log_end(item, reports, answer.left)
        return 0


def _report_fault(item: pytest.Item, outcome: Outcome, message: str) -> pytest.TestReport:
    report = pytest.TestReport(
        nodeid=item.nodeid,
        location=item.location,
        keywords=dict.fromkeys(item.keywords, 1),
        outcome="failed",
        longrepr=message,
        when="setup",
    )
    facts = TestFacts(seconds=0.0, outcome=outcome, message=message)
    setattr(report, FACTS, msgspec.to_builtins(facts))
    return report


def choose_queue(
    options: PluginOptions, settings: Settings, config: pytest.Config
) -> ForeignQueue | None:
    """The queue among the named devices, ready to be asked. Raises UsageError."""
    names = [name for name in options.devices if is_queue(name)]
    if not names:
        return None
    if len(names) > 1:
        raise UsageError(f"{names[0]} and {names[1]} are two queues", "name one of them")
    if is_distributed(config):
        raise UsageError(
            f"{names[0]} cannot be combined with pytest-xdist's -n: one process shares tests out among tasks",
            "leave -n out; the queue's `slots` is how many tasks there are at a time",
        )
    queue = find_queue(names[0], settings)
    refuse_nesting(queue, os.environ)
    require_tools(queue)
    return queue


def borrows(item: pytest.Item, active: Active, queue: ForeignQueue) -> bool:
    """Whether a test has to run on a device of the queue: as the tree's hook decides, else if it
    leases a device and no kernel is built for another class.
    """
    if active.find_failure(item) is not None:
        return False  # it does not even begin
    answer = item.ihook.pytest_tileyard_borrows(item=item)
    if answer is not None:
        return bool(answer)
    if DEVICE not in getattr(item, "fixturenames", ()):
        return False
    results = [
        active.results[step] for step in active.declared.kernels.get(item.nodeid, {}).values()
    ]
    needs = [find_needs(result.target) for result in results]
    return all(not need.is_bound or need.device_class == class_of(queue.device) for need in needs)
