"""Finds accesses without a fixed order: runs a Program in which operations take effect as late as
possible. Two accesses to an element, one of them a write, whose roles do not know of each other
(``clocks.py``) are a Hazard, and so is a wait that nothing ends. Without hazards the result is the
same whenever operations take effect and in whatever order roles go on.
"""

from collections.abc import Callable, Container, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from tileyard.base.errors import OutOfBoundsFault
from tileyard.base.model import Value
from tileyard.ir.asynchronous import AsynchronousRun, Barrier, Groups, Operation
from tileyard.ir.clocks import (
    READ_ONLY,
    WHOLE,
    Conflict,
    Event,
    History,
    Marks,
    Moment,
    Places,
    View,
)
from tileyard.ir.dtypes import poison
from tileyard.ir.hazard_kinds import Cause, HazardKind
from tileyard.ir.hazard_records import Hazard
from tileyard.ir.interpret import Blocked, Plain, Waiting
from tileyard.ir.lane_conflicts import Access
from tileyard.ir.lane_conflicts import Conflict as LaneConflict
from tileyard.ir.lanes import Lanes, is_spread
from tileyard.ir.nodes import (
    Arrive,
    Atomic,
    Expr,
    For,
    Issue,
    Load,
    Program,
    Stmt,
    Store,
    Sync,
    Var,
)
from tileyard.ir.specs import tensors
from tileyard.ir.tiles import Array, Memory, Watched
from tileyard.ir.walk import walk, walk_expr


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """The order in which roles go on: each until it waits, then the next; ``backwards`` reverses
    it. A ``last`` role runs only if no other can. With ``is_early`` loads end when they are issued,
    not only when no role can go on without them.
    """

    backwards: bool = False
    last: int | None = None
    is_early: bool = False


def schedules(roles: int) -> tuple[Schedule, ...]:
    """The orders of this number of roles that can make a difference."""
    turns = (False, True) if roles > 1 else (False,)
    lasts = (None, *range(roles)) if roles > 1 else (None,)
    return tuple(
        Schedule(backwards=backwards, last=last, is_early=is_early)
        for is_early in (False, True)
        for last in lasts
        for backwards in turns
    )


FIRST = Schedule()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Stall:
    """A wait that nothing ends, ``where`` in words.

    ``is_given`` marks a barrier that TileLang adds, ``is_first`` the first wait of its role for this barrier,
    ``at_start`` a wait for which all enclosing loops are in their first iteration.
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


class LateRun(AsynchronousRun):
    """A run in which each operation takes effect as late as possible; ``hazards`` has the first of each two
    statements. ``chosen`` gives the blocks that run in the grid dimension with this variable and extent,
    None for all; ``count`` have run. ``conflicts`` are those between lanes, harmless ones included.
    """

    def __init__(
        self,
        program: Program,
        arrays: Sequence[Array],
        scalars: Sequence[Value] = (),
        *,
        chosen: Callable[[str, int], Sequence[int]] | None = None,
        schedule: Schedule = FIRST,
    ) -> None:
        self._chosen = chosen
        self._schedule = schedule
        self._has_priorities = schedule.last is not None
        self.count = self.conflicts = 0
        self._registers: set[str] = set()
        self.hazards: dict[tuple[HazardKind, int, int], Hazard] = {}
        self._events: list[Event] = [Event(actor=-1, time=0, moment=Moment(number=-1))]
        self._event: tuple[Stmt | None, int] = (None, 0)
        self._at_operation: dict[int, int] = {}
        self._histories: dict[str, History] = {}
        self._owners = {one.name: one.view_of or one.name for one in program.buffers}
        self._viewed = {one.view_of for one in program.buffers if one.view_of}
        self._outputs = {one.buffer.name for one in tensors(program) if one.role == "out"}
        self._scopes = {one.name: one.scope for one in program.buffers}
        self._known: dict[int, Operation] = {}
        self._is_atomic = False
        super().__init__(program, arrays, scalars)
        self._lanes = Lanes(self._raw, self._values, self._tick)

    def _make_memory(self, storage: dict[str, Array]) -> Memory:
        return Watched(super()._make_memory(storage), self._note)

    # ---- the blocks and their order ---------------------------------------------------------

    def _iterate(self, var: Var, start: Expr, extent: Expr) -> Iterator[None]:
        is_axis = any(axis.var is var for axis in self._program.grid)
        wanted = None
        if is_axis and self._chosen is not None:
            wanted = set(self._chosen(var.name, self._evaluator.number(extent)))
        for index, _ in enumerate(super()._iterate(var, start, extent)):
            if wanted is None or index in wanted:
                yield

    def _block(self) -> None:
        self.count += 1
        for name in list(self._histories):
            if self._scopes.get(name, "global") != "global":
                del self._histories[name]
        self._registers.clear()
        try:
            super()._block()
        except Stuck:
            pass
        except OutOfBoundsFault as fault:
            self._report("out of bounds", "", fault.message)

    def _finish_block(self) -> None:
        super()._finish_block()
        for barrier in self._barriers.values():
            if barrier.pending and not self._pending:
                state = f"{barrier.name} expects {barrier.pending} bytes that never come"
                self._report("bytes", barrier.name, state)
            for moment in barrier.missed:
                state = (
                    f"the wait for {barrier.name} may come after the phase behind the one that it "
                    "waits for, and miss it"
                )
                self._report("deadlock", barrier.name, state, moment, ("not held back", 0))
        for barrier in self._named.values():
            if barrier.arrived:
                state = f"{barrier.arrived} of {barrier.expected} threads come to {barrier.name}"
                missing = barrier.expected - barrier.arrived
                if barrier.waits:
                    cause: tuple[Cause, int] = ("too few arrive", missing)
                    self._report("deadlock", barrier.name, state, barrier.latest, cause)
                else:
                    cause = ("nobody waits", missing)
                    self._report("extra arrive", barrier.name, state, barrier.latest, cause)

    def _order(self, roles: list[int]) -> list[int]:
        last = self._schedule.last
        order = roles[::-1] if self._schedule.backwards else roles
        return sorted(order, key=lambda role: role == last)

    def note_unwritten(self) -> None:
        """Note the outputs with elements that no block has written, once all blocks have run."""
        for output in self._outputs:
            array = self._raw.array(output)
            writers = self._marks(output, array.shape)[0].writers
            if left := np.count_nonzero(writers == 0):
                missing = left * array.size // writers.size
                state = f"{missing} of {array.size} elements of {output} are never written"
                latest = self._events[int(writers.max())].moment
                self._report("never written", output, state, Moment(number=latest.number))

    # ---- parallel loops ---------------------------------------------------------------------

    def _tick(self) -> None:
        """Called in each iteration of a loop within a parallel nest."""

    def _body(self, body: tuple[Stmt, ...]) -> Generator[Blocked, None, bool]:
        for stmt in body:
            if self._issuing is None and is_spread(stmt) and self._run_nest(stmt):
                continue
            if (yield from super()._body((stmt,))):
                return True
        return False

    def _run_nest(self, nest: For) -> bool:
        """Run a parallel nest at once, if possible; a race between its iterations is a hazard in any case."""
        self.at = nest
        report = self._lanes.run(nest)
        self.conflicts += len(report.conflicts)
        for conflict in report.conflicts:
            if not conflict.is_benign and not _is_private(conflict, self._scopes):
                first, second = (
                    Moment(number=self._numbers[id(side.stmt)], loops=side.loops)
                    for side in (conflict.first, conflict.second)
                )
                mine = self._actor - self._first
                self._keep(
                    Hazard(
                        kind="race",
                        buffer=conflict.buffer,
                        access=second,
                        other=first,
                        roles=(mine, mine),
                    )
                )
        if report.refusal is not None:
            return False
        for access in report.accesses:
            self.at, self._is_atomic = access.stmt, access.is_update
            self._note_lanes(access)
        self.at, self._is_atomic = nest, False
        return True

    def _note_lanes(self, access: Access) -> None:
        if self._scopes.get(access.buffer) == "local":
            self._note_register(access.buffer, is_write=access.is_write)
            return
        number, view = self._current(), self._views[self._actor]
        history, marks = self._marks(access.buffer, (self._raw.array(access.buffer).size,))
        if access.is_write:
            written, before = access.values, access.before

            def changes(mask: Array) -> bool:
                kept = mask.any(axis=-1) if mask.ndim > 1 else mask
                return written is None or before is None or bool((written != before)[kept].any())

            found = history.write(marks, (access.elements,), number, view, changes)
        else:
            self._require_written(access.buffer, marks[0][access.elements])
            found = history.read(marks, (access.elements,), number, view)
        for conflict in found:
            self._keep(self._describe(access.buffer, conflict, number, is_write=access.is_write))

    # ---- accesses ---------------------------------------------------------------------------

    def _run(self, stmt: Plain) -> None:
        self._is_atomic = isinstance(stmt, Atomic)
        super()._run(stmt)
        self._is_atomic = False

    def _note(self, buffer: str, where: Places, content: Array | None) -> None:
        if self._scopes.get(buffer) in ("local", "barrier"):
            self._note_register(buffer, is_write=content is not None)
            return
        self._access(buffer, where, content, self._current(), self._views[self._actor])

    def _note_register(self, buffer: str, *, is_write: bool) -> None:
        """Note an access to registers of single threads: only whether any was written at all."""
        owner = self._owners.get(buffer, buffer)
        if is_write:
            self._registers.add(owner)
        elif owner not in self._registers:
            self._keep(Hazard(kind="uninitialised", buffer=buffer, access=self._moment()))

    def _current(self) -> int:
        time = self._views[self._actor].times[self._actor]
        last = self._events[self._event[1]]
        is_same = self._event[0] is self.at and (last.actor, last.time) == (self._actor, time)
        if not is_same or last.is_atomic != self._is_atomic:
            moment = self._moment()
            event = Event(actor=self._actor, time=time, moment=moment, is_atomic=self._is_atomic)
            self._events.append(event)
            self._event = (self.at, len(self._events) - 1)
        return self._event[1]

    def _issue(self, stmt: Issue) -> Waiting:
        self._event = (None, 0)
        yield from super()._issue(stmt)
        if self._schedule.is_early:
            self._end_pending()

    def _arrive(self, stmt: Arrive) -> None:
        super()._arrive(stmt)
        if self._schedule.is_early:
            self._end_pending()

    def _end_pending(self) -> None:
        while self._go_on():
            pass

    def _reads(self, operation: Operation, buffer: str, where: Places) -> None:
        self._access(buffer, where, None, self._event_of(operation), operation.view)

    def _writes(self, operation: Operation, buffer: str, where: Places) -> None:
        place = self._raw.array(buffer)[
            (*where, ...)
        ]  # the rest makes a view, also of a single element
        self._access(buffer, where, place, self._event_of(operation), operation.view)
        if operation.unit in ("cp_async", "tma"):
            place[...] = poison(self._raw.dtype(buffer))

    def _event_of(self, operation: Operation) -> int:
        if operation.number not in self._at_operation:
            event = Event(
                actor=operation.actor,
                time=operation.view.times[operation.actor],
                moment=operation.issue,
                operation=operation.number,
                is_async=operation.unit != "cp_async",
            )
            self._events.append(event)
            self._at_operation[operation.number] = len(self._events) - 1
            self._known[operation.number] = operation
        return self._at_operation[operation.number]

    def _access(
        self, buffer: str, where: Places, content: Array | None, number: int, view: View
    ) -> None:
        array = self._raw.array(buffer)
        history, marks = self._marks(buffer, array.shape)
        if content is None:
            self._require_written(buffer, marks[0][where])
            found = history.read(marks, where, number, view)
        else:
            before, after = np.asarray(array[where]), content

            def changes(mask: Array) -> bool:
                kept = mask.any(axis=-1) if mask.ndim > before.ndim else mask
                return not np.array_equal(before[kept], after[kept])

            found = history.write(marks, where, number, view, changes)
        for conflict in found:
            self._keep(self._describe(buffer, conflict, number, is_write=content is not None))

    def _marks(self, buffer: str, shape: tuple[int, ...]) -> tuple[History, tuple[Marks, Marks]]:
        """The history of a buffer's storage, and its marks in ``shape``: per byte if others view it."""
        owner = self._owners.get(buffer, buffer)
        is_viewed = owner in self._viewed
        if owner not in self._histories:
            whole = self._raw.array(owner)
            size = whole.nbytes if is_viewed else whole.size
            self._histories[owner] = History((size,), self._events)
        history = self._histories[owner]
        if is_viewed:
            shape = (*shape, self._raw.array(buffer).itemsize)
        return history, (history.writers.reshape(shape), history.readers.reshape(shape))

    def _require_written(self, buffer: str, writers: Marks) -> None:
        """Note a read of a tile, or of a parameter that is only an output, where nothing was written."""
        owner = self._owners.get(buffer, buffer)
        is_tile = self._scopes.get(owner, "global") != "global"
        if (is_tile or owner in self._outputs) and not writers.all():
            self._keep(Hazard(kind="uninitialised", buffer=buffer, access=self._moment()))

    def _describe(self, buffer: str, conflict: Conflict, number: int, *, is_write: bool) -> Hazard:
        event, now = conflict.event, self._events[number]
        operation = self._known.get(event.operation)
        is_waited = operation is not None and self._views[operation.actor].knows(
            event, WHOLE if conflict.was_write else READ_ONLY
        )
        if is_waited:  # then nothing orders its role
            operation = None
        places: list[int] = []
        if operation is not None and operation.barrier is None:
            own = self._groups.get((operation.actor, operation.unit), Groups()).groups
            places = [most for most, group in enumerate(reversed(own)) if operation in group]
        barrier = operation.barrier.name if operation is not None and operation.barrier else ""
        left_by = operation.left_by if operation is not None else None
        if barrier:
            left_by = self._last_waits.get((self._actor, barrier))
        committed = bool(places) or bool(barrier)
        return Hazard(
            kind=_kind_of(conflict, operation, is_write=is_write, committed=committed),
            buffer=buffer,
            access=now.moment,
            other=event.moment,
            unit=operation.unit if operation is not None else "",
            barrier=barrier,
            committed=committed,
            most=places[0] if places else 0,
            left_by=left_by,
            roles=(now.actor - self._first, event.actor - self._first),
        )

    # ---- barriers ---------------------------------------------------------------------------

    def _count_arrivals(self, barrier: Barrier, count: int, moment: Moment) -> None:
        if barrier.arrived + count > barrier.expected:
            state = (
                f"{barrier.name} has {barrier.arrived} of {barrier.expected} arrivals in this "
                f"phase, and {count} more come"
            )
            if barrier.latest is not None:
                self._report("deadlock", barrier.name, state, barrier.latest, ("crowded", 0))
                return
            cause: Cause = "count too small" if count > barrier.expected else ""
            if barrier.arrived == barrier.expected and barrier.pending:
                cause = "arrives before bytes"
            self._report("extra arrive", barrier.name, state, moment, (cause, count))
            return
        super()._count_arrivals(barrier, count, moment)

    def _stuck(self, waiting: dict[int, Blocked]) -> None:
        moments = [self._moment_of(one.stmt) for one in waiting.values()]
        names = [one.where.partition(" ")[2] for one in waiting.values()]
        known = {one.name: one for one in (*self._barriers.values(), *self._named.values())}
        stalls = [
            _Stall(
                where=one.where,
                barrier=known.get(name),
                is_given=isinstance(one.stmt, Sync) and one.stmt.given,
                is_first=(who, name) not in self._last_waits,
                at_start=not any(value for _, value in moment.loops),
            )
            for (who, one), name, moment in zip(waiting.items(), names, moments, strict=True)
        ]
        met = (one.barrier for one in stalls if one.barrier is not None)
        short = any(one.pending and one.arrived == one.expected for one in met)
        arrives = (one for one in walk(self._program.body) if isinstance(one, Arrive) and one.count)
        cause, barrier, amount = _find_cause(stalls, {one.barrier.buffer for one in arrives})
        if any(kind == "extra arrive" for kind, _, _ in self.hazards):  # these have not counted
            cause = ""
        self._keep(
            Hazard(
                kind="bytes" if short else "deadlock",
                buffer=names[0],
                access=moments[0],
                roles=(next(iter(waiting)) - self._first, 0),
                waiting=tuple(moments),
                state=tuple(one.state for one in stalls),
                cause=cause,
                barrier=barrier,
                amount=amount,
            )
        )
        raise Stuck("no thread can continue")

    def _disagree(self, barrier: Barrier, stmt: Sync) -> None:
        state = f"{barrier.name} is waited for by {stmt.count} threads, and elsewhere by {barrier.expected}"
        self._report("deadlock", barrier.name, state, cause=("counts differ", 0))

    def _report(
        self,
        kind: HazardKind,
        buffer: str,
        state: str,
        moment: Moment | None = None,
        cause: tuple[Cause, int] = ("", 0),
    ) -> None:
        """Keep a hazard of a single statement, by default of the current one."""
        moment = moment or self._moment()
        hazard = Hazard(
            kind=kind,
            buffer=buffer,
            access=moment,
            state=(state,),
            cause=cause[0],
            barrier=buffer,
            amount=cause[1],
        )
        is_wait = kind == "deadlock"
        self._keep(msgspec.structs.replace(hazard, waiting=(moment,)) if is_wait else hazard)

    def _keep(self, hazard: Hazard) -> None:
        other = -1 if hazard.other is None else hazard.other.number
        key = (hazard.kind, hazard.access.number, other)
        if key not in self.hazards:
            known = [self._values.get(axis.var.name) for axis in self._program.grid]
            block = tuple(int(index) for index in known if index is not None)
            self.hazards[key] = msgspec.structs.replace(hazard, block=block)


class Stuck(Exception):
    """A block cannot go on; the reason has been noted."""


def _kind_of(
    conflict: Conflict, operation: Operation | None, *, is_write: bool, committed: bool
) -> HazardKind:
    if conflict.lacks_fence:
        return "missing fence"
    if operation is None:
        return "race" if conflict.was_write else "overwritten before release"
    if not conflict.was_write:
        return "source changed in flight"
    if is_write:
        return "overwritten in flight"
    is_loose = not committed and operation.left_by is not None and operation.left_by.most is None
    return "wait without group" if is_loose else "read before arrival"


def _find_cause(stalls: Sequence[_Stall], reached: Container[str]) -> tuple[Cause, str, int]:
    """Why all of these wait, at which barrier, and a related number.

    ``reached`` are the rows of barriers at which some statement arrives. The cause is empty if several are
    possible.
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


def _is_private(conflict: LaneConflict, scopes: Mapping[str, str]) -> bool:
    """Whether iterations of a parallel nest touch registers, which are each thread's own, without a race.

    Those of a fragment may be shared out: then a store that reads another element of it reads what another
    thread may write.
    """
    scope, stmt = scopes.get(conflict.buffer), conflict.first.stmt
    if scope != "fragment" or stmt is not conflict.second.stmt or not isinstance(stmt, Store):
        return scope in ("local", "fragment")
    loads = (part for part in walk_expr(stmt.value) if isinstance(part, Load))
    return all(one.indices == stmt.indices for one in loads if one.buffer == stmt.buffer)
