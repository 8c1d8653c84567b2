"""A class of devices: everything that rooms above may ask of it without knowing its name."""

from collections.abc import Callable

from tileyard.base.model import Device, Record
from tileyard.base.settings import Settings


class Found(Record):
    """The devices of a class that were found; ``failure`` states why others are not listed.
    ``busy``, if known, is the share of the last moment in which their locks' devices worked.
    """

    devices: tuple[Device, ...] = ()
    failure: str = ""
    busy: dict[str, float] = {}


class DeviceClass(Record):
    """Properties that all devices of a class share.
    ``find`` lists those that need no declaration, for names with one of ``prefixes``; ``state``
    makes a repeatable function: a used device's report. ``env`` is for a holder's processes unless
    declared otherwise; of it ``masks`` hide other devices, and programs number the rest from 0.
    ``is_declarable``: declared one by one; ``is_cores``: sets of this host's cores; ``is_probed``:
    a fault would go unnoticed without a probe. ``limits_memory``: a runner's address space may be
    limited, which drivers that reserve addresses for all memory do not survive.
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
