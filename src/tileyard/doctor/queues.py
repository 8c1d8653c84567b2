"""Foreign queues: whether their client is here, and whether their far side sees the object store."""

import os
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from tileyard.devices.foreign import SUBMISSION_VARIABLE
from tileyard.devices.queues import PREFIX, read_queues
from tileyard.doctor.findings import Finding, Level
from tileyard.engine.foreign_queue.reach import Reach, check_reach
from tileyard.settings import Settings

WAIT_S: Final = 60.0
"""How long a queue may take to give a device for this."""

LEVELS: Final[Mapping[bool | None, Level]] = {
    True: Level.OK,
    False: Level.FAIL,
    None: Level.WARN,
}


def check_queues(settings: Settings) -> Iterator[Finding]:
    """Write a file into the object store and read it back through each declared queue."""
    if os.environ.get(SUBMISSION_VARIABLE):
        return  # this is a far side itself
    for queue in read_queues(settings):
        brief = msgspec.structs.replace(queue, queue_limit_s=min(queue.queue_limit_s, WAIT_S))
        yield _describe(check_reach(brief, settings.make_home() / "objects"))


def _describe(reach: Reach) -> Finding:
    return Finding(
        subject=PREFIX + reach.queue,
        level=LEVELS[reach.ok],
        message=reach.message,
        todo=reach.hint,
    )
