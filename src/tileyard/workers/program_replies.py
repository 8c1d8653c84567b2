"""Defines an author's answers about the Programs of a config: what a check of its synchronization found, and what passes make of it."""

from tileyard.base.model import Diagnostic, Record, Value
from tileyard.sync.findings import Finding
from tileyard.sync.suppressions import Allowed, Suppressed


class SyncChecked(Record, tag="sync_checked"):
    """What was checked of one config: ``blocks`` of the grids of all ``instances``; what of it was not, in words.

    An instance is a choice of sizes; it is empty if no size makes a difference. ``trips`` has the trip counts by the line of each loop whose
    iterations wait or overlap; a loop that has a period, in iterations, is checked for all trip counts.
    ``suppressed`` are findings that comments in the file allow, ``unused`` the comments that allow nothing.
    ``notes`` say what TileLang makes of lines of the kernel, and are no mistakes.
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
    notes: tuple[Diagnostic, ...] = ()


class PassStep(Record):
    """The Program after the pass ``name``, with the line of each statement; the ``notes`` state what the pass left unchanged.

    ``fault`` is what is wrong with the Program, empty if nothing is or it was not checked. ``took_ms`` is the median time of the pass
    in milliseconds, None if it was not requested and for steps that are not passes.
    """

    name: str
    text: str
    notes: tuple[Diagnostic, ...] = ()
    fault: str = ""
    took_ms: float | None = None


class PassesShown(Record, tag="passes_shown"):
    """The result of each pass of a pipeline on one config. The first of the ``steps`` is the kernel as it is written."""

    kernel: str
    config: dict[str, Value]
    steps: tuple[PassStep, ...]
    is_checked: bool = False
