"""Submits work to a device of another queue: many parts in one task, each with its own result. A
lost task blames the part it was doing, which is tried again at most twice, as the last of a further
task. Finished parts are recorded on the far side.
"""

import asyncio
import os
import secrets
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import msgspec
import pytest

from tileyard.artifacts.objects import digest_bytes
from tileyard.base.errors import UsageError, WorkerLostError
from tileyard.base.model import Outcome
from tileyard.base.modes import make_folder, write_file
from tileyard.devices.base import class_of
from tileyard.devices.declared import is_masked
from tileyard.devices.foreign import ForeignQueue, refuse_several
from tileyard.engine.foreign_queue.submission import ClientEnd, Submission
from tileyard.engine.foreign_queue.tasks import RESTART_LIMIT_S, START_LIMIT_S, Deadlines, QueueCall
from tileyard.pytest_plugin import far_start
from tileyard.pytest_plugin.active import Active
from tileyard.pytest_plugin.far_records import FarCall, FarTask, FarTest, Hold, TestFacts, lines_of
from tileyard.pytest_plugin.recording import Recording
from tileyard.workers.task_lines import CaseResult, Side, place_of

T = TypeVar("T")
TASKS: Final = "tasks"
"""Folder below the run's: the files of tasks, and what the far side has written for each."""
ATTEMPTS: Final = 3
"""Number of attempts at a part whose task is lost."""
OWN: Final = (sys.prefix, sys.base_prefix)
"""The library locations of this interpreter; the far side's has its own."""


@dataclass(eq=False, kw_only=True)
class Part:
    """A part on its way through the queue, and the number of tasks that were lost with it."""

    work: FarTest | FarCall
    ended: asyncio.Future[CaseResult]
    losses: int = 0

    @property
    def kind(self) -> tuple[type, int]:
        """The properties that all parts of a task share: their type, and the number of devices each holds."""
        return type(self.work), self.work.devices

    @property
    def need_s(self) -> float:
        """Its limit in its task's time."""
        return self.work.limit_s + RESTART_LIMIT_S

    def end(self, outcome: Outcome, message: str) -> None:
        """Record that the queue has not run it."""
        result = CaseResult(
            token="", case=self.work.name, outcome=outcome, seconds=0.0, device="", message=message
        )
        self.ended.set_result(result)


class FarTasks:
    """The tasks of a run. ``busy`` is the number of things in progress here that may need a device later."""

    def __init__(
        self, queue: ForeignQueue, active: Active, config: pytest.Config, recording: Recording
    ) -> None:
        limit_s = min(queue.queue_limit_s, active.options.queue_limit_s)
        self._queue = msgspec.structs.replace(queue, queue_limit_s=limit_s)
        self._active = active
        self._config = config
        self._recording = recording
        self._waiting: list[Part] = []
        self._doubted: set[str] = set()
        self._changed = asyncio.Event()
        self.busy = 0

    async def run(self, work: FarTest | FarCall) -> CaseResult:
        """Run it in some task. A result without a digest, its ``log``, has no answer in its file."""
        part = Part(work=work, ended=asyncio.get_running_loop().create_future())
        try:
            refuse_several(self._queue, work.devices, f"tile_device(count={work.devices})")
        except UsageError as error:
            part.end(Outcome.INFRA_ERROR, str(error))
        else:
            self._put(part)
        return await part.ended

    def rest(self) -> None:
        """One of the busy things is no longer busy."""
        self.busy -= 1
        self._changed.set()

    async def serve(self) -> None:
        """Submit one task after another, until cancelled. One that is not full waits for busy ones."""
        while True:
            kind = find_due([part.kind for part in self._waiting], self._queue.cases, self.busy)
            if kind is None:
                self._changed.clear()
                await self._changed.wait()
            elif parts := self._take(kind):
                await self._submit(parts)

    def _put(self, part: Part) -> None:
        self._waiting.append(part)
        self._changed.set()

    def _take(self, kind: tuple[type, int]) -> list[Part]:
        """The parts of one task: of this kind, and last a part that was lost before."""
        alike = [part for part in self._waiting if part.kind == kind]
        taken = sorted(alike, key=lambda part: part.losses)[: self._queue.cases]
        self._waiting = [part for part in self._waiting if part not in taken]
        longest_s = self._queue.task_limit_s
        for part in [part for part in taken if START_LIMIT_S + part.need_s > longest_s]:
            message = (
                f"a task for this test may take {START_LIMIT_S + part.need_s:g} s, more than queue "
                f"{self._queue.name!r} allows (task_limit_s = {longest_s:g}); --tileyard-limit sets a "
                "test's own limit"
            )
            part.end(Outcome.INFRA_ERROR, message)
            taken.remove(part)
        return taken

    # ---- one task -----------------------------------------------------------------------------

    async def _submit(self, parts: list[Part]) -> None:
        count = parts[0].work.devices  # per part; 1 is what the queue gives by default
        queue = self._queue if count == 1 else msgspec.structs.replace(self._queue, devices=count)
        left = {part.work.name: part for part in parts}
        limits = {part.work.name: part.work.limit_s for part in parts}
        run_limit_s = min(queue.task_limit_s, START_LIMIT_S + sum(part.need_s for part in parts))
        submission = Submission(secrets.token_hex(8), list(left))
        started: list[float] = []
        asked = time.monotonic()

        def hear(side: Side, text: str) -> None:
            for news in submission.read(side, text):
                if isinstance(news, CaseResult):
                    self._take_in(left.pop(news.case), news)
            if submission.started is not None and not started:
                started.append(time.monotonic())

        command = self._write_task(submission.token, parts, run_limit_s - START_LIMIT_S)
        call = QueueCall(queue, command, run_limit_s)
        deadlines = Deadlines(queue, submission, run_limit_s, limits)
        try:
            end = await call.follow(hear, deadlines.next, self._active.folder / "logs/queue.log")
        except WorkerLostError as error:
            end = ClientEnd(argv=queue.submit, cwd=call.cwd, error=str(error))
        finally:
            if started:
                self._keep_hold(parts, submission, asked, started[0])
        lines = lines_of(self._active.folder / TASKS / f"{submission.token}.json")
        written = submission.take_over(lines.read_text()) if lines.exists() else []
        results, faults = submission.conclude(end)
        for result in (*written, *results):
            if result.case in left:
                self._take_in(left.pop(result.case), result)
        for fault in faults:
            if fault.case in left:
                self._lose(left.pop(fault.case), fault.message)
        if submission.started and submission.ended and submission.ended.message:
            self._doubted.add(place_of(submission.started))
        if len(left) < len(parts):
            for part in left.values():
                self._put(part)
            return
        outcome, message = submission.find_loss(end, queue)
        for part in left.values():
            if outcome is Outcome.QUEUE_TIMEOUT:
                part.end(outcome, message)
            else:
                self._lose(part, message)

    def _write_task(self, token: str, parts: Sequence[Part], limit_s: float) -> list[str]:
        """Write the task's own file; returns the command that runs it."""
        active, queue, config = self._active, self._queue, self._config
        pytests = {name: text for name, text in os.environ.items() if name.startswith("PYTEST_")}
        task = FarTask(
            token=token,
            device=queue.device,
            device_variable=queue.device_variable,
            prologue=queue.prologue,
            has_mask=is_masked(class_of(queue.device), active.settings),
            probe=queue.probe,
            doubted=tuple(self._doubted),
            environment={**pytests, **queue.pick_environment(os.environ)},
            cwd=str(config.invocation_params.dir),
            paths=tuple(path for path in sys.path if not path.startswith(OWN)),
            arguments=tuple(map(str, config.invocation_params.args)),
            rootdir=str(config.rootpath),
            folder=str(active.folder),
            limit_s=limit_s,
            devices=parts[0].work.devices,
            tests=tuple(part.work for part in parts if isinstance(part.work, FarTest)),
            calls=tuple(part.work for part in parts if isinstance(part.work, FarCall)),
        )
        path = active.folder / TASKS / f"{token}.json"
        for folder in (path.parent, active.folder / "answers", active.folder / "logs"):
            make_folder(folder)
        for part in parts:
            Path(part.work.answer).unlink(missing_ok=True)  # of a lost task
        write_file(path, msgspec.json.encode(task))
        return [queue.python or sys.executable, "-P", far_start.__file__, str(path)]

    def _keep_hold(
        self, parts: Sequence[Part], submission: Submission, asked: float, at: float
    ) -> None:
        """Add to the ledger: a task holds its device from its first line to the end of its client."""
        given = submission.started
        others = f" and {len(parts) - 1} others" if len(parts) > 1 else ""
        place = f" {place_of(given)}" if given is not None else ""
        self._recording.borrowed.append(
            Hold(
                test=parts[0].work.name + others,
                device=f"queue:{self._queue.name}{place}",
                lease=0,
                at=at - self._recording.began,
                held_s=time.monotonic() - at,
                waited_s=at - asked,
            )
        )
        if isinstance(sys.exception(), asyncio.CancelledError):  # the tests of calls are named here
            facts = TestFacts(seconds=time.monotonic() - at, outcome=Outcome.NOT_RUN)
            running = [part.work for part in parts if part.work.name == submission.current]
            tests = (work.name for work in running if isinstance(work, FarTest))
            self._recording.interrupted |= dict.fromkeys(tests, facts)

    def _take_in(self, part: Part, result: CaseResult) -> None:
        """Accept a result whose file exists and matches what the far side reported."""
        if result.log:
            try:
                is_right = digest_bytes(Path(part.work.answer).read_bytes()) == result.log
            except OSError:
                is_right = False
            if not is_right:
                self._lose(part, f"{part.work.answer} was not written by the queue's task")
                return
        part.ended.set_result(result)

    def _lose(self, part: Part, message: str) -> None:
        """Have it tried again, unless its attempts are used up."""
        part.losses += 1
        if part.losses < ATTEMPTS:
            self._put(part)
        else:
            said, *details = message.partition(" [")
            part.end(Outcome.INFRA_ERROR, f"{said} (tried {ATTEMPTS} times){''.join(details)}")


def find_due(waiting: Sequence[T], cases: int, busy: int) -> T | None:
    """The kind of the next task, given waiting parts' kinds: one that fills a task; any, if none is busy."""
    counts = Counter(waiting)
    full = next((kind for kind in waiting if counts[kind] >= cases), None)
    return full if full is not None or busy else next(iter(waiting), None)
