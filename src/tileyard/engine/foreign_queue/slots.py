"""Provides the devices of an existing queue: each batch is a task that runs our runner."""

import asyncio
import contextlib
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from tileyard.base.errors import TileyardError, ToolMissingError, WorkerLostError
from tileyard.base.model import Batch, Device, Record
from tileyard.base.modes import make_folder, write_file
from tileyard.devices.foreign import (
    OF_TASKS,
    QUEUE_KIND,
    ForeignQueue,
    refuse_nesting,
    refuse_several,
)
from tileyard.engine.foreign_queue.far_side import TOKENS
from tileyard.engine.foreign_queue.submission import ClientEnd, Submission
from tileyard.engine.foreign_queue.tasks import (
    Deadline,
    QueueCall,
    QueueTask,
    far_side_command,
    task_limit_s,
)
from tileyard.engine.provider import LeaseProvider, Slot, UnheldSlot, Watch, infra_error
from tileyard.engine.runners import LocalDevices
from tileyard.engine.yard import Yard
from tileyard.workers.protocol import RunEntry

READ_LIMIT_S = 60.0
"""Seconds that the far side may take to read one file, including the start of our program."""


class Lenders:
    """This host and the queues of a run, as one provider: the devices of the yard, and ``others``."""

    def __init__(self, yard: Yard, queues: Sequence[ForeignQueue], *others: LeaseProvider) -> None:
        foreign = {slot.device.name for lender in others for slot in lender.slots}
        own = [d for d in yard.devices if d.kind != QUEUE_KIND and d.name not in foreign]
        self._lenders: tuple[LeaseProvider, ...] = (
            *((LocalDevices(yard, own),) if own else ()),
            *(QueueProvider(_hasten(queue, yard), yard) for queue in queues),
            *others,
        )
        slots = {slot.device.name: slot for lender in self._lenders for slot in lender.slots}
        self.slots: Sequence[Slot] = tuple(slots[device.name] for device in yard.devices)

    async def open(self) -> None:
        """Open each provider; if one cannot be opened, nothing is left behind."""
        for lender in self._lenders:
            await lender.open()

    def withdraw(self) -> None:
        """Withdraw from each provider."""
        for lender in self._lenders:
            lender.withdraw()

    async def close(self) -> None:
        """Close each provider."""
        await asyncio.gather(*(lender.close() for lender in self._lenders))


class QueueProvider:
    """The slots of one queue."""

    def __init__(self, queue: ForeignQueue, yard: Yard) -> None:
        self._queue = queue
        own = queue.make_devices()
        names = {device.name for device in own}
        more = [d for d in yard.devices if d.count > 1 and d.name.partition("*")[0] in names]
        doubted: set[str] = set()
        self._slots = tuple(QueueSlot(queue, device, yard, doubted) for device in (*own, *more))
        self.slots: Sequence[Slot] = self._slots

    async def open(self) -> None:
        """Raise ToolMissingError for a missing tool, UsageError in a task or if the queue has one device."""
        refuse_nesting(self._queue, os.environ)
        refuse_several(self._queue, max(slot.device.count for slot in self._slots), "a case")
        require_tools(self._queue)

    def withdraw(self) -> None:
        """Cancel the tasks that have no device yet."""
        for slot in self._slots:
            slot.withdraw()

    async def close(self) -> None:
        """Do nothing: a task ends with the ``run`` that submitted it."""


class QueueSlot(UnheldSlot):
    """Runs one task of the queue at a time; the queue gives a device to each task separately."""

    def __init__(
        self, queue: ForeignQueue, device: Device, yard: Yard, doubted: set[str] | None = None
    ) -> None:
        """``doubted`` are the devices that tasks of the run have given up."""
        self.device = device
        self._doubted = doubted if doubted is not None else set()
        self.appetite = queue.cases
        is_usual = device.count == 1
        self._queue = queue if is_usual else msgspec.structs.replace(queue, devices=device.count)
        self._yard = yard
        self._task: QueueTask | None = None

    async def run(self, batch: Batch, entries: Sequence[RunEntry], watch: Watch) -> bool:
        """Submit as many of ``entries`` as one task may hold, and report the results of those that ran."""
        chosen = self._choose(batch, entries, watch)
        if chosen:
            self._task = QueueTask(self._queue, self._yard, watch, batch, chosen)
            self._task.doubted = self._doubted
            try:
                await self._task.run()
            finally:
                self._task = None
        return False

    def withdraw(self) -> None:
        """Cancel the task that waits for a device, if there is one."""
        if self._task is not None:
            self._task.withdraw()

    def _choose(
        self, batch: Batch, entries: Sequence[RunEntry], watch: Watch
    ) -> tuple[RunEntry, ...]:
        """The first entries that fit the longest task; all if timed in turn. One too long is answered."""
        cases = {case.key: case for case in batch.cases}
        most = len(entries) if batch.order == "interleaved" else self._queue.cases
        chosen = tuple(entries[:most])
        while chosen:
            need_s = task_limit_s(batch, [cases[entry.case] for entry in chosen])
            if need_s <= self._queue.task_limit_s:
                return chosen
            if len(chosen) == 1 or batch.order == "interleaved":
                break
            chosen = chosen[:-1]
        for entry in chosen:
            message = (
                f"a task for this case may take {need_s:g} s, more than queue "
                f"{self._queue.name!r} allows (task_limit_s = {self._queue.task_limit_s:g})"
            )
            watch.ran(infra_error(entry.case, message), self.device.name, 0)
        return ()


def require_tools(queue: ForeignQueue) -> None:
    """Raise ToolMissingError if the queue's client, or its cancel command, is missing on this machine."""
    for field in ("submit", *OF_TASKS):
        argv: tuple[str, ...] = getattr(queue, field)
        if argv and shutil.which(argv[0]) is None:
            raise ToolMissingError(
                f"queue {queue.name!r}: {argv[0]!r}, named by `{field}`, is not on this machine",
                "put it on PATH, or name another device",
            )


def _hasten(queue: ForeignQueue, yard: Yard) -> ForeignQueue:
    """The queue, with its wait limited to this run's wait for a device."""
    limit_s = min(queue.queue_limit_s, yard.queue_limit_s)
    return msgspec.structs.replace(queue, queue_limit_s=limit_s)


class Reach(Record):
    """The result of reading a file back through a queue. ``ok`` is None if it gave no device in time."""

    queue: str
    ok: bool | None
    message: str
    hint: str = ""


def check_reach(queue: ForeignQueue, objects: Path) -> Reach:
    """Have a token in the object store read back on a device of the queue. Problems of the queue
    are the answer, not raised. Waits for a device, within the queue's limits.
    """
    try:
        refuse_nesting(queue, os.environ)
        require_tools(queue)
        with leaving_token(objects) as token:
            return asyncio.run(_read_back(queue, objects, token))
    except TileyardError as error:
        return Reach(queue=queue.name, ok=False, message=error.message, hint=error.hint)
    except OSError as error:
        what = f"this side cannot write to {objects}: {error.strerror}"
        return Reach(queue=queue.name, ok=False, message=what)


@contextlib.contextmanager
def leaving_token(objects: Path) -> Iterator[str]:
    """A token that a file in the object store holds during the block, for ``read_token``. Raises OSError."""
    token = secrets.token_hex(8)
    path = objects / TOKENS / token
    make_folder(path.parent)
    write_file(path, token.encode("ascii"))
    try:
        yield token
    finally:
        with contextlib.suppress(OSError):  # remove the folders made for this, if empty
            path.unlink()
            for folder in (path.parent, objects, objects.parent):
                folder.rmdir()


async def _read_back(queue: ForeignQueue, objects: Path, token: str) -> Reach:
    heard = Submission(token, ())
    call = QueueCall(queue, far_side_command(queue, objects, "--read-token", token), READ_LIMIT_S)
    submitted_at = asyncio.get_running_loop().time()

    def deadline() -> Deadline:
        if heard.started is None and queue.streams:
            limit_s, name = queue.queue_limit_s, "queue limit"
        else:
            limit_s, name = queue.queue_limit_s + READ_LIMIT_S + queue.margin_s, "limit"
        return Deadline(at=submitted_at + limit_s, limit=f"{name} of {limit_s:g} s")

    try:
        with tempfile.TemporaryDirectory(prefix="tileyard-doctor-") as scratch:
            end = await call.follow(heard.read, deadline, Path(scratch) / "queue.log")
    except WorkerLostError as error:
        message = f"{queue.submit[0]} could not be started: {error}"
        return Reach(queue=queue.name, ok=False, message=message)
    return _judge(queue, objects / TOKENS / token, heard, end)


def _judge(queue: ForeignQueue, path: Path, heard: Submission, end: ClientEnd) -> Reach:
    here, answer = socket.gethostname(), heard.token_read
    if answer is None and end.limit:
        message = f"no device came: {end.describe()}"
        return Reach(queue=queue.name, ok=None, message=message, hint="try when it is less busy")
    if answer is None:
        said = heard.tails.get("stderr", "").strip().splitlines()[-1:]
        first = "".join(f"the client prints {line!r}: " for line in said)
        message = heard.explain(f"{first}the far side did not answer: {end.describe()}", end)
        hint = "the far side must find the same interpreter and package; see `python` of the queue"
        hint = f"first see to what the client prints; {hint}" if said else hint
        return Reach(queue=queue.name, ok=False, message=message, hint=hint)
    sides = (
        f"this side ({here}) wrote {path}; the far side ({answer.host}) looked into {answer.folder}"
    )
    if answer.problem:
        return Reach(
            queue=queue.name,
            ok=False,
            message=f"{sides} and could not read it: {answer.problem}",
            hint="set TILEYARD_HOME to a folder that both sides mount at the same place",
        )
    if end.code != 0:
        return Reach(
            queue=queue.name, ok=False, message=f"{sides} and read it, but {end.describe()}"
        )
    return Reach(queue=queue.name, ok=True, message=f"{sides} and read it")
