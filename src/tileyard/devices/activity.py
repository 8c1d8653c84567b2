"""What a device did in a short window: the share of it in which it worked.

For cores it is the kernel's account of them, whoever used them; for GPUs it is NVML's own figure.
Of other devices nothing is known. Nobody watches when no command does, so there is no history.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from tileyard.model import Record

IDLE_FIELDS = (3, 4)  # idle, and idle while something is read or written
FIELDS = 8  # those after it are part of these


class CoreTime(Record):
    """How long a core has worked, and how long it has been there, in ticks since the host's start."""

    busy: int
    total: int


def read_core_times(root: Path = Path("/")) -> dict[int, CoreTime]:
    """Every core's account; empty where the kernel shows none."""
    try:
        text = (root / "proc/stat").read_text(encoding="ascii")
    except OSError:
        return {}
    times: dict[int, CoreTime] = {}
    for line in text.splitlines():
        name, *fields = line.split()
        number = name.removeprefix("cpu")
        if name.startswith("cpu") and number.isdecimal():
            ticks = [int(field) for field in fields[:FIELDS]]
            idle = sum(ticks[field] for field in IDLE_FIELDS)
            times[int(number)] = CoreTime(busy=sum(ticks) - idle, total=sum(ticks))
    return times


def share_busy(
    before: Mapping[int, CoreTime], after: Mapping[int, CoreTime], cores: Iterable[int]
) -> float | None:
    """The share of the time between two accounts in which these cores worked; None if not told."""
    busy = total = 0
    for core in cores:
        if core not in before or core not in after:
            return None
        busy += after[core].busy - before[core].busy
        total += after[core].total - before[core].total
    return min(1.0, max(0.0, busy / total)) if total > 0 else None
