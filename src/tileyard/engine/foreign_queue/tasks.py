"""Runs one batch as a task of a foreign queue: submits it, reads its output, reports its results."""

import asyncio
import contextlib
import os
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tileyard.base.errors import WorkerLostError
from tileyard.base.events import Note
from tileyard.base.model import WELL, Batch, Case, Digest, Outcome, Record
from tileyard.base.modes import make_folder
from tileyard.base.wording import count_of
from tileyard.devices.base import class_of
from tileyard.devices.declared import is_masked
from tileyard.devices.foreign import ForeignQueue, digest_environment, fill_submit, submitter_argv
from tileyard.engine.foreign_queue.submission import ClientEnd, Submission
from tileyard.engine.provider import LeaseLostError, Watch, case_limit_s
from tileyard.engine.yard import Yard
from tileyard.processes.supervise import Worker, WorkerCommand
from tileyard.workers.protocol import CaseRan, RunEntry
from tileyard.workers.submitter import Asked, Cancel, Printed, Submit, SubmitEnded, SubmitterReply
from tileyard.workers.task_lines import CaseResult, CaseTurnedTo, Side, Task, place_of

END_MARGIN_S = 5.0
"""Seconds that ending a client may take in addition to its cancel command."""
Hear = Callable[[Side, str], object]
START_LIMIT_S: Final = 60.0
"""Seconds that a runner may take to start on the far side."""
RESTART_LIMIT_S: Final = 20.0
"""Seconds that a case that ends its runner costs in addition to its own limit."""


class Deadline(Record):
    """When a call is given up, on the loop's clock, and the name of that limit."""

    at: float
    limit: str


class Deadlines:
    """When the call for a task is given up: the innermost limit that applies now, in seconds."""

    def __init__(
        self,
        queue: ForeignQueue,
        submission: Submission,
        run_limit_s: float,
        limits: Mapping[str, float],
    ) -> None:
        self._queue = queue
        self._submission = submission
        self._limits = limits
        self._submitted_at = asyncio.get_running_loop().time()
        self._turned = ("", 0.0)
        whole_s = queue.queue_limit_s + run_limit_s + queue.margin_s
        self._whole = Deadline(
            at=self._submitted_at + whole_s,
            limit=f"limit of {whole_s:g} s (queue, run and {queue.margin_s:g} s)",
        )

    def next(self) -> Deadline:
        """The deadline that applies now; asked for after each output."""
        queue, current = self._queue, self._submission.current
        if not queue.streams:
            return self._whole
        if self._submission.started is None:
            limit = f"queue limit of {queue.queue_limit_s:g} s"
            return Deadline(at=self._submitted_at + queue.queue_limit_s, limit=limit)
        if not current:
            return self._whole
        if self._turned[0] != current:
            self._turned = (current, asyncio.get_running_loop().time())
        limit_s = self._limits[current] + queue.margin_s
        limit = f"limit of {limit_s:g} s for case {current} in the queue"
        own = Deadline(at=self._turned[1] + limit_s, limit=limit)
        return min(self._whole, own, key=lambda deadline: deadline.at)


def _asked_of(queue: ForeignQueue) -> Asked | None:
    if not (queue.wait or queue.status):
        return None
    return Asked(
        wait=queue.wait,
        status=queue.status,
        ended=queue.ended,
        output=queue.output,
        poll_s=queue.poll_s,
    )


AskDeadline = Callable[[], Deadline]


class QueueCall:
    """One call. Reports about it do not show the values of the environment."""

    def __init__(self, queue: ForeignQueue, command: Sequence[str], run_limit_s: float) -> None:
        environment = queue.pick_environment(os.environ)
        self._queue = queue
        self.cwd = str(Path.cwd())
        self.env = {**os.environ, **environment}
        self._argv = fill_submit(queue, command, environment, run_limit_s)
        hidden = dict.fromkeys(environment, "...")
        self._shown = tuple(fill_submit(queue, command, hidden, run_limit_s))

    async def follow(self, hear: Hear, deadline: AskDeadline, log: Path) -> ClientEnd:
        """Submit, pass on the output, and return how the call ended. Raises WorkerStartError.
        ``deadline`` is called after each output; when it passes, or this is cancelled, the task is
        cancelled. ``log`` gets the messages of the submitting process.
        """
        queue = self._queue
        grace_s = queue.cancel_limit_s + END_MARGIN_S
        make_folder(log.parent)
        worker = await Worker.start(
            WorkerCommand(
                argv=submitter_argv(queue),
                env=dict(os.environ),
                cwd=self.cwd,
                log=str(log),
                grace_s=grace_s,  # the time for the cancel command if the engine dies
            )
        )
        try:
            return await self._follow(worker, hear, deadline)
        finally:
            await self._end(worker, grace_s)

    async def _follow(self, worker: Worker, hear: Hear, deadline: AskDeadline) -> ClientEnd:
        queue = self._queue
        submit = Submit(
            argv=tuple(self._argv),
            cwd=self.cwd,
            env=self.env,
            cancel=queue.cancel,
            job=queue.job,
            cancel_limit_s=queue.cancel_limit_s,
            asked=_asked_of(queue),
        )
        limit, last_at = "", 0.0
        try:
            await worker.send(submit)
            while True:
                due = deadline()
                try:
                    async with asyncio.timeout_at(last_at if limit else due.at):
                        reply: SubmitterReply = await worker.receive(SubmitterReply)
                except TimeoutError:
                    if limit:  # not even the submitting process obeys
                        return self._ended(SubmitEnded(), limit)
                    limit = due.limit
                    end_s = queue.cancel_limit_s + END_MARGIN_S
                    last_at = asyncio.get_running_loop().time() + end_s
                    await worker.send(Cancel())
                    continue
                match reply:
                    case Printed(side=side, text=text):
                        hear(side, text)
                    case SubmitEnded():
                        return self._ended(reply, limit)
        except WorkerLostError as error:
            return self._ended(
                SubmitEnded(error=f"the submitting process was lost: {error}"), limit
            )

    def _ended(self, reply: SubmitEnded, limit: str) -> ClientEnd:
        ended = msgspec.structs.asdict(reply)
        return ClientEnd(argv=self._shown, cwd=self.cwd, limit=limit, **ended)

    @staticmethod
    async def _end(worker: Worker, grace_s: float) -> None:
        """Let the submitter cancel what is still in the queue, then check that its tree is gone."""
        with contextlib.suppress(WorkerLostError, TimeoutError):
            async with asyncio.timeout(grace_s):
                await worker.send(Cancel())
                await worker.ended()
        await worker.kill("the call is over")


class QueueTask:
    """One batch on its way through the queue; may add to ``doubted``, the devices that tasks gave up."""

    def __init__(
        self,
        queue: ForeignQueue,
        yard: Yard,
        watch: Watch,
        batch: Batch,
        entries: tuple[RunEntry, ...],
    ) -> None:
        self.doubted: set[str] = set()
        self._queue = queue
        self._yard = yard
        self._watch = watch
        self._logs = {entry.case: entry.log for entry in entries}
        members = tuple(case for case in batch.cases if case.key in self._logs)
        self._batch = msgspec.structs.replace(batch, cases=members)
        self._entries = entries
        limits = {case.key: case_limit_s(self._batch, case) for case in members}
        self._submission = Submission(secrets.token_hex(8), list(limits))
        self._run_limit_s = task_limit_s(batch, members)
        self._deadlines = Deadlines(queue, self._submission, self._run_limit_s, limits)
        self._answered = False
        self._stderr: list[str] = []
        self._call: asyncio.Task[ClientEnd] | None = None
        self._withdrawn = False

    async def run(self) -> None:
        """Submit, and report each case that was begun. Raises LeaseLostError if none, unless withdrawn."""
        task = self._write_task()
        objects = self._yard.objects
        command = far_side_command(self._queue, objects.root, "--batch", task)
        try:
            call = QueueCall(self._queue, command, self._run_limit_s)
            log = self._yard.home / "logs/queue.log"
            self._call = asyncio.ensure_future(call.follow(self._hear, self._deadlines.next, log))
            end = await self._call
        except asyncio.CancelledError:
            if not self._withdrawn:
                raise
            return
        except WorkerLostError as error:
            raise LeaseLostError(
                f"{self._queue.submit[0]} could not be started: {error}"
            ) from error
        finally:
            objects.path(task).unlink(missing_ok=True)  # it was for this task alone
        results, faults = self._submission.conclude(end)
        for result in results:
            self._tell(result)
        for fault in faults:
            self._yard.append_log(self._logs[fault.case], self._describe_streams(end))
            self._answer(fault)
        self._note_fault()
        if not self._answered:
            self._lose(end)
        self._keep_stderr(end)

    def withdraw(self) -> None:
        """Cancel the task unless it is known to have a device: ``run`` then returns."""
        if self._call is not None and self._submission.started is None:
            self._withdrawn = True
            self._call.cancel()

    def _write_task(self) -> Digest:
        queue = self._queue
        return self._yard.objects.put_bytes(
            msgspec.json.encode(
                Task(
                    token=self._submission.token,
                    batch=self._batch,
                    entries=self._entries,
                    plugins=self._yard.settings.plugins,
                    device=queue.device,
                    device_variable=queue.device_variable,
                    variables=tuple(queue.pick_environment(os.environ)),
                    prologue=queue.prologue,
                    has_mask=is_masked(class_of(queue.device), self._yard.settings),
                    probe=queue.probe,
                    doubted=tuple(self.doubted),
                )
            )
        )

    # ---- output ------------------------------------------------------------------------------

    def _hear(self, side: Side, text: str) -> None:
        if side == "stderr":
            self._stderr.append(text)
        for news in self._submission.read(side, text):
            if isinstance(news, CaseTurnedTo):
                self._watch.began(news.case)
            else:
                self._tell(news)

    def _tell(self, result: CaseResult) -> None:
        self._yard.append_log(self._logs[result.case], result.log)
        message = result.message
        if result.outcome in WELL and result.log.strip() and not message:
            lines = count_of(len(result.log.splitlines()), "line")
            message = f"printed {lines}, kept in its log"
        self._answer(
            CaseRan(
                case=result.case,
                outcome=result.outcome,
                seconds=result.seconds,
                message=message,
                measurement=result.measurement,
                mismatch=result.mismatch,
            )
        )

    def _answer(self, reply: CaseRan) -> None:
        self._answered = True
        self._watch.ran(reply, self._name_place(), 0)

    def _name_place(self) -> str:
        """The queue, and the device that it gave once that is known."""
        name, started = f"queue:{self._queue.name}", self._submission.started
        return f"{name} {place_of(started)}" if started is not None else name

    def _lose(self, end: ClientEnd) -> None:
        """No case was begun: answer with ``queue_timeout``, or raise LeaseLostError with what is wrong."""
        outcome, message = self._submission.find_loss(end, self._queue)
        if outcome is not Outcome.QUEUE_TIMEOUT:
            raise LeaseLostError(message, outcome)
        # Each case has waited for the whole limit. Asking again could mean waiting for ever.
        for entry in self._entries:
            self._answer(CaseRan(case=entry.case, outcome=outcome, seconds=0.0, message=message))

    def _note_fault(self) -> None:
        started, ended = self._submission.started, self._submission.ended
        if started is None or ended is None or not ended.message:
            return
        if place_of(started) not in self.doubted:
            self.doubted.add(place_of(started))
            text = f"{self._name_place()} was given up: {ended.message}"
            self._yard.emit(Note(text=text, level="warning"))

    # ---- logs --------------------------------------------------------------------------------

    def _describe_streams(self, end: ClientEnd) -> str:
        tails = self._submission.tails
        streams = "".join(f"---- {side} ends\n{tails[side]}\n" for side in tails)
        return f"---- {end.describe()}\n---- argv {list(end.argv)}\n---- in {end.cwd}\n{streams}"

    def _keep_stderr(self, end: ClientEnd) -> None:
        """Keep the messages of a client that ended well and complained, not just named its task."""
        lines = "".join(self._stderr).splitlines(keepends=True)
        text = "".join(line for line in lines if not (end.job and end.job in line))
        if not text.strip() or end.code != 0:
            return
        folder = Path(self._entries[0].log).parent
        log = str(folder / f"queue-{self._submission.token}.stderr.log")
        self._yard.append_log(log, text)
        count = count_of(len(text.splitlines()), "line")
        self._yard.emit(
            Note(
                text=f"queue {self._queue.name}: a task that ended well wrote {count} to "
                f"stderr, kept in {log}",
                level="warning",
            )
        )


def far_side_command(queue: ForeignQueue, objects: Path, *what: str) -> list[str]:
    """Our own command, to be run on a device of the queue."""
    digest = digest_environment(queue.pick_environment(os.environ))
    return [
        queue.python or sys.executable,
        "-P",
        "-m",
        "tileyard",
        "run-artifact",
        "--objects",
        str(objects),
        "--environment",
        digest,
        *what,
    ]


def task_limit_s(batch: Batch, members: Sequence[Case]) -> float:
    """Seconds that a task with these cases may take if each of them needs all of its limit."""
    runs_s = sum(case.limits.run_s for case in members)
    if batch.order == "interleaved":
        runs_s *= 2  # checked one by one, then timed in turn
    return START_LIMIT_S + runs_s + RESTART_LIMIT_S * len(members)
