"""What an author answers of the Programs of a config: what a check of its synchronization found, and what passes make of it."""

from tileyard.model import Diagnostic, Record, Value
from tileyard.sync.findings import Finding
from tileyard.sync.suppressions import Allowed, Suppressed


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


class PassStep(Record):
    """The Program after the pass ``name``, with the line of each statement; the ``notes`` say what the pass left as it was.

    ``fault`` is what is wrong with the Program, empty where nothing is or nobody looked. ``took_ms`` is the median time of the pass
    in milliseconds, None where it was not asked for and for what is not a pass.
    """

    name: str
    text: str
    notes: tuple[Diagnostic, ...] = ()
    fault: str = ""
    took_ms: float | None = None


class PassesShown(Record, tag="passes_shown"):
    """What each pass of a pipeline made of one config. The first of the ``steps`` is the kernel as it is written."""

    kernel: str
    config: dict[str, Value]
    steps: tuple[PassStep, ...]
    is_checked: bool = False
