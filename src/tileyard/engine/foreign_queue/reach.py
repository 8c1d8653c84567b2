"""Checks that the far side of a queue sees the object store of this one."""

import asyncio
import contextlib
import os
import secrets
import socket
import tempfile
from pathlib import Path

from tileyard.base.errors import TileyardError, WorkerLostError
from tileyard.base.model import Record
from tileyard.base.modes import make_folder, write_file
from tileyard.devices.foreign import ForeignQueue, refuse_nesting
from tileyard.engine.foreign_queue.calls import Deadline, QueueCall
from tileyard.engine.foreign_queue.far_side import TOKENS
from tileyard.engine.foreign_queue.slots import require_tools
from tileyard.engine.foreign_queue.submission import ClientEnd, Submission
from tileyard.engine.foreign_queue.tasks import far_side_command

READ_LIMIT_S = 60.0
"""Seconds that the far side may take to read one file, including the start of our program."""


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
        return asyncio.run(_read_back(queue, objects))
    except TileyardError as error:
        return Reach(queue=queue.name, ok=False, message=error.message, hint=error.hint)
    except OSError as error:
        what = f"this side cannot write to {objects}: {error.strerror}"
        return Reach(queue=queue.name, ok=False, message=what)


async def _read_back(queue: ForeignQueue, objects: Path) -> Reach:
    token = secrets.token_hex(8)
    path = objects / TOKENS / token
    make_folder(path.parent)
    write_file(path, token.encode("ascii"))
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
    finally:
        with contextlib.suppress(OSError):  # remove the folders made for this, if empty
            path.unlink()
            for folder in (path.parent, objects, objects.parent):
                folder.rmdir()
    return _judge(queue, path, heard, end)


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
