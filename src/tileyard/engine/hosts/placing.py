"""How agents come to their hosts: the command that starts each, whose standard input and output are the
session. So who may talk to an agent is decided by what started it, as ssh.
"""

import re
import shlex
import sys
from dataclasses import dataclass

from tileyard.base.errors import UsageError

AGENT = (sys.executable, "-P", "-m", "tileyard", "agent")
FORMS = "local:N, or ssh:HOST,HOST"
MOST_LOCAL = 64
NAME = re.compile(r"[A-Za-z0-9_\[][A-Za-z0-9_.:%@\[\]-]*")
"""What ssh and names of devices take."""


@dataclass(frozen=True)
class Place:
    """A host by its ``name``, and the command that starts its agent; ``is_here``: with files of its own."""

    name: str
    argv: tuple[str, ...]
    is_here: bool = False


def parse_hosts(text: str) -> tuple[Place, ...]:
    """The places that ``--hosts`` names. Raises UsageError."""
    kind, _, rest = text.partition(":")
    if kind == "local" and rest.isdecimal() and 0 < int(rest) <= MOST_LOCAL:
        return tuple(Place(f"local-{one}", AGENT, is_here=True) for one in range(1, int(rest) + 1))
    names = rest.split(",")
    if kind != "ssh" or not all(names):
        raise UsageError(f"--hosts {text!r} names no hosts", f"they are named as {FORMS}")
    for name in names:
        if not NAME.fullmatch(name):
            raise UsageError(f"--hosts: {name!r} is no name of a host for ssh")
        if names.count(name) > 1:
            raise UsageError(f"--hosts names {name} twice")
    command = shlex.join(AGENT)  # ssh hands it to a shell
    return tuple(Place(one, ("ssh", "-T", "-o", "BatchMode=yes", one, command)) for one in names)
