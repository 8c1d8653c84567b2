"""A class of devices: everything that rooms above may ask of it without knowing its name."""

from collections.abc import Callable

from tileyard.base.model import Device, Record
from tileyard.base.settings import Settings


class Found(Record):
    """The devices of a class that were found. ``failure`` states why others are not listed.

    ``busy`` is, by their locks, the share of the last moment in which they worked, if known.
    """

    devices: tuple[Device, ...] = ()
    failure: str = ""
    busy: dict[str, float] = {}


class DeviceClass(Record):
    """Properties that all devices of a class share.

    ``find`` lists those of this host that need no declaration, for names that begin with one of ``prefixes``. ``state``
    makes a function that can be called repeatedly: the device's report on itself while it is used.

    ``env`` is the environment of a holder's processes unless a declaration sets it. Of these variables ``masks`` hide
    the other devices of the class, and programs number what is left from 0. Devices that are ``is_declarable``
    are declared one by one. Those that are ``is_cores`` are sets of this host's cores. ``is_probed``: without a probe a
    fault would go unnoticed. ``limits_memory``: a runner's address space may be limited. Drivers that reserve an
    address for each byte of the host and its devices could not start with a limit.
    """

    find: Callable[[Settings], Found] = lambda _: Found()
    prefixes: tuple[str, ...] = ()
    state: Callable[[Device], Callable[[], dict[str, str]]] = lambda _: dict
    env: dict[str, str] = {}
    masks: tuple[str, ...] = ()
    is_declarable: bool = True
    is_cores: bool = False
    is_probed: bool = True
    limits_memory: bool = True
