"""Defines a hazard as data: what a late run notes of two accesses, or of a wait."""

from typing import Literal

import msgspec

from tileyard.ir.asynchronous import Wait
from tileyard.ir.clocks import Moment
from tileyard.ir.hazard_kinds import Cause, HazardKind
from tileyard.ir.nodes import Unit


class Hazard(msgspec.Struct, frozen=True, kw_only=True):
    """Two accesses to ``buffer`` without a fixed order, ``other`` the earlier one; or a wait that nothing
    ends.

    ``unit`` carries out the operation that ``other`` issued, empty if none; if it is ``committed`` to a
    group, ``most`` is the largest count of a wait before ``access`` that covers it. ``left_by`` is the
    latest wait that does not. ``block`` is the position in the grid, ``blockIdx.x`` first, ``roles`` are
    those of ``access`` and ``other``. A deadlock lists all ``waiting`` roles, and in ``state`` what each
    waits for. ``cause`` is the known cause, with its ``barrier`` and ``amount``.
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
