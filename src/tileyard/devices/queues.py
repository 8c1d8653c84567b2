"""The foreign queues of this site, and what this host knows of them unasked: clients, and our tasks."""

import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Final

import msgspec

from tileyard.base.errors import UsageError
from tileyard.base.model import Record
from tileyard.base.settings import Settings, read_tables
from tileyard.devices.base import class_of
from tileyard.devices.declared import declaration_files
from tileyard.devices.foreign import QUEUE_KIND, ForeignQueue, decode_queues

PREFIX = f"{QUEUE_KIND}:"
SUBMITTER: Final = "tileyard.workers.submitter"
_SUBMITTER_WORDS: Final = ("-P", "-m", SUBMITTER)


def read_queues(settings: Settings) -> tuple[ForeignQueue, ...]:
    """All declared queues, in order; later files win. Raises UsageError with file, queue and field."""
    queues: dict[str, ForeignQueue] = {}
    for path in declaration_files(settings):
        declared = decode_queues(read_tables(path).get("queue", ()), str(path))
        queues.update({queue.name: queue for queue in declared})
    return tuple(queues.values())


def find_queue(name: str, settings: Settings) -> ForeignQueue:
    """The queue of ``queue:NAME``. Raises UsageError if there is none."""
    queues = {queue.name: queue for queue in read_queues(settings)}
    found = queues.get(name.removeprefix(PREFIX))
    if found is None or not is_queue(name):
        known = ", ".join(PREFIX + known for known in queues) or "none is declared"
        raise UsageError(f"there is no queue {name!r}", f"queues: {known}")
    return found


def is_queue(name: str) -> bool:
    """Whether this is the name of a queue rather than of a device of this host."""
    return name.startswith(PREFIX)


class QueueState(Record):
    """One declared queue: ``tool`` submits, if found. ``tasks`` counts those of this host's
    tileyards in the queue, waiting or running, but hidden users' and containers'.
    """

    name: str
    kind: str = msgspec.field(name="class")
    identity: str
    slots: int
    tool: str
    is_tool_found: bool
    tasks: int


def submitter_argv(queue: ForeignQueue) -> tuple[str, ...]:
    """The command of the process that submits a task and follows it to its end."""
    return (sys.executable, *_SUBMITTER_WORDS, queue.name)


def survey_queues(settings: Settings, root: Path = Path("/")) -> tuple[QueueState, ...]:
    """Every declared queue; quick, as none is asked. Raises UsageError for an invalid declaration."""
    queues = read_queues(settings)
    tasks = _count_tasks(root) if queues else Counter[str]()
    return tuple(
        QueueState(
            name=PREFIX + queue.name,
            kind=class_of(queue.device),
            identity=queue.identity,
            slots=queue.slots,
            tool=queue.submit[0],
            is_tool_found=shutil.which(queue.submit[0]) is not None,
            tasks=tasks[queue.name],
        )
        for queue in queues
    )


def _count_tasks(root: Path) -> Counter[str]:
    """By queue, the number of our processes that follow a task: one per task, until its end."""
    tasks: Counter[str] = Counter()
    for path in (root / "proc").glob("[0-9]*/cmdline"):
        try:
            argv = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:  # it has just ended, or is hidden
            continue
        if argv[1:4] == [*_SUBMITTER_WORDS] and len(argv) > 4:
            tasks[argv[4]] += 1
    return tasks
