"""Findings of checks as data: hazards in terms of the user's file, each with its fix if that is known."""

from typing import Literal

from tileyard.base.model import Record, SourceLine
from tileyard.ir.hazard_kinds import HazardKind
from tileyard.ir.nodes import Unit

FindingKind = HazardKind | Literal["dependence reordered"]

MEANINGS: dict[FindingKind, str] = {
    "read before arrival": "A tile is read before the asynchronous operation that fills it has arrived.",
    "wait without group": (
        "A tile is read behind a wait that does not cover its copy, "
        "because the copy is in no group."
    ),
    "overwritten in flight": "A tile is written while an asynchronous operation to it is in flight.",
    "source changed in flight": "A tile is written while an asynchronous operation may still read it.",
    "overwritten before release": (
        "A tile is overwritten, and nothing orders that after the last read of its old content."
    ),
    "race": "Two accesses to the same element, one of them a write, are not ordered.",
    "missing fence": "An asynchronous operation uses what another role wrote, without a proxy fence between.",
    "uninitialised": "A tile or an output is read where nothing has written.",
    "never written": "An element of an output is compared, and never written.",
    "out of bounds": "An index is outside of the shape of its buffer.",
    "deadlock": "All roles that are left wait for something that nobody will do.",
    "bytes": "A barrier expects more bytes than the copies that end at it bring.",
    "extra arrive": "More arrive at a barrier in one phase than it expects.",
    "dependence reordered": (
        "A pipeline runs statements in an order in which one does not see what another wrote."
    ),
}
"""All kinds of findings. The names are fixed: suppressions, JSON and SARIF use them."""


class TimelineStep(Record):
    """What a role (from 1, 0 outside roles), or a ``unit`` for it, did at a ``line``, 0 if unknown.
    ``mark`` is 2 for the access of a finding, 1 for the other side, else 0.
    """

    role: int
    unit: Unit | Literal[""]
    line: int
    text: str
    mark: Literal[0, 1, 2] = 0


class BlockSpan(Record):
    """What a role (from 1, 0 outside roles), or a ``unit`` for it, did from one step to another, at a
    ``line``, 0 if unknown. A role's wait begins after its step before, an operation where it was issued.
    """

    role: int
    unit: Unit | Literal[""]
    line: int
    text: str
    begin: int
    end: int


class Finding(Record):
    """One mistake: ``access`` happens although ``other`` must come first or is in progress; and the
    ``fix``. ``wait`` did not help; ``waiting`` are the lines of a deadlock's waits. ``roles`` are
    those of ``access`` and ``other``; ``block`` and ``instance``, as in ``M=32, K=96``, are the
    first with it. ``timeline`` has the steps before it, if asked for.
    """

    kind: FindingKind
    message: str
    fix: str
    buffer: str
    block: tuple[int, ...] = ()
    instance: str = ""
    roles: tuple[int, int] = (0, 0)
    access: SourceLine | None = None
    other: SourceLine | None = None
    wait: SourceLine | None = None
    waiting: tuple[SourceLine, ...] = ()
    timeline: tuple[TimelineStep, ...] = ()
