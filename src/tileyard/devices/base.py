"""Defines a class of devices, all that rooms above may ask of it without knowing its name, and names."""

import pwd
import re
from collections.abc import Callable
from pathlib import Path

from tileyard.base.model import Device, Record
from tileyard.base.settings import Settings

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
UNKNOWN_BOOT = "unknown"
NAME = re.compile(r"[a-z][a-z0-9_-]*:[A-Za-z0-9][A-Za-z0-9._-]*")
PCI_ADDRESS = re.compile(
    r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", re.IGNORECASE
)


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


def class_of(name: str) -> str:
    """``npu`` of ``npu:0``."""
    return name.partition(":")[0]


def index_of(name: str) -> str:
    """``0`` of ``npu:0``."""
    return name.partition(":")[2]


def number_of(device: Device) -> str:
    """The number by which a program opens a device or a group: within the mask, else ``index_of``."""
    return ",".join(map(str, range(device.count))) if device.mask else index_of(device.name)


def normalize_id(text: str) -> str:
    """One spelling for each device: lower case, and PCI addresses with a domain of four digits."""
    found = PCI_ADDRESS.fullmatch(text)
    if found is None:
        return text.lower()
    domain = int(found[1] or "0", 16)
    return f"{domain:04x}:{found[2]}:{found[3]}.{found[4]}".lower()


def device_lock(stable_id: str, lock_dir: Path) -> str:
    """The lock file of the device with this id. Characters that names or lists of paths cannot
    contain are replaced; if two ids give one file, their devices exclude each other.
    """
    safe = re.sub(r"[^a-z0-9._-]", "-", normalize_id(stable_id))
    return str(lock_dir / f"device-{safe}.lock")


def name_user(uid: int) -> str:
    """A user's name, or the number if this host does not know a name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def read_boot_id() -> str:
    """The id that distinguishes one boot of a kernel from every other."""
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return UNKNOWN_BOOT
