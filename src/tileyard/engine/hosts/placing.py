"""How agents come to their hosts: the command that starts each, whose standard input and output are the
session. So who may talk to an agent is decided by what started it, as ssh.
"""

import os
import re
import shlex
import sys
from dataclasses import dataclass

from tileyard.base.errors import UsageError
from tileyard.devices.cpu import format_cores

AGENT = (sys.executable, "-P", "-m", "tileyard", "agent")
FORMS = "local:N, or ssh:HOST,HOST"
MOST_LOCAL = 64
SSH_LOST = 255
NAME = re.compile(r"[A-Za-z0-9_\[][A-Za-z0-9_.:%@\[\]-]*")
"""What ssh and names of devices take."""


@dataclass(frozen=True)
class Place:
    """A host by its ``name``, and the command that starts its agent; ``is_here``: this host, under a
    data directory of its own. ``lost_code``: with this exit code the command has lost the agent, which may
    still run.
    """

    name: str
    argv: tuple[str, ...]
    is_here: bool = False
    lost_code: int | None = None


def parse_hosts(text: str) -> tuple[Place, ...]:
    """The places that ``--hosts`` names. Raises UsageError."""
    kind, _, rest = text.partition(":")
    if kind == "local" and rest.isdecimal() and 0 < int(rest) <= MOST_LOCAL:
        return _share_this_host(int(rest))
    names = rest.split(",")
    if kind != "ssh" or not all(names):
        raise UsageError(f"--hosts {text!r} names no hosts", f"they are named as {FORMS}")
    for name in names:
        if not NAME.fullmatch(name):
            raise UsageError(f"--hosts: {name!r} is no name of a host for ssh")
        if names.count(name) > 1:
            raise UsageError(f"--hosts names {name} twice")
    command = shlex.join(AGENT)  # ssh hands it to a shell
    ssh = ("ssh", "-T", "-o", "BatchMode=yes")
    return tuple(Place(one, (*ssh, one, command), lost_code=SSH_LOST) for one in names)


def _share_this_host(count: int) -> tuple[Place, ...]:
    """Agents on this host, each with a part of its cores, or all with one core if there are too few."""
    cores = sorted(os.sched_getaffinity(0))
    shares = (cores[len(cores) * i // count : len(cores) * (i + 1) // count] for i in range(count))
    return tuple(
        Place(
            f"local-{number}",
            (*AGENT, "--cores", format_cores(share or (cores[number % len(cores)],))),
            is_here=True,
        )
        for number, share in enumerate(shares, 1)
    )
