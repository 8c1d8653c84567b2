"""How agents come to their hosts. Some are started by a command, as ssh, whose standard input and output are
the session, so that it decides who may talk to an agent; others connect to the run, and have a token for it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tileyard.engine.hosts.meeting import Ticket
from tileyard.processes.async_wire import StreamChannel

AGENT = ("-P", "-m", "tileyard", "agent")
"""What a Python runs as an agent."""
ANY_CODE = -1000
"""As the ``lost_code`` of a place: any exit code may be that of a lost connection."""
START_LIMIT_S = 60.0
ELSEWHERE = """\
ended=
trap ended=1 HUP INT TERM
cd && scratch=$(mktemp -d -t tileyard-host-XXXXXXXX) || exit
[ "$ended" ] || "$0" "$@" --scratch "$scratch"
status=$?
rm -rf "$scratch"
exit $status
"""
"""Starts an agent of a Python with files of its own, which are removed even if it is killed. Asked to end, it
waits for the agent, which is asked, too.
"""


class Arrival:
    """An agent that is expected, and let in once, with its ticket."""

    def __init__(self, ticket: Ticket) -> None:
        self.ticket = ticket
        self.is_spent = False
        """Whether somebody has waited for it to its end: the next agent needs an arrival of its own."""
        self._came: asyncio.Future[StreamChannel | None] = asyncio.Future()

    async def wait(self) -> StreamChannel | None:
        """The channel to the agent once it has come; None if it will not."""
        channel = await asyncio.shield(self._came)
        self.is_spent = True
        return channel

    @property
    def is_open(self) -> bool:
        """Whether it may still come."""
        return not self._came.done()

    def take(self, channel: StreamChannel) -> None:
        """Note that it came."""
        self._came.set_result(channel)

    def end(self) -> None:
        """Note that it does not come, or is gone."""
        if self.is_open:
            self._came.set_result(None)
        elif (channel := self._came.result()) is not None:
            channel.close()


@dataclass(frozen=True)
class Place:
    """A host by its ``name``, and the command that starts its agent; or ``expect`` returns the arrival of
    its next agent, with a new ticket once the last one is spent. ``is_here``: this host, under a data
    directory of its own. ``lost_code``: with this exit code, for ANY_CODE with any but 0, the command did not
    reach the host, or has lost the agent, which may still run. ``limit_s``: within which an agent begins,
    None for ever. ``devices`` are those that it offers, whatever the run names, unless it is empty.
    """

    name: str
    argv: tuple[str, ...] = ()
    is_here: bool = False
    lost_code: int | None = None
    expect: Callable[[], Awaitable[Arrival]] | None = None
    limit_s: float | None = START_LIMIT_S
    devices: tuple[str, ...] = ()


class Placing(Protocol):
    """What ``--hosts`` names. ``notice``: what its user has to do once it is open; usually nothing."""

    notice: str

    async def open(self, home: Path, limit_s: float) -> Sequence[Place]:
        """The places of the agents of a run with this data directory, which waits no longer than ``limit_s``
        for devices. Raises TileyardError.
        """

    async def wait_further(self) -> Place | None:
        """The next place of those that come while the run goes on; None if there are no more."""

    async def close(self) -> None:
        """Give back what was taken for the agents, which have ended. Repeatable."""


@dataclass(frozen=True)
class NamedHosts:
    """Hosts that are there."""

    notice = ""
    places: tuple[Place, ...]

    async def open(self, _home: Path, _limit_s: float) -> Sequence[Place]:
        """The places, as they were named."""
        return self.places

    async def wait_further(self) -> Place | None:
        """None: one that is down has its place already."""
        return None

    async def close(self) -> None:
        """Do nothing."""
