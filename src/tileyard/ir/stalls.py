"""Determines why barriers stop a block, if possible."""

from collections.abc import Container, Sequence
from dataclasses import dataclass

from tileyard.ir.asynchronous import Barrier
from tileyard.ir.hazard_kinds import Cause


@dataclass(frozen=True, kw_only=True, slots=True)
class Stall:
    """A wait that nothing ends, ``where`` in words. ``is_given`` marks a barrier that TileLang adds,
    ``is_first`` its role's first wait for the barrier, ``at_start`` one in the first iteration of all loops.
    """

    where: str
    barrier: Barrier | None
    is_given: bool
    is_first: bool
    at_start: bool

    @property
    def state(self) -> str:
        """What the wait lacks."""
        barrier = self.barrier
        if barrier is None:
            return f"waits {self.where}"
        missing = [f"{barrier.arrived} of {barrier.expected} have arrived"]
        if barrier.pending:
            missing.append(f"{barrier.pending} bytes are missing")
        return f"waits {self.where}: phase {barrier.phase}, {', '.join(missing)}"


def find_cause(stalls: Sequence[Stall], reached: Container[str]) -> tuple[Cause, str, int]:
    """Why all of these wait, at which barrier, and a related number; the cause is empty if several
    are possible. ``reached`` are the rows of barriers at which some statement arrives.
    """
    if any(one.is_given for one in stalls):
        return "given barrier", "", 0
    barriers = [one.barrier for one in stalls if one.barrier is not None]
    for one in barriers:
        row, is_row, _ = one.name.partition("[")
        if is_row and row not in reached:
            return "nobody arrives", row, 0
    for one in barriers:
        if 0 < one.arrived < one.expected:
            return "too few arrive", one.name, one.expected - one.arrived
    for stall in stalls:
        if stall.barrier is not None and stall.is_first and stall.barrier.phase > 1:
            return "overtaken", stall.barrier.name, stall.barrier.phase
    are_first = all(stall.is_first and stall.at_start for stall in stalls)
    if are_first and len({one.name for one in barriers if not one.phase}) == len(stalls) > 1:
        return "first waits block", "", 0
    return "", "", 0
