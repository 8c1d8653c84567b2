"""The requirements of a suite file, or of a toolchain's file, on a host."""

from pathlib import Path

from tileyard.artifacts.prerequisites import Prerequisites, find_fault
from tileyard.base.places import Document, Place
from tileyard.base.strict import decode
from tileyard.devices.classes import CLASSES
from tileyard.devices.names import NAME


def read_require(raw: object, place: Place) -> Prerequisites:
    """The requirements written at a place. Raises UsageError with file, line and key."""
    needed = decode(raw, Prerequisites, place)
    keys, reason = find_fault(needed)
    if reason:
        for key in keys:
            place = place / key
        place.fail(reason)
    for kind in needed.devices:
        if NAME.fullmatch(f"{kind}:0") is None:
            known = ", ".join(sorted(CLASSES))
            (place / "devices" / kind).fail(f"{kind!r} is not a class of devices", f"as {known}")
    return needed


def read_require_file(path: Path) -> Prerequisites:
    """The requirements in a TOML file, with the keys of ``[require]``. Raises UsageError."""
    document = Document(path)
    return read_require(document.table, Place(document=document))
