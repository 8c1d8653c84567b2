"""Reads what ``--hosts`` names, and asks these hosts at the same time, each in a session of its own."""

import asyncio
import contextlib
import os
import re
import shlex
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Generic, TypeVar

from tileyard.artifacts.objects import ObjectStore
from tileyard.base.errors import TileyardError, UsageError
from tileyard.base.model import Record
from tileyard.base.places import Document, Strict, decode
from tileyard.base.places import Place as FilePlace
from tileyard.base.settings import Settings
from tileyard.devices.cpu import format_cores, share_out
from tileyard.devices.survey import Survey
from tileyard.engine.hosts.clusters import RayNodes, SlurmNodes
from tileyard.engine.hosts.listening import AwaitedAgents
from tileyard.engine.hosts.meeting import (
    AGENT,
    ANY_CODE,
    START_LIMIT_S,
    Address,
    NamedHosts,
    Place,
    Placing,
)
from tileyard.engine.hosts.messages import HostSurveyed, SurveyHost
from tileyard.engine.hosts.session import HostSession, SessionLostError
from tileyard.processes.supervise import time_limit

FORMS = "local:N, ssh:HOST,HOST, ray:cpus=N,gpus=N, slurm:ARGUMENTS, listen:ADDRESS,N, or FILE.toml"
MOST_LOCAL = 64
SSH_LOST = 255
"""The exit code of ssh for an error of its own, such as a lost connection."""
MOST_AWAITED = 1000
NAME = re.compile(r"[A-Za-z0-9_\[][A-Za-z0-9_.:%@\[\]-]*")
"""What ssh and names of devices take."""
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
RESOURCES = re.compile(r"(?:cpus=([1-9]\d{0,5}))?,?(?:gpus=(\d{1,4}))?")


def parse_hosts(text: str) -> Placing:
    """How the agents come to the hosts that ``--hosts`` names. Raises UsageError, and ToolMissingError."""
    kind, _, rest = text.partition(":")
    if kind == "local" and rest.isdecimal() and 0 < int(rest) <= MOST_LOCAL:
        return NamedHosts(_share_this_host(int(rest)))
    if kind == "ray" and rest and (found := RESOURCES.fullmatch(rest)):
        return RayNodes(cpus=int(found[1] or 1), gpus=int(found[2] or 0))
    address, _, count = rest.rpartition(",")
    if kind == "listen" and address and count.isdecimal() and 0 < int(count) <= MOST_AWAITED:
        return AwaitedAgents(Address.parse(address), int(count))
    if kind == "slurm" and (not rest or rest.startswith("-")):
        return SlurmNodes(_split(rest))
    if kind == "ssh" and rest:
        return _reach(Host(name=name) for name in rest.split(","))
    if text.endswith(".toml"):
        return _reach(_read_hosts(Path(text)))
    raise UsageError(f"--hosts {text!r} names no hosts", f"they are named as {FORMS}")


def _split(arguments: str) -> list[str]:
    try:
        return shlex.split(arguments)
    except ValueError as error:
        raise UsageError(
            f"--hosts: {arguments!r} cannot be split into arguments: {error}"
        ) from None


class Host(Strict):
    """A host of a file. ssh reaches it as ``ssh``, by default its name; or else the command ``reach`` does,
    with the agent's behind it. ``python`` is the interpreter there, by default at the path of this one;
    ``devices`` count instead of those that the run names.
    """

    name: str
    ssh: str = ""
    reach: tuple[str, ...] = ()
    python: str = sys.executable
    devices: tuple[str, ...] = ()
    env: dict[str, str] = {}


class HostsFile(Strict):
    """A file of hosts."""

    host: tuple[Host, ...]


def _read_hosts(path: Path) -> tuple[Host, ...]:
    document = Document(path)
    place = FilePlace(document=document)
    hosts = decode(document.table, HostsFile, place).host
    if not hosts:
        (place / "host").fail("names no host")
    for number, host in enumerate(hosts):
        for key in host.env:
            if not VARIABLE.fullmatch(key):
                (place / "host" / number / "env" / key).fail("is no name of a variable")
        if host.reach and host.ssh:
            (place / "host" / number / "reach").fail("replaces ssh: give one of them")
    return hosts


def _reach(hosts: Iterable[Host]) -> NamedHosts:
    """The places of these hosts. Raises UsageError for a name that ssh or a device cannot have."""
    places: dict[str, Place] = {}
    for host in hosts:
        for name in (host.name, host.ssh or host.name):
            if not NAME.fullmatch(name):
                raise UsageError(f"--hosts: {name!r} is no name of a host for ssh")
        if host.name in places:
            raise UsageError(f"--hosts names {host.name} twice")
        variables = [f"{key}={text}" for key, text in host.env.items()]
        agent = (*(["env", *variables] if variables else ()), host.python, *AGENT)
        argv, lost_code = (*host.reach, *agent), ANY_CODE
        if not host.reach:
            to = host.ssh or host.name
            argv = ("ssh", "-T", "-o", "BatchMode=yes", to, shlex.join(agent))  # to a shell
            lost_code = SSH_LOST
        places[host.name] = Place(host.name, argv, lost_code=lost_code, devices=host.devices)
    return NamedHosts(tuple(places.values()))


def _share_this_host(count: int) -> tuple[Place, ...]:
    """Agents on this host, each with a part of its cores, or with one that others have, too."""
    cores = sorted(os.sched_getaffinity(0))
    argv = (sys.executable, *AGENT, "--cores")
    return tuple(
        Place(
            f"local-{number}",
            (*argv, format_cores(share or (cores[number % len(cores)],))),
            is_here=True,
        )
        for number, share in enumerate(share_out(cores, count), 1)
    )


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
