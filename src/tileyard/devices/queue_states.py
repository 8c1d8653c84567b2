"""Foreign queues as far as this host knows them without asking: declaration, client, our tasks."""

import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Final

import msgspec

from tileyard.devices.foreign import ForeignQueue
from tileyard.devices.names import class_of
from tileyard.devices.queues import PREFIX, read_queues
from tileyard.model import Record
from tileyard.settings import Settings

SUBMITTER: Final = "tileyard.workers.submitter"
_SUBMITTER_WORDS: Final = ("-P", "-m", SUBMITTER)


class QueueState(Record):
    """One declared queue.

    ``tool`` is the program that submits, ``is_tool_found`` whether it is on this machine. ``tasks``
    is how many tasks the tileyards of this host have in the queue, waiting or running there; one
    does not see those of users or containers whose processes are hidden.
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
    """Every declared queue. Asks no queue, so it is quick whatever state they are in.

    Raises UsageError where a declaration is not valid.
    """
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
    """By queue, how many processes of ours follow a task: there is one for each, until its end."""
    tasks: Counter[str] = Counter()
    for path in (root / "proc").glob("[0-9]*/cmdline"):
        try:
            argv = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:  # it has just ended, or is hidden
            continue
        if argv[1:4] == [*_SUBMITTER_WORDS] and len(argv) > 4:
            tasks[argv[4]] += 1
    return tasks
