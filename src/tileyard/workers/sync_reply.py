"""What an author answers that was asked to check the synchronization of a config."""

from tileyard.check.findings import Finding
from tileyard.check.suppressions import Allowed, Suppressed
from tileyard.model import Record, Value


class SyncChecked(Record, tag="sync_checked"):
    """What was checked of one config: ``blocks`` of the grids of all ``instances``; what of it was not, in words.

    An instance is a choice of sizes; it is empty where none of them makes a difference. ``trips`` has the trip counts by the line of each loop whose
    iterations wait or overlap; one that has a period, in iterations, is checked for all trip counts.
    ``suppressed`` are findings that comments in the file allow, ``unused`` the comments that allow nothing.
    """

    kernel: str
    config: dict[str, Value]
    blocks: int
    grid: int
    findings: tuple[Finding, ...]
    unchecked: tuple[str, ...]
    instances: tuple[dict[str, int], ...] = ()
    trips: dict[int, tuple[int, ...]] = {}
    periods: dict[int, int] = {}
    suppressed: tuple[Suppressed, ...] = ()
    unused: tuple[Allowed, ...] = ()
