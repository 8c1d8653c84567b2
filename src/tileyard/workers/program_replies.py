"""Defines an author's answers about Programs: findings of synchronization, results of passes."""

from tileyard.base.model import Diagnostic, Record, Value
from tileyard.sync.findings import Finding
from tileyard.sync.suppressions import Allowed, Suppressed


class SyncChecked(Record, tag="sync_checked"):
    """What was checked of one config: ``blocks`` of the grids of all ``instances``; what was not,
    in words. An instance is a choice of sizes, empty if none makes a difference. ``trips`` are by
    line of loops that wait or overlap; one with a period, in iterations, is checked for all trip
    counts. ``suppressed``: findings that comments allow; ``unused``: comments that allow nothing.
    ``notes`` say what TileLang makes of lines, and are no mistakes.
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
    """The Program after the pass ``name``, with each statement's line; ``notes`` on what it left
    unchanged. ``fault``: what is wrong, empty if nothing or unchecked. ``took_ms``: median time in
    milliseconds, None unless requested and for what is no pass.
    """

    name: str
    text: str
    notes: tuple[Diagnostic, ...] = ()
    fault: str = ""
    took_ms: float | None = None


class PassesShown(Record, tag="passes_shown"):
    """The result of each pass on one config. The first of the ``steps`` is the kernel as it is written."""

    kernel: str
    config: dict[str, Value]
    steps: tuple[PassStep, ...]
    is_checked: bool = False
