"""The steps of a late run around a hazard: the last issues, arrivals and waits of the block, in order."""

from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Literal

import msgspec
import numpy as np

from tileyard.base.model import Value
from tileyard.ir.asynchronous import Operation
from tileyard.ir.clocks import Moment, Places
from tileyard.ir.hazard_kinds import HazardKind
from tileyard.ir.hazard_records import Hazard
from tileyard.ir.hazards import FIRST, LateRun, Schedule
from tileyard.ir.interpret import Blocked, Waiting
from tileyard.ir.nodes import (
    Arrive,
    CommitGroup,
    Fence,
    Issue,
    Program,
    Roles,
    Sync,
    Synchronization,
    Unit,
    WaitBarrier,
    WaitGroup,
)
from tileyard.ir.tiles import Array

LENGTH = 200
"""Number of steps kept."""
_RECENT = 6
"""An access equal to one of this many recent steps is no new one: elements are accessed one by one."""
_STAGES = 8
"""Largest first dimension of a tile whose first index is part of its name."""
_ENDS: dict[Unit, str] = {
    "cp_async": "arrives",
    "tma": "arrives",
    "tma_store": "is stored",
    "wgmma": "is done",
}


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """An action of the role of an ``actor``, or of a ``unit`` for it; ``buffer`` is an access's
    target. ``role`` counts from 1, 0 outside of roles; actors are those of Hazard.
    """

    actor: int
    role: int
    unit: Unit | Literal[""] = ""
    moment: Moment
    text: str
    buffer: str = ""


class TracedRun(LateRun):
    """A late run; while ``is_traced``, ``traces`` has each hazard's steps before it, by key."""

    def __init__(
        self,
        program: Program,
        arrays: Sequence[Array],
        scalars: Sequence[Value] = (),
        *,
        schedule: Schedule = FIRST,
        is_traced: bool = False,
    ) -> None:
        self.is_traced = is_traced
        self.traces: dict[tuple[HazardKind, int, int], tuple[Step, ...]] = {}
        self._steps: deque[Step] = deque(maxlen=LENGTH)
        self._roles_of: dict[int, int] = {}
        self._names: dict[int, str] = {}
        super().__init__(program, arrays, scalars, chosen=self._choose, schedule=schedule)

    def _choose(self, axis: str, extent: int) -> Sequence[int]:
        return range(extent)

    def _block(self) -> None:
        self._steps.clear()
        super()._block()

    def _run_roles(self, stmt: Roles) -> None:
        first = max(self._views) + 1
        self._roles_of |= {first + number: number + 1 for number in range(len(stmt.bodies))}
        super()._run_roles(stmt)

    # ---- steps ------------------------------------------------------------------------------

    def _note(self, buffer: str, where: Places, content: Array | None) -> None:
        if self.is_traced and self._scopes.get(buffer) not in ("local", "barrier"):
            verb = "read" if content is None else "write"
            self._add(f"{verb} {self._name(buffer, where)}", buffer)
        super()._note(buffer, where, content)

    def _issue(self, stmt: Issue) -> Waiting:
        if self.is_traced:
            self._add(f"issue {stmt.unit}")
        yield from super()._issue(stmt)

    def _writes(self, operation: Operation, buffer: str, where: Places) -> None:
        if self.is_traced and operation.number not in self._names:
            name = self._names[operation.number] = self._name(buffer, where)
            issued = self._steps.pop()
            self._steps.append(
                msgspec.structs.replace(issued, text=f"issue {operation.unit} {name}")
            )
        super()._writes(operation, buffer, where)

    def _do(self, operation: Operation) -> None:
        if self.is_traced and not operation.is_done:
            name = self._names.get(operation.number, "")
            self._steps.append(
                Step(
                    actor=operation.actor - self._first,
                    role=self._roles_of.get(operation.actor, 0),
                    unit=operation.unit,
                    moment=operation.issue,
                    text=f"{name} {_ENDS[operation.unit]}",
                )
            )
        super()._do(operation)

    def _synchronize(self, stmt: Synchronization) -> Waiting:
        is_wait = isinstance(stmt, WaitBarrier | Sync)  # reported when it is over
        moment = self._moment()
        if self.is_traced and not is_wait:
            self._tell(stmt, moment)
        yield from super()._synchronize(stmt)
        if self.is_traced and is_wait:
            self._tell(stmt, moment)

    def _stuck(self, waiting: dict[int, Blocked]) -> None:
        for actor, blocked in waiting.items():
            role = self._roles_of.get(actor, 0)
            moment = self._moment_of(blocked.stmt)
            text = f"waits {blocked.where.removeprefix('for ')} for ever"
            self._steps.append(Step(actor=actor - self._first, role=role, moment=moment, text=text))
        super()._stuck(waiting)

    def _keep(self, hazard: Hazard) -> None:
        known = len(self.hazards)
        super()._keep(hazard)
        if self.is_traced and len(self.hazards) > known:
            self.traces[next(reversed(self.hazards))] = tuple(self._steps)

    def _tell(self, stmt: Synchronization, moment: Moment) -> None:
        text = ""
        match stmt:
            case CommitGroup():
                text = f"commit {stmt.unit}"
            case WaitGroup():
                text = f"wait {stmt.unit} {self._evaluator.number(stmt.count)}"
            case Arrive():
                verb, after = (
                    "arrive" if stmt.count else "expect",
                    stmt.after and f" after {stmt.after}",
                )
                text = f"{verb} {self._find_barrier(stmt.barrier).name}{after}"
            case WaitBarrier():
                parity = self._evaluator.number(stmt.parity)
                text = f"wait {self._find_barrier(stmt.barrier).name} p{parity}"
            case Sync() if self._in_turns():
                text = f"sync {stmt.barrier}"
            case Fence():
                text = "fence"
            case _:
                pass
        if text:
            self._add(text, at=moment)

    def _add(self, text: str, buffer: str = "", at: Moment | None = None) -> None:
        step = Step(
            actor=self._actor - self._first,
            role=self._roles_of.get(self._actor, 0),
            moment=at or self._moment(),
            text=text,
            buffer=buffer,
        )
        alike = (step.actor, step.moment.number, text)
        recent = islice(reversed(self._steps), _RECENT)
        if not buffer or all((o.actor, o.moment.number, o.text) != alike for o in recent):
            self._steps.append(step)

    def _name(self, buffer: str, where: Places) -> str:
        """The name of a tile, with its stage if it has only a few."""
        shape = self._raw.array(buffer).shape
        if len(shape) < 2 or shape[0] > _STAGES or not where:
            return buffer
        first = where[0]
        found = np.unique(np.arange(shape[0])[first])
        return f"{buffer}[{found[0]}]" if len(found) == 1 else buffer
