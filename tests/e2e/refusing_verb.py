"""Verbs of somebody else that come to nothing."""

import errno
import os

from tileyard.base.errors import SickDeviceError
from tileyard.base.model import Record
from tileyard.service.bench import Bench
from tileyard.service.runs import Plan
from tileyard.service.verbs import Verb


class Nothing(Record):
    """What never comes of it."""


class Refuse(Verb[Nothing]):
    """A verb whose device is in quarantine."""

    async def open(self, bench: Bench) -> Plan[Nothing]:
        """Say so."""
        raise SickDeviceError("it is in quarantine", "give it back")


class MeetFullDisk(Verb[Nothing]):
    """A verb that comes to a full disk where nobody has foreseen it."""

    async def open(self, bench: Bench) -> Plan[Nothing]:
        """Write a file on it."""
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/somewhere/else")
