"""Hazards as data: their kinds, and the causes of barriers that stop a block, are names used in all results."""

from typing import Literal

import msgspec

from tileyard.ir.asynchronous import Wait
from tileyard.ir.clocks import Moment
from tileyard.ir.nodes import Unit

HazardKind = Literal[
    "read before arrival",
    "wait without group",
    "overwritten in flight",
    "source changed in flight",
    "overwritten before release",
    "race",
    "missing fence",
    "uninitialised",
    "never written",
    "out of bounds",
    "deadlock",
    "bytes",
    "extra arrive",
]

Cause = Literal[
    "",
    "given barrier",
    "nobody arrives",
    "too few arrive",
    "overtaken",
    "first waits block",
    "not held back",
    "counts differ",
    "crowded",
    "arrives before bytes",
    "count too small",
    "nobody waits",
]


class Hazard(msgspec.Struct, frozen=True, kw_only=True):
    """Two accesses to ``buffer`` without a fixed order, ``other`` the earlier one; or a wait that nothing ends.

    ``unit`` carries out the operation that ``other`` issued, empty if it issued none; ``committed`` states whether it is in
    a group, ``most`` is then the largest count of a wait before ``access`` that covers it. ``left_by`` is the latest wait that does
    not. ``block`` is the position in the grid, ``blockIdx.x`` first, ``roles`` are those of ``access`` and ``other``. A deadlock
    lists all waiting roles in ``waiting``, and ``state`` states what each waits for. ``cause`` is the cause, if determined, with the
    ``barrier`` and an ``amount``.
    """

    kind: HazardKind
    buffer: str
    access: Moment
    other: Moment | None = None
    unit: Unit | Literal[""] = ""
    barrier: str = ""
    committed: bool = True
    most: int = 0
    left_by: Wait | None = None
    block: tuple[int, ...] = ()
    roles: tuple[int, int] = (0, 0)
    waiting: tuple[Moment, ...] = ()
    state: tuple[str, ...] = ()
    cause: Cause = ""
    amount: int = 0
