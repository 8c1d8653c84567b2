"""Makes one call of a foreign queue's client: starts it under a keeper, follows it, and ends it in
any case. The call has its own deadline; an unwanted task is cancelled before its client ends.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from tileyard.base.errors import WorkerLostError
from tileyard.base.model import Record
from tileyard.base.modes import make_folder
from tileyard.devices.foreign import ForeignQueue, fill_submit
from tileyard.devices.queues import submitter_argv
from tileyard.engine.foreign_queue.submission import ClientEnd, Submission
from tileyard.processes.supervise import Worker, WorkerCommand
from tileyard.workers.submitter import Asked, Cancel, Printed, Submit, SubmitEnded, SubmitterReply
from tileyard.workers.task_lines import Side

END_MARGIN_S = 5.0
"""Seconds that ending a client may take in addition to its cancel command."""


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


Hear = Callable[[Side, str], object]
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
