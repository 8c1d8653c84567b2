"""Reads what ``--hosts`` names."""

import os
import re
import shlex
import sys

from tileyard.base.errors import UsageError
from tileyard.devices.cpu import format_cores
from tileyard.engine.hosts.clusters import RayNodes, SlurmNodes
from tileyard.engine.hosts.listening import AwaitedAgents
from tileyard.engine.hosts.meeting import Address
from tileyard.engine.hosts.placing import AGENT, NamedHosts, Place, Placing

FORMS = "local:N, ssh:HOST,HOST, ray:cpus=N,gpus=N, slurm:ARGUMENTS, or listen:ADDRESS,N"
MOST_LOCAL = 64
SSH_LOST = 255
"""The exit code of ssh for an error of its own, such as a lost connection."""
MOST_AWAITED = 1000
NAME = re.compile(r"[A-Za-z0-9_\[][A-Za-z0-9_.:%@\[\]-]*")
"""What ssh and names of devices take."""
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
        return NamedHosts(_name_ssh(rest.split(",")))
    raise UsageError(f"--hosts {text!r} names no hosts", f"they are named as {FORMS}")


def _split(arguments: str) -> list[str]:
    try:
        return shlex.split(arguments)
    except ValueError as error:
        raise UsageError(
            f"--hosts: {arguments!r} cannot be split into arguments: {error}"
        ) from None


def _name_ssh(names: list[str]) -> tuple[Place, ...]:
    for name in names:
        if not NAME.fullmatch(name):
            raise UsageError(f"--hosts: {name!r} is no name of a host for ssh")
        if names.count(name) > 1:
            raise UsageError(f"--hosts names {name} twice")
    command = shlex.join((sys.executable, *AGENT))  # ssh hands it to a shell
    ssh = ("ssh", "-T", "-o", "BatchMode=yes")
    return tuple(Place(one, (*ssh, one, command), lost_code=SSH_LOST) for one in names)


def _share_this_host(count: int) -> tuple[Place, ...]:
    """Agents on this host, each with a part of its cores, or with one that others have, too."""
    cores = sorted(os.sched_getaffinity(0))
    shares = (cores[len(cores) * i // count : len(cores) * (i + 1) // count] for i in range(count))
    argv = (sys.executable, *AGENT, "--cores")
    return tuple(
        Place(
            f"local-{number}",
            (*argv, format_cores(share or (cores[number % len(cores)],))),
            is_here=True,
        )
        for number, share in enumerate(shares, 1)
    )
