"""A class of devices: everything that rooms above may ask of it without knowing its name."""

from collections.abc import Callable

from tileyard.model import Device, Record
from tileyard.settings import Settings


class Found(Record):
    """The devices of a class that were found. ``failure`` says why others are not listed.

    ``busy`` is by their locks the share of the last moment in which they worked, where that is known.
    """

    devices: tuple[Device, ...] = ()
    failure: str = ""
    busy: dict[str, float] = {}


class DeviceClass(Record):
    """What all devices of a class have in common.

    ``find`` lists those of this host that nobody has to declare, for names that begin with one of ``prefixes``.
    ``state`` makes a question that can be put again and again: what a device says of itself while it is used.

    ``env`` is what a holder's processes get where a declaration does not say. Devices that are
    ``is_declarable`` are declared one by one. Those that are ``is_cores`` are sets of this host's cores.
    ``is_probed``: without a probe a fault would go unnoticed. ``limits_memory``: a runner's address space
    may be limited. Drivers that take an address for each byte of the host and its devices could not begin.
    """

    find: Callable[[Settings], Found] = lambda _: Found()
    prefixes: tuple[str, ...] = ()
    state: Callable[[Device], Callable[[], dict[str, str]]] = lambda _: dict
    env: dict[str, str] = {}
    is_declarable: bool = True
    is_cores: bool = False
    is_probed: bool = True
    limits_memory: bool = True
