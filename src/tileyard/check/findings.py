"""Findings: hazards in the words of the user's file, each with the fix where it is known."""

from typing import Literal, assert_never

from tileyard.ir.clocks import Moment
from tileyard.ir.hazards import Hazard, HazardKind
from tileyard.ir.nodes import Unit
from tileyard.model import Diagnostic, Record, SourceLine

FindingKind = HazardKind | Literal["dependence reordered"]

_NOUNS: dict[Unit, str] = {
    "cp_async": "copy",
    "tma": "TMA load",
    "tma_store": "TMA store",
    "wgmma": "wgmma",
}
_WAITS: dict[Unit, str] = {
    "cp_async": "T.ptx_wait_group",
    "tma": "T.barrier_wait",
    "tma_store": "T.tma_store_wait",
    "wgmma": "T.wait_wgmma",
}
_COMMITS: dict[Unit, str] = {
    "cp_async": "T.ptx_commit_group()",
    "tma": "an arrive",
    "tma_store": "T.tma_store_arrive()",
    "wgmma": "T.warpgroup_commit_batch()",
}


class Finding(Record):
    """One mistake: what happens at ``access``, although what ``other`` does comes before or goes on; and the ``fix``.

    ``wait`` is the wait that did not help. ``waiting`` are the lines of all who wait in a deadlock. ``roles`` are those of
    ``access`` and ``other``, by number; ``block`` is the first block in which it was seen, and ``instance`` the sizes by
    which it was seen first, as in ``M=32, K=96``.
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


class Words:
    """Puts hazards of one Program into words; ``lines`` has the line of each numbered statement."""

    def __init__(self, lines: dict[int, SourceLine]) -> None:
        self._lines = lines

    def describe(self, hazard: Hazard) -> Finding:
        """One hazard."""
        left = hazard.left_by
        return Finding(
            kind=hazard.kind,
            message=self._message(hazard),
            fix=self._fix(hazard),
            buffer=hazard.buffer,
            block=hazard.block,
            roles=hazard.roles,
            access=self._line(hazard.access),
            other=None if hazard.other is None else self._line(hazard.other),
            wait=None if left is None else self._line(left.moment),
            waiting=tuple(filter(None, map(self._line, hazard.waiting))),
        )

    def _line(self, moment: Moment) -> SourceLine | None:
        return self._lines.get(moment.number)

    def _message(self, hazard: Hazard) -> str:
        buffer, when = hazard.buffer, _when(hazard.access)
        noun = _NOUNS[hazard.unit] if hazard.unit else "access"
        other = "" if hazard.other is None else f"the {noun} of {self._at(hazard.other)}"
        match hazard.kind:
            case "read before arrival" | "wait without group":
                return f"{buffer} is read{when} before {other} has arrived"
            case "overwritten in flight":
                return f"{buffer} is written{when} while {other} is in flight to it"
            case "source changed in flight":
                return f"{buffer} is written{when} while {other} may still read it"
            case "overwritten before release":
                return f"{buffer} is overwritten{when}, and nothing orders that after {other}{_by(hazard)}, which reads it"
            case "race":
                return f"{buffer} is accessed{when}, and nothing orders that after {other}{_by(hazard)}, which writes it"
            case "missing fence":
                return f"{buffer} is used asynchronously{when} after {other} wrote it, without a proxy fence between"
            case "uninitialised":
                return f"{buffer} is read{when}, and nothing has written there"
            case "out of bounds" | "bytes" | "extra arrive":
                return "; ".join(hazard.state) + when
            case "deadlock":
                places = map(self._at, hazard.waiting)
                pairs = zip(places, hazard.state, strict=False)
                return "deadlock: " + "; ".join(f"{place} {state}" for place, state in pairs)
            case _:
                assert_never(hazard.kind)

    def _fix(self, hazard: Hazard) -> str:
        left, unit = hazard.left_by, hazard.unit
        match hazard.kind:
            case "missing fence":
                return "T.fence_proxy_async() is missing between the write and the arrive that follows it"
            case "uninitialised":
                return "a copy, T.clear or clear_accum is missing, or the stage is wrong"
            case "out of bounds":
                return "the index or the number of versions is wrong"
            case "bytes":
                return "T.tma_copy expects its own bytes: expect no others, and arrive only after the copies"
            case "extra arrive":
                return "an arrive is doubled, or the barrier's arrive_count is too small"
            case "deadlock":
                return "an arrive is missing or comes too late, or a parity is wrong"
            case "race" | "overwritten before release":
                return "a barrier between the two is missing: an arrive behind the first, and a wait before the second"
            case _:
                pass
        if not unit:
            return ""
        if hazard.barrier:
            return self._fix_barrier(hazard)
        if not hazard.committed:
            return f"it is in no group: {_COMMITS[unit]} is missing before the wait"
        if left is None or left.most is None:
            return f"no wait comes between: {_WAITS[unit]}({hazard.most}) is missing, or the stage is wrong"
        return (
            f"the wait of {self._at(left.moment)} leaves {left.count} groups: {_WAITS[unit]}({left.most}) would cover it, "
            "or the stage is wrong"
        )

    def _fix_barrier(self, hazard: Hazard) -> str:
        left = hazard.left_by
        if left is None:
            return f"no wait for {hazard.barrier} comes between: T.barrier_wait is missing, or the stage is wrong"
        return (
            f"the wait of {self._at(left.moment)} for {hazard.barrier} with parity {left.count} ends before: parity "
            f"{1 - left.count % 2} would wait longer, or the stage is wrong"
        )

    def _at(self, moment: Moment) -> str:
        where = self._line(moment)
        line = "an unknown line" if where is None else f"line {where.line}"
        return f"{line}{_when(moment)}"


def describe_race(race: Diagnostic) -> Finding:
    """A race between threads that do one statement together."""
    return Finding(
        kind="race",
        message=race.message,
        fix="let one thread do it, as in T.Parallel(1), or use an atomic update",
        buffer=race.operation,
        access=race.where,
        other=race.where,
    )


def _when(moment: Moment) -> str:
    values = ", ".join(f"{name}={value}" for name, value in moment.loops)
    return f" at {values}" if values else ""


def _by(hazard: Hazard) -> str:
    mine, other = hazard.roles
    if other < 0:
        return " in another block"
    return f" by role {other}" if mine != other else ""
