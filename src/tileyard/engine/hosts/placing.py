"""How agents come to their hosts. Some are started by a command, as ssh, whose standard input and output are
the session, so that it decides who may talk to an agent; others connect to the run, and have a token for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tileyard.engine.hosts.listening import Arrival

AGENT = ("-P", "-m", "tileyard", "agent")
"""What a Python runs as an agent."""
START_LIMIT_S = 60.0
ELSEWHERE = """\
scratch=$(mktemp -d -t tileyard-host-XXXXXXXX) || exit
"$0" "$@" --scratch "$scratch"
status=$?
rm -rf "$scratch"
exit $status
"""
"""Starts an agent of a Python with files of its own, which are removed even if it is killed."""


@dataclass(frozen=True)
class Place:
    """A host by its ``name``, and the command that starts its agent, or its ``arrival``; ``is_here``: this
    host, under a data directory of its own. ``lost_code``: with this exit code the command has lost the
    agent, which may still run.
    """

    name: str
    argv: tuple[str, ...] = ()
    is_here: bool = False
    lost_code: int | None = None
    arrival: "Arrival | None" = None
    limit_s: float = START_LIMIT_S


class Placing(Protocol):
    """What ``--hosts`` names."""

    async def open(self, logs: Path, limit_s: float) -> Sequence[Place]:
        """The places of the agents, once they are there. Raises TileyardError."""

    async def close(self) -> None:
        """Give back what was taken for the agents, which have ended. Repeatable."""


@dataclass(frozen=True)
class NamedHosts:
    """Hosts that are there."""

    places: tuple[Place, ...]

    async def open(self, _logs: Path, _limit_s: float) -> Sequence[Place]:
        """The places, as they were named."""
        return self.places

    async def close(self) -> None:
        """Do nothing."""
