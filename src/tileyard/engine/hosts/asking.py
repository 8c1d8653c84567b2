"""Asks the agents of several hosts at the same time, each in a session of its own."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Generic, TypeVar

from tileyard.artifacts.objects import ObjectStore
from tileyard.base.errors import TileyardError
from tileyard.base.model import Record
from tileyard.base.settings import Settings
from tileyard.devices.survey import Survey
from tileyard.engine.hosts.meeting import START_LIMIT_S, Place, Placing
from tileyard.engine.hosts.messages import HostSurveyed, SurveyHost
from tileyard.engine.hosts.naming import parse_hosts
from tileyard.engine.hosts.session import HostSession, SessionLostError
from tileyard.processes.supervise import time_limit

T = TypeVar("T")


class HostAnswer(Record, Generic[T], kw_only=True):
    """What a host answered; None if it could not, for a ``problem`` in one line."""

    host: str
    answer: T | None = None
    problem: str = ""


def survey_hosts(hosts: str, settings: Settings, window_s: float) -> tuple[HostAnswer[Survey], ...]:
    """The devices of each host, as it sees them. Raises UsageError if ``hosts`` are none."""

    async def ask(session: HostSession) -> Survey:
        return (await session.ask(SurveyHost(window_s=window_s), HostSurveyed)).survey

    return ask_hosts(hosts, settings, ask)


def ask_hosts(
    hosts: str, settings: Settings, ask: Callable[[HostSession], Awaitable[T]]
) -> tuple[HostAnswer[T], ...]:
    """What ``ask`` returns for each host's session, or what was wrong. Raises UsageError if ``hosts`` are
    none, or the data directory cannot be made.
    """
    placing = parse_hosts(hosts)
    settings.make_home()
    return asyncio.run(_ask_all(placing, settings, ask))


async def _ask_all(
    placing: Placing, settings: Settings, ask: Callable[[HostSession], Awaitable[T]]
) -> tuple[HostAnswer[T], ...]:
    async def ask_one(place: Place) -> HostAnswer[T]:
        async with asking(place, settings, ask) as answer:
            return answer

    try:
        places = await placing.open(settings.home, START_LIMIT_S)
        if placing.notice:
            sys.stderr.write(f"{placing.notice}\n")
        return tuple(await asyncio.gather(*map(ask_one, places)))
    finally:
        await placing.close()


@contextlib.asynccontextmanager
async def asking(
    place: Place,
    settings: Settings,
    ask: Callable[[HostSession], Awaitable[T]],
    limit_s: float | None = None,
) -> AsyncIterator[HostAnswer[T]]:
    """What ``ask`` returns for a host's session, or what was wrong, within ``limit_s``. The session ends with
    the block.
    """
    log = settings.home / "logs" / f"agent-{place.name}.log"
    session = HostSession(place, ObjectStore(settings.home / "objects"), log)
    try:
        try:
            async with time_limit(limit_s):
                await session.open()
                answer = HostAnswer(host=place.name, answer=await ask(session))
        except (TileyardError, SessionLostError) as error:
            answer = HostAnswer(host=place.name, problem=str(error))
        except TimeoutError:
            problem = f"host {place.name}: no answer within {limit_s:g} s"
            answer = HostAnswer(host=place.name, problem=problem)
        yield answer
    finally:
        await session.close()
