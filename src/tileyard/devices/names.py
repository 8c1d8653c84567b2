"""Names of accelerators: ``class:which`` for people, an id that never changes for the lock."""

import pwd
import re
from pathlib import Path

from tileyard.base.model import Device

NAME = re.compile(r"[a-z][a-z0-9_-]*:[A-Za-z0-9][A-Za-z0-9._-]*")
PCI_ADDRESS = re.compile(
    r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", re.IGNORECASE
)


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
