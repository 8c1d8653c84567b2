"""Formats and reads the lines that a task in a foreign queue prints for machines: a prefix and JSON. The
queue may lose, cut, repeat, decorate and mix them, so each has its task's token and a digest of itself.
"""

import re
from typing import Final, Literal

import msgspec

from tileyard.artifacts.objects import digest_bytes
from tileyard.base.decoding import decode_json
from tileyard.base.model import INFRASTRUCTURE, WELL, Batch, Measurement, Mismatch, Outcome, Record
from tileyard.workers.protocol import RunEntry

Side = Literal["stdout", "stderr"]

MAX_LOG_CHARS: Final = 16_384
"""Most characters of a case's log that travel with its result: the end, which is most informative."""


class Submitted(Record):
    """What every task has: ``device``, ``device_variable``, ``prologue`` and ``probe`` of the
    queue. ``has_mask``: an unknown device gets its class's mask; ``doubted``: devices that tasks
    gave up, probed first.
    """

    token: str
    device: str
    device_variable: str = ""
    prologue: str = ""
    has_mask: bool = True
    probe: tuple[str, ...] = ()
    doubted: tuple[str, ...] = ()


class Task(Submitted, kw_only=True):
    """A task: a batch, all that it needs by content, and where it runs. ``variables`` are the names
    of the passed environment, whose digest travels separately.
    """

    batch: Batch
    entries: tuple[RunEntry, ...]
    plugins: dict[str, str] = {}
    variables: tuple[str, ...] = ()


class TaskStarted(Record):
    """The queue gave a device, and our runner is about to start on it."""

    token: str
    host: str
    device: str
    identity: str
    digest: str = ""


class CaseTurnedTo(Record):
    """The runner turned to this case: what happens next is attributed to the case."""

    token: str
    case: str
    digest: str = ""


class CaseResult(Record):
    """How a case ended. ``log`` is the end of its output."""

    token: str
    case: str
    outcome: Outcome
    seconds: float
    device: str
    message: str = ""
    measurement: Measurement | None = None
    mismatch: Mismatch | None = None
    log: str = ""
    digest: str = ""


class TaskEnded(Record):
    """The last line: the exit code that follows, and why the batch, or what is left of it, could not run."""

    token: str
    code: int
    cases: int
    message: str = ""
    digest: str = ""


class TokenRead(Record):
    """The content that the far side found under the given name; ``problem`` if there was none."""

    token: str
    host: str
    folder: str
    problem: str = ""
    digest: str = ""


Line = TaskStarted | CaseTurnedTo | CaseResult | TaskEnded | TokenRead
KINDS: Final[dict[str, type[Line]]] = {
    "TILEYARD_TASK": TaskStarted,
    "TILEYARD_CASE": CaseTurnedTo,
    "TILEYARD_RESULT": CaseResult,
    "TILEYARD_BATCH": TaskEnded,
    "TILEYARD_TOKEN": TokenRead,
}
_PREFIXES: Final = {kind: prefix for prefix, kind in KINDS.items()}
_BEGINNING: Final = re.compile(rf"({'|'.join(KINDS)}) \{{")
LAST_LINES: Final = ("TILEYARD_BATCH", "TILEYARD_TOKEN")
"""After one of these our side of a task is over."""
INFRASTRUCTURE_CODE: Final = 3


def place_of(started: TaskStarted) -> str:
    """The device of a task and its host."""
    return f"{started.device}@{started.host}"


def exit_code(outcomes: set[Outcome]) -> int:
    """The exit code of a task: 0 if all is well, 1 if a case failed, 3 for infrastructure only."""
    bad = outcomes - WELL
    if not bad:
        return 0
    return INFRASTRUCTURE_CODE if bad <= INFRASTRUCTURE else 1


def format_line(line: Line) -> str:
    """The line as it is printed, with its digest filled in and without its end."""
    signed = msgspec.structs.replace(line, digest=_digest(line))
    return f"{_PREFIXES[type(line)]} {msgspec.json.encode(signed).decode()}"


def try_read_line(text: str) -> Line | None:
    """The record in a line of output, after any prefix of the queue's; None if there is no whole one."""
    found = _BEGINNING.search(text)  # the first: a log inside a line may contain lines
    if found is None:
        return None
    try:
        line = decode_json(text[found.end() - 1 :].rstrip(), KINDS[found[1]])
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None
    return line if line.digest == _digest(line) else None


def _digest(line: Line) -> str:
    return digest_bytes(msgspec.json.encode(msgspec.structs.replace(line, digest="")))[:16]
