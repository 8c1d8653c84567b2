"""Describes hazards in terms of the user's file, each with its fix if that is known."""

from collections.abc import Iterator, Sequence
from typing import Literal, assert_never

import msgspec

from tileyard.base.model import Diagnostic, SourceLine
from tileyard.base.wording import count_of
from tileyard.ir.clocks import Moment
from tileyard.ir.hazard_kinds import Cause
from tileyard.ir.hazard_records import Hazard
from tileyard.ir.nodes import Unit
from tileyard.ir.trace import Step
from tileyard.sync.findings import Finding, TimelineStep

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


_ALONE = (
    "let one thread do it, as in T.Parallel(1) or T.serial, or use an atomic update or a reduction"
)
_CAUSES: dict[Cause, str] = {
    "": "",
    "given barrier": (
        "between branches of which one writes a tile that the other reads, "
        "TileLang puts a barrier of all threads: make them sides of one, if tx < ..: .. else: .."
    ),
    "nobody arrives": "nothing arrives at {barrier}: T.barrier_arrive is missing",
    "too few arrive": (
        "{amount} more arrivals at {barrier} are missing or come too late, or it counts too many"
    ),
    "overtaken": (
        "{barrier} has ended {amount} phases before the first wait for it: an arrive is doubled, "
        "or a wait before the arrives is missing"
    ),
    "first waits block": (
        "each waits for what another one does behind its own wait: "
        "the first wait for a free tile takes parity 1"
    ),
    "not held back": (
        "nothing holds the arrives at {barrier} back until this wait is over: an arrive behind it, "
        "and a wait for that of the right parity before them"
    ),
    "counts differ": "all that meet at {barrier} have to name the same number of threads",
    "crowded": (
        "more threads come to {barrier} than it counts: a barrier of another number, "
        "or all of them outside of conditions"
    ),
    "arrives before bytes": (
        "the phase before still waits for its bytes: the arrive is doubled, "
        "or a wait before it is missing or of the wrong parity"
    ),
    "count too small": "arrive_count has to be {amount} at least, or fewer threads arrive",
    "nobody waits": (
        "nobody waits for this arrive at {barrier}: it is one too many, "
        "or T.sync_threads is missing"
    ),
}
"""The fix for a barrier that stops a block, by its cause."""


class Words:
    """Describes hazards of one Program; ``lines`` has the line of each numbered statement."""

    def __init__(self, lines: dict[int, SourceLine]) -> None:
        self._lines = lines

    def describe(self, hazard: Hazard, steps: Sequence[Step] = ()) -> Finding:
        """The finding for one hazard, with the ``steps`` before it."""
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
            timeline=tuple(self._mark(hazard, steps)),
        )

    def _mark(self, hazard: Hazard, steps: Sequence[Step]) -> Iterator[TimelineStep]:
        """The steps that are related to a hazard: synchronization, and accesses to its buffer."""
        kept = [step for step in steps if step.buffer in ("", hazard.buffer)]
        own = [i for i, step in enumerate(kept) if not step.unit]  # not what units do for a role
        mine, theirs = hazard.roles
        second = [
            i for i in own if (kept[i].actor, kept[i].moment.number) == (mine, hazard.access.number)
        ]
        marks: dict[int, Literal[1, 2]] = {}
        if hazard.other is not None:
            number = hazard.other.number
            first = [i for i in own if (kept[i].actor, kept[i].moment.number) == (theirs, number)]
            exact = [i for i in first if kept[i].moment == hazard.other]
            marks |= dict.fromkeys((exact or first)[-1:], 1)
        waits = [i for i in own[-len(hazard.waiting) :] if hazard.waiting]
        marks |= dict.fromkeys(waits or second[-1:], 2)
        for i, step in enumerate(kept):
            where = self._line(step.moment)
            line = 0 if where is None else where.line
            yield TimelineStep(
                role=step.role, unit=step.unit, line=line, text=step.text, mark=marks.get(i, 0)
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
                return (
                    f"{buffer} is overwritten{when}, and nothing orders that after "
                    f"{other}{_by(hazard)}, which reads it"
                )
            case "race":
                return (
                    f"{buffer} is accessed{when}, and nothing orders that after "
                    f"{other}{_by(hazard)}, which writes it"
                )
            case "missing fence":
                return (
                    f"{buffer} is used asynchronously{when} after {other} wrote it, "
                    "without a proxy fence between"
                )
            case "uninitialised":
                return f"{buffer} is read{when}, and nothing has written there"
            case "out of bounds" | "bytes" | "extra arrive" | "never written":
                return "; ".join(hazard.state) + when
            case "deadlock":
                places = map(self._at, hazard.waiting)
                pairs = zip(places, hazard.state, strict=False)
                return "deadlock: " + "; ".join(f"{place} {state}" for place, state in pairs)
            case _:
                assert_never(hazard.kind)

    def _fix(self, hazard: Hazard) -> str:
        left, unit = hazard.left_by, hazard.unit
        mine, other = hazard.roles
        match hazard.kind:
            case "missing fence":
                return "T.fence_proxy_async() is missing between the write and the arrive that follows it"
            case "uninitialised":
                return (
                    "a copy, T.clear or clear_accum is missing, or the stage is wrong; "
                    "a parameter with old content is no output"
                )
            case "never written":
                return (
                    "a store is missing, or its condition or index is wrong; "
                    "or the reference gives too much"
                )
            case "out of bounds":
                return "the index or the number of versions is wrong"
            case "bytes":
                return (
                    "T.tma_copy expects its own bytes: expect only those of other copies, "
                    "and arrive only after the copies"
                )
            case "extra arrive" | "deadlock" if hazard.cause:
                return _CAUSES[hazard.cause].format(barrier=hazard.barrier, amount=hazard.amount)
            case "extra arrive":
                return "an arrive is doubled, or the barrier's arrive_count is too small"
            case "deadlock":
                return "an arrive is missing or comes too late, or a parity is wrong"
            case "race" | "overwritten before release" if other < 0:
                return (
                    "blocks do not wait for each other: let each have elements of its own, "
                    "or use atomic updates"
                )
            case "race" if mine == other:
                return _ALONE
            case "race" | "overwritten before release":
                return (
                    "a barrier between the two is missing: an arrive behind the first, "
                    "and a wait before the second"
                )
            case _:
                pass
        if not unit:
            return ""
        if hazard.barrier:
            return self._fix_barrier(hazard)
        if not hazard.committed:
            return f"it is in no group: {_COMMITS[unit]} is missing before the wait"
        if left is not None and left.reads_only:
            return (
                f"the wait of {self._at(left.moment)} is over when the tile is read: "
                f"{_WAITS[unit]}({left.count}, read=False)"
            )
        if left is None or left.most is None:
            return f"no wait comes between: {_WAITS[unit]}({hazard.most}) is missing, or the stage is wrong"
        return (
            f"the wait of {self._at(left.moment)} leaves {count_of(left.count, 'group')}: "
            f"{_WAITS[unit]}({left.most}) would cover it, "
            "or the stage is wrong"
        )

    def _fix_barrier(self, hazard: Hazard) -> str:
        left = hazard.left_by
        if left is None:
            return (
                f"no wait for {hazard.barrier} comes between: T.barrier_wait is missing, "
                "or the stage is wrong"
            )
        return (
            f"the wait of {self._at(left.moment)} for {hazard.barrier} with parity {left.count} "
            "ends before: parity "
            f"{1 - left.count % 2} would wait longer, or the stage is wrong"
        )

    def _at(self, moment: Moment) -> str:
        where = self._line(moment)
        line = "an unknown line" if where is None else f"line {where.line}"
        return f"{line}{_when(moment)}"


def describe_race(race: Diagnostic) -> Finding:
    """The finding for a race between threads that execute one statement together."""
    return Finding(
        kind="race",
        message=race.message,
        fix=_ALONE,
        buffer=race.operation,
        access=race.where,
        other=race.where,
    )


def in_plan(finding: Finding) -> Finding:
    """A finding in a plan of TileLang's passes: its fix is not in the user's text."""
    return msgspec.structs.replace(finding, fix=f"in TileLang's plan: {finding.fix}")


def _when(moment: Moment) -> str:
    values = ", ".join(f"{name}={value}" for name, value in moment.loops)
    return f" at {values}" if values else ""


def _by(hazard: Hazard) -> str:
    mine, other = hazard.roles
    if other < 0:
        return " in another block"
    return f" by role {other}" if mine != other else ""
