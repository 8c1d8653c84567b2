"""Tests that run on devices of another queue: many of them are one task, and what comes of each is logged here.

A task that is lost blames the test that it was at; the others are submitted again. So is the one to blame, at
most twice.
"""

import asyncio
import os
import secrets
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import pytest

from tileyard.devices.foreign import ForeignQueue
from tileyard.engine.foreign_queue.calls import Deadlines, QueueCall
from tileyard.engine.foreign_queue.submission import ClientEnd, Submission
from tileyard.engine.foreign_queue.tasks import RESTART_LIMIT_S, START_LIMIT_S
from tileyard.errors import DamagedError, WorkerLostError
from tileyard.model import Outcome
from tileyard.modes import make_folder, write_file
from tileyard.pytest_plugin import far_start
from tileyard.pytest_plugin.active import Active
from tileyard.pytest_plugin.far_records import FarTask, FarTest, read_answer
from tileyard.pytest_plugin.options import read_marked_limit
from tileyard.pytest_plugin.recording import Recording
from tileyard.pytest_plugin.records import FACTS, Hold, TestFacts
from tileyard.pytest_plugin.running import log_end, log_start
from tileyard.workers.task_lines import CaseResult, Side

ATTEMPTS: Final = 3
"""How often a test is tried whose task is lost while it runs."""


@dataclass(eq=False, kw_only=True)
class Part:
    """A test on its way through the queue: how many tasks it was lost with, and whether one was at it then."""

    item: pytest.Item
    test: FarTest
    losses: int = 0
    is_blamed: bool = False


class Borrowing:
    """Runs tests as tasks of a queue, and keeps in ``recording`` when devices were held."""

    def __init__(self, queue: ForeignQueue, active: Active, recording: Recording) -> None:
        limit_s = min(queue.queue_limit_s, active.options.queue_limit_s)
        self._queue = msgspec.structs.replace(queue, queue_limit_s=limit_s)
        self._active = active
        self._recording = recording
        self._waiting: list[Part] = []

    def run(self, items: Sequence[pytest.Item], session: pytest.Session) -> None:
        """Run them. What ends the whole run cancels every task first."""
        self._waiting = [self._make_part(item) for item in items]
        try:
            asyncio.run(self._run(session))
        except BaseExceptionGroup as group:
            error: BaseException = group
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            raise error from None

    async def _run(self, session: pytest.Session) -> None:
        async def serve() -> None:
            while self._waiting:
                await self._submit(self._take(), session)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._queue.slots, len(self._waiting))):
                group.create_task(serve())

    def _make_part(self, item: pytest.Item) -> Part:
        active, declared = self._active, self._active.declared
        kernels, functions = (
            {name: active.results[step] for name, step in named.get(item.nodeid, {}).items()}
            for named in (declared.kernels, declared.functions)
        )
        test = FarTest(
            nodeid=item.nodeid,
            limit_s=read_marked_limit(item, active.options.limit_s),
            answer=str(active.folder / "answers" / secrets.token_hex(8)),
            kernels=kernels,
            functions=functions,
        )
        return Part(item=item, test=test)

    def _take(self) -> list[Part]:
        """The next tests, as many as one task may hold; one that was lost is tried alone."""
        part = self._waiting.pop(0)
        taken = [part]
        if part.is_blamed:
            return taken
        while self._waiting and len(taken) < self._queue.cases and not self._waiting[0].is_blamed:
            taken.append(self._waiting.pop(0))
        return taken

    # ---- one task -----------------------------------------------------------------------------

    async def _submit(self, parts: list[Part], session: pytest.Session) -> None:
        """Submit one task, log what comes of its tests as it comes, and have the rest tried again."""
        longest_s = self._queue.task_limit_s
        need_s = min(longest_s, START_LIMIT_S + sum(map(_need_s, parts)))
        for part in [part for part in parts if START_LIMIT_S + _need_s(part) > longest_s]:
            self._fail(part, Outcome.INFRA_ERROR, self._describe_long(part), session)
            parts.remove(part)
        if not parts:
            return
        left = {part.test.nodeid: part for part in parts}
        submission = Submission(secrets.token_hex(8), list(left))
        limits = {part.test.nodeid: part.test.limit_s for part in parts}
        started: list[float] = []
        asked = time.monotonic()

        def hear(side: Side, text: str) -> None:
            for news in submission.read(side, text):
                if isinstance(news, CaseResult):
                    self._end(left.pop(news.case), news, session)
            if submission.started is not None and not started:
                started.append(time.monotonic())

        call = QueueCall(self._queue, self._write_task(submission.token, parts, need_s), need_s)
        deadlines = Deadlines(self._queue, submission, need_s, limits)
        try:
            end = await call.follow(hear, deadlines.next, self._active.folder / "logs/queue.log")
        except WorkerLostError as error:
            end = ClientEnd(argv=self._queue.submit, cwd=call.cwd, error=str(error))
        finally:
            self._keep_hold(parts, submission, asked, started)
        results, faults = submission.conclude(end)
        for result in results:
            self._end(left.pop(result.case), result, session)
        for fault in faults:
            left[fault.case].is_blamed = True
            self._lose(left.pop(fault.case), fault.message, session)
        if len(left) == len(parts):  # not even begun
            outcome, message = submission.find_loss(end, self._queue.exit_codes)
            for part in left.values():
                if outcome is Outcome.QUEUE_TIMEOUT:
                    self._fail(part, outcome, message, session)
                else:
                    self._lose(part, message, session)
        else:
            self._waiting[:0] = left.values()

    def _write_task(self, token: str, parts: Sequence[Part], limit_s: float) -> list[str]:
        """Write the task's own file; the command that runs it."""
        active, queue = self._active, self._queue
        config = parts[0].item.config
        pytests = {name: text for name, text in os.environ.items() if name.startswith("PYTEST_")}
        task = FarTask(
            token=token,
            device=queue.device,
            device_variable=queue.device_variable,
            environment={**pytests, **queue.pick_environment(os.environ)},
            cwd=str(config.invocation_params.dir),
            paths=tuple(sys.path),
            arguments=tuple(map(str, config.invocation_params.args)),
            rootdir=str(config.rootpath),
            folder=str(active.folder),
            limit_s=limit_s - START_LIMIT_S,
            tests=tuple(part.test for part in parts),
        )
        path = active.folder / "tasks" / f"{token}.json"
        for folder in (path.parent, active.folder / "answers", active.folder / "logs"):
            make_folder(folder)
        write_file(path, msgspec.json.encode(task))
        return [queue.python or sys.executable, "-P", far_start.__file__, str(path)]

    def _keep_hold(
        self, parts: Sequence[Part], submission: Submission, asked: float, started: list[float]
    ) -> None:
        """A line of the ledger: a task holds its device from its first line to the end of its client."""
        if submission.started is None:
            return
        others = f" and {len(parts) - 1} others" if len(parts) > 1 else ""
        given = submission.started
        self._recording.borrowed.append(
            Hold(
                test=parts[0].test.nodeid + others,
                device=f"queue:{self._queue.name} {given.device}@{given.host}",
                lease=0,
                at=started[0] - self._recording.began,
                held_s=time.monotonic() - started[0],
                waited_s=started[0] - asked,
            )
        )

    # ---- what comes of tests --------------------------------------------------------------------

    def _end(self, part: Part, result: CaseResult, session: pytest.Session) -> None:
        """Log what the far side has told of a test."""
        item, config = part.item, part.item.config
        if result.outcome is Outcome.INFRA_ERROR and not result.log:
            self._fail(part, result.outcome, result.message, session)
            return
        try:
            answer = read_answer(Path(part.test.answer), result.log)
        except DamagedError as error:
            self._lose(part, str(error), session)
            return
        from_data = config.hook.pytest_report_from_serializable
        reports = [from_data(config=config, data=data) for data in answer.reports]
        for report in reports:
            facts = getattr(report, FACTS, None)
            if facts is not None:  # the ledger has a line for each task
                facts["holds"] = []
        log_start(item)
        for warning in answer.warnings:
            item.ihook.pytest_warning_recorded.call_historic(kwargs=warning)
        log_end(item, reports, answer.left)
        check_stop(session)

    def _lose(self, part: Part, message: str, session: pytest.Session) -> None:
        """Try a test again whose task was lost, unless that was done often enough."""
        part.losses += 1
        if part.losses < ATTEMPTS:
            self._waiting.append(part)
        else:
            said = f"{message} (tried {ATTEMPTS} times)"
            self._fail(part, Outcome.INFRA_ERROR, said, session)

    def _fail(self, part: Part, outcome: Outcome, message: str, session: pytest.Session) -> None:
        """Log a test that the queue has not run."""
        item = part.item
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
        log_start(item)
        log_end(item, [report])
        check_stop(session)

    def _describe_long(self, part: Part) -> str:
        need_s = START_LIMIT_S + _need_s(part)
        return (
            f"a task for this test may take {need_s:g} s, more than queue {self._queue.name!r} allows "
            f"(task_limit_s = {self._queue.task_limit_s:g}); --tileyard-limit sets a test's own limit"
        )


def check_stop(session: pytest.Session) -> None:
    """End the run where ``--maxfail`` or a plugin has it."""
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)


def _need_s(part: Part) -> float:
    """What a test may take of its task's time."""
    return part.test.limit_s + RESTART_LIMIT_S
