"""The devices of other hosts, asked for in the background while somebody looks at them."""

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Final

from tileyard.base.errors import UsageError
from tileyard.base.model import Record
from tileyard.base.settings import Settings
from tileyard.devices.survey import Survey
from tileyard.engine.hosts.meeting import NamedHosts, Place
from tileyard.engine.hosts.messages import (
    HostSurveyed,
    IdentifyPython,
    PythonIdentified,
    SurveyHost,
)
from tileyard.engine.hosts.naming import HostAnswer, asking, parse_hosts
from tileyard.engine.hosts.session import HostSession

FORMS: Final = "ssh:HOST,HOST, local:N, or FILE.toml"
"""Hosts that can be asked at any time; others take a place in a queue, or connect by themselves."""
WINDOW_S: Final = 0.1
"""Seconds for which devices are observed."""
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pace:
    """A host is asked once in ``period_s``, and has ``limit_s`` to start an agent and to answer."""

    period_s: float = 30.0
    limit_s: float = 20.0


PACE: Final = Pace()


class Seen(Record):
    """The devices of a host, and the version of the Python that its agent runs."""

    survey: Survey
    python: str


class HostState(Record, kw_only=True):
    """What a host answered last, at this time of this host's clock; None before its first answer."""

    host: str
    answer: HostAnswer[Seen] | None = None
    at: float = 0.0


class AskedHost:
    """A host, which is asked by one task at a time."""

    def __init__(self, place: Place, settings: Settings, pace: Pace) -> None:
        self.state = HostState(host=place.name)
        self._place = place
        self._settings = settings
        self._pace = pace
        self._begun_s = float("-inf")
        self._task: asyncio.Task[None] | None = None
        self._is_asking = False

    def look(self) -> None:
        """Ask it in the background, if that is due."""
        is_idle = self._task is None or self._task.done()
        if is_idle and monotonic() - self._begun_s >= self._pace.period_s:
            self._begun_s, self._is_asking = monotonic(), True
            self._task = asyncio.create_task(self._ask())

    async def _ask(self) -> None:
        try:
            async with asking(self._place, self._settings, _see, self._pace.limit_s) as answer:
                self._is_asking = False
                self.state = HostState(host=self._place.name, answer=answer, at=time.time())
        except Exception:
            log.exception("host %s could not be asked", self._place.name)

    async def close(self) -> None:
        """Ask no more, and wait until its agent has ended."""
        if self._task is not None:
            if self._is_asking:  # else its agent ends already, which nothing may cancel
                self._task.cancel()
            await asyncio.wait({self._task})


async def _see(session: HostSession) -> Seen:
    python = await session.ask(IdentifyPython(python=""), PythonIdentified)
    survey = await session.ask(SurveyHost(window_s=WINDOW_S), HostSurveyed)
    return Seen(survey=survey.survey, python=python.identity.partition(" (")[0])


class AskedHosts:
    """The hosts whose devices are shown beside those of this host."""

    def __init__(self, places: Sequence[Place], settings: Settings, pace: Pace = PACE) -> None:
        self._hosts = [AskedHost(place, settings, pace) for place in places]
        self._is_closed = False

    def look(self) -> tuple[HostState, ...]:
        """What each has answered last, at once. Those that were not asked lately are asked meanwhile."""
        if not self._is_closed:
            for host in self._hosts:
                host.look()
        return tuple(host.state for host in self._hosts)

    async def close(self) -> None:
        """End all agents."""
        self._is_closed = True
        await asyncio.gather(*(host.close() for host in self._hosts))


def find_places(hosts: str) -> tuple[Place, ...]:
    """The places of the hosts that are asked; none for an empty text. Raises UsageError."""
    if not hosts:
        return ()
    placing = parse_hosts(hosts)
    if not isinstance(placing, NamedHosts):
        raise UsageError(f"--hosts {hosts!r}: these cannot be asked at any time", f"name {FORMS}")
    return placing.places
