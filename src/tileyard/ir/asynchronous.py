"""The asynchronous meaning: an issued operation takes effect at any moment up to the wait that
covers it. In ``interpret.py`` it is over when issued, in ``hazards.py`` as late as possible. The
model is PTX's (docs/design/async.md); all threads of a role act as one.
"""

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec
import numpy as np

from tileyard.base.errors import KernelFault, OutOfBoundsFault
from tileyard.base.model import Value
from tileyard.ir.clocks import READ_ONLY, WHOLE, Moment, Places, View
from tileyard.ir.fences import find_fences
from tileyard.ir.interpret import Blocked, Plain, Run, Waiting
from tileyard.ir.nodes import (
    Arrive,
    CommitGroup,
    Expr,
    Fence,
    For,
    InitBarrier,
    Issue,
    Load,
    Program,
    Roles,
    Stmt,
    Store,
    Sync,
    Synchronization,
    TileOperation,
    Unit,
    Var,
    WaitBarrier,
    WaitGroup,
)
from tileyard.ir.rewrite import rewrite
from tileyard.ir.tiles import Array, Memory, perform
from tileyard.ir.walk import bodies, regions, scalars, walk


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """A wait that left an operation unfinished. For groups, ``count`` is the wait's own and
    ``most`` the largest that would have covered the operation, None if it was in no group; a wait
    that ``reads_only`` may cover it. For a barrier, ``count`` is the parity waited for.
    """

    moment: Moment
    count: int
    most: int | None = None
    reads_only: bool = False


@dataclass(kw_only=True, eq=False, slots=True)
class Operation:
    """One operation, issued by a statement at one time: ``effects`` are its own, ``view`` is before it."""

    number: int
    issue: Moment
    unit: Unit
    actor: int
    view: View
    barrier: "Barrier | None" = None
    bytes: int = 0
    effects: list[Callable[[], None]] = field(default_factory=list)
    left_by: Wait | None = None
    is_done: bool = False


@dataclass(kw_only=True, eq=False, slots=True)
class Barrier:
    """One barrier. ``passed`` has the waits that ended in the current phase: actor, time and moment.
    ``missed`` are those that no actor which ended the phase knew of: they could have come after it, when
    they look for the other parity. ``latest`` is the last arrival at a numbered barrier, ``waits`` whether
    it waits. ``gathered`` is what those arriving in this phase know, ``published`` in past ones.
    """

    name: str
    expected: int
    phase: int = 0
    arrived: int = 0
    pending: int = 0
    gathered: View = field(default_factory=View)
    published: View = field(default_factory=View)
    latest: Moment | None = None
    waits: bool = True
    passed: list[tuple[int, int, Moment]] = field(default_factory=list)
    missed: list[Moment] = field(default_factory=list)

    def settle(self) -> None:
        """End the phase if all arrivals and all bytes have come."""
        if self.arrived >= self.expected and self.pending == 0:
            self.arrived -= self.expected
            self.phase += 1
            for actor, time, moment in self.passed:
                if self.gathered.times.get(actor, 0) < time:
                    self.missed.append(moment)
            self.passed.clear()
            self.published.join(self.gathered)


@dataclass(kw_only=True, eq=False, slots=True)
class LateArrival:
    """Arrivals at a barrier once the operations ``ahead`` are over. ``view`` is what precedes them."""

    barrier: Barrier
    count: int
    moment: Moment
    view: View
    ahead: list[Operation]


@dataclass(kw_only=True, eq=False, slots=True)
class Groups:
    """One role's operations on one unit: ``open`` in no group yet, unfinished ``groups`` from the oldest."""

    open: list[Operation] = field(default_factory=list)
    groups: list[list[Operation]] = field(default_factory=list)


class AsynchronousRun(Run):
    """The common part of late and random runs: operations, groups, barriers, and what roles know of
    others. ``_actor`` is the role that runs, ``_views`` what each knows. ``_waiting`` has the wait
    of each role that runs side by side, None before its beginning; ``_pending`` what ends by
    itself, the oldest first: loads that end at a barrier, and arrivals after copies.
    """

    def __init__(
        self,
        program: Program,
        arrays: Sequence[Array],
        scalars: Sequence[Value] = (),
        say: Callable[[str], object] = lambda _: None,
    ) -> None:
        program = rewrite(program, lambda stmt: (stmt,)).program  # each statement is one object
        self._numbers = {id(stmt): number for number, stmt in enumerate(walk(program.body))}
        self._loops = dict(_loops_around(program.body, ()))
        self._fences = find_fences(program)
        self._views: dict[int, View] = {0: View()}
        self._first = self._actor = 0
        self._count = 0
        self._groups: dict[tuple[int, Unit], Groups] = {}
        self._operations: list[Operation] = []
        self._barriers: dict[tuple[str, int], Barrier] = {}
        self._named: dict[int, Barrier] = {}
        self._pending: list[Operation | LateArrival] = []
        self._waiting: dict[int, Blocked | None] = {}
        self._issuing: Operation | None = None
        self._sizes: dict[int, int] = {}  # number of threads of each role
        self._last_waits: dict[tuple[int, str], Wait] = {}
        super().__init__(program, arrays, scalars, say)

    def _make_memory(self, storage: dict[str, Array]) -> Memory:
        self._raw = super()._make_memory(storage)
        return self._raw

    # ---- blocks and roles -------------------------------------------------------------------

    def _block(self) -> None:
        for held in (self._groups, self._barriers, self._named, self._last_waits):
            held.clear()
        self._operations.clear()
        self._pending.clear()
        self._first = self._actor = max(self._views) + 1
        self._views[self._actor] = View({self._actor: 1})
        super()._block()
        self._finish_block()

    def _finish_block(self) -> None:
        """Let stores reach their arrays; other unfinished operations touch nothing visible."""
        for operation in self._operations:
            if operation.unit == "tma_store":
                self._do(operation)

    def _run_roles(self, stmt: Roles) -> None:
        outside, before = self._actor, self._views[self._actor]
        actors = [max(self._views) + 1 + i for i in range(len(stmt.bodies))]
        for actor, ranges in zip(actors, stmt.threads, strict=False):
            self._sizes[actor] = sum(end - first for first, end in ranges)
        for actor in actors:
            self._views[actor] = before.copy()
            self._views[actor].times[actor] = 1
            self._views[actor].fence(
                actor, is_whole=True
            )  # TileLang puts one, and a barrier, before roles
        waiting = self._waiting = dict.fromkeys(actors)
        running = {actor: self._body(body) for actor, body in zip(actors, stmt.bodies, strict=True)}
        while waiting:
            has_moved = False
            for number in self._order([actor - actors[0] for actor in waiting]):
                actor = actors[number]
                found = waiting[actor]
                if found is not None and not found.is_over():
                    continue
                has_moved, self._actor = True, actor
                try:
                    waiting[actor] = next(running[actor])
                except StopIteration:
                    del waiting[actor]
                if self._has_priorities:
                    break
            if not has_moved and not self._go_on():
                self._stuck({actor: one for actor, one in waiting.items() if one is not None})
        self._actor = outside
        for actor in actors:
            before.join(self._views[actor])
        before.fence(outside, is_whole=True)  # and after them

    _has_priorities = False
    """Whether the first role in the order that can go on always runs."""

    def _order(self, roles: list[int]) -> list[int]:
        return roles

    def _stuck(self, waiting: dict[int, Blocked]) -> None:
        raise KernelFault("deadlock: " + "; ".join(one.where for one in waiting.values()))

    def _go_on(self) -> bool:
        """End the oldest operation or arrival that ends by itself; False if there is none."""
        if not self._pending:
            return False
        self._end(self._pending.pop(0))
        return True

    def _end(self, ending: Operation | LateArrival) -> None:
        if isinstance(ending, Operation):
            self._finish(ending)
        else:
            self._arrive_late(ending)

    def _alone(self, wait: Blocked) -> Waiting:
        """Wait; outside of roles, only operations that end by themselves can end the wait."""
        while not wait.is_over():
            if self._actor == self._first and not self._in_turns():
                if not self._go_on():
                    self._stuck({self._actor: wait})
                continue
            yield wait

    def _in_turns(self) -> bool:
        return self._actor != self._first

    def _release(self, into: View) -> None:
        """Let actors that learn ``into`` know what the current role has done so far."""
        view = self._views[self._actor]
        into.join(view)
        view.times[self._actor] += 1

    # ---- operations -------------------------------------------------------------------------

    def _iterate(self, var: Var, start: Expr, extent: Expr) -> Iterator[None]:
        self._fence(self.at)
        return super()._iterate(var, start, extent)

    def _fence(self, stmt: Stmt | None) -> None:
        is_whole = self._fences.get(id(stmt))
        if is_whole is not None:
            self._views[self._actor].fence(self._actor, is_whole=is_whole)

    def _issue(self, stmt: Issue) -> Waiting:
        self._count += 1
        self._fence(stmt)
        view = self._views[self._actor].copy()
        operation = Operation(
            number=self._count, issue=self._moment(), unit=stmt.unit, actor=self._actor, view=view
        )
        groups = self._groups_of(stmt.unit)
        if stmt.unit == "wgmma":  # products of a role are done in order
            earlier = [*groups.open, *(one for group in groups.groups for one in group)]
            view.over |= {one.number: WHOLE for one in earlier}
            # TileLang lets all threads of the role fence their writes before it.
            self._views[self._actor].fence_own(self._actor)
        self._operations.append(operation)
        if stmt.barrier is not None:
            operation.barrier = self._find_barrier(stmt.barrier)
            self._pending.append(operation)
        else:
            groups.open.append(operation)
        self._views[self._actor].times[self._actor] += 1
        self._issuing = operation
        yield from self._body(stmt.body)
        self._issuing = None

    def _groups_of(self, unit: Unit) -> Groups:
        return self._groups.setdefault((self._actor, unit), Groups())

    def _run(self, stmt: Plain) -> None:
        operation = self._issuing
        if operation is None:
            super()._run(stmt)
            return
        match stmt:
            case Store():
                self._issue_store(operation, stmt)
            case TileOperation():
                boxes = tuple(map(self._box, regions(stmt)))
                into = boxes[-1]
                for box in boxes[: -1 if stmt.clear else None]:
                    self._reads(operation, box.buffer, self._raw.overlap(box)[0])
                self._writes(operation, into.buffer, self._raw.overlap(into)[0])
                numbers = tuple(map(self._value, scalars(stmt)))
                operation.effects.append(partial(perform, self._raw, stmt, boxes, numbers))
                operation.bytes += math.prod(into.extents) * self._raw.array(into.buffer).itemsize
            case _:
                super()._run(stmt)

    def _issue_store(self, operation: Operation, stmt: Store) -> None:
        to = self._evaluator.indices(stmt.indices)
        if not self._raw.is_inside(stmt.buffer, to):
            return
        value = stmt.value
        if isinstance(value, Load):
            source = self._evaluator.indices(value.indices)
            if self._raw.is_inside(value.buffer, source):
                self._reads(operation, value.buffer, source)
            content: Callable[[], np.generic] = partial(self._raw.load, value.buffer, source)
        else:
            content = partial(self._value, value)
        self._writes(operation, stmt.buffer, to)
        operation.bytes += self._raw.array(stmt.buffer).itemsize
        operation.effects.append(lambda: self._raw.store(stmt.buffer, to, content()))

    def _reads(self, operation: Operation, buffer: str, where: Places) -> None:
        """Note a read by an operation."""

    def _writes(self, operation: Operation, buffer: str, where: Places) -> None:
        """Note a write by an operation."""

    def _do(self, operation: Operation) -> None:
        if not operation.is_done:
            operation.is_done = True
            for effect in operation.effects:
                effect()

    def _finish(self, operation: Operation) -> None:
        """End an operation, and subtract its bytes from those that its barrier expects."""
        self._do(operation)
        barrier = operation.barrier
        if barrier is not None:
            barrier.pending -= operation.bytes
            barrier.gathered.join(operation.view)
            barrier.gathered.over[operation.number] = WHOLE
            barrier.settle()

    # ---- groups and barriers ----------------------------------------------------------------

    def _synchronize(self, stmt: Synchronization) -> Waiting:
        match stmt:
            case CommitGroup():
                found = self._groups_of(stmt.unit)
                found.groups.append(found.open)
                found.open = []
            case WaitGroup():
                self._wait_for_groups(stmt)
            case InitBarrier():
                for number, expected in enumerate(self._arrivals[stmt.barriers.buffer]):
                    key = (stmt.barriers.buffer, number)
                    self._barriers[key] = Barrier(name=_name(*key), expected=expected)
            case Arrive():
                self._arrive(stmt)
                if self._has_priorities and self._in_turns():  # others may be able to go on now
                    yield Blocked(stmt=stmt, where="", is_over=lambda: True)
            case WaitBarrier():
                yield from self._wait_at(stmt)
            case Sync():
                yield from self._sync(stmt)
            case Fence():
                size = self._sizes.get(self._actor, math.prod(self._program.threads))
                self._views[self._actor].fence(self._actor, is_whole=stmt.threads >= size)
            case _:
                raise TypeError(f"{type(stmt).__name__} has no asynchronous meaning")

    def _wait_for_groups(self, stmt: WaitGroup) -> None:
        found = self._groups_of(stmt.unit)
        count = self._evaluator.number(stmt.count)
        if count < 0:
            raise KernelFault(f"a wait for all but the latest {count} groups")
        view = self._views[self._actor]
        ended = found.groups[: max(len(found.groups) - count, 0)]
        for operation in (one for group in ended for one in group):
            self._do(operation)
            so_far = READ_ONLY if stmt.reads_only else WHOLE
            view.over[operation.number] = max(view.over.get(operation.number, 0), so_far)
            if stmt.reads_only:
                operation.left_by = Wait(
                    moment=self._moment(), count=count, most=count, reads_only=True
                )
        if not stmt.reads_only:
            del found.groups[: len(ended)]
        left = found.groups[len(found.groups) - min(count, len(found.groups)) :]
        for most, group in [(None, found.open), *enumerate(reversed(left))]:
            for operation in group:
                operation.left_by = Wait(moment=self._moment(), count=count, most=most)

    def _find_barrier(self, place: Load) -> Barrier:
        (number,) = self._evaluator.indices(place.indices)
        if (place.buffer, number) not in self._barriers:
            size = len(self._arrivals[place.buffer])
            raise OutOfBoundsFault(f"{_name(place.buffer, number)} is outside its shape ({size},)")
        return self._barriers[place.buffer, number]

    def _arrive(self, stmt: Arrive) -> None:
        barrier = self._find_barrier(stmt.barrier)
        barrier.pending += stmt.bytes
        if not stmt.count:
            return
        if not stmt.after:
            self._count_arrivals(barrier, stmt.count, self._moment())
            self._release(barrier.gathered)
            barrier.settle()
            return
        actor = self._actor
        late = LateArrival(
            barrier=barrier,
            count=stmt.count,
            moment=self._moment(),
            view=self._views[actor].copy(),
            ahead=[o for o in self._operations if o.actor == actor and o.unit == stmt.after],
        )
        self._views[actor].times[actor] += 1
        self._pending.append(late)

    def _arrive_late(self, late: LateArrival) -> None:
        for operation in late.ahead:
            self._do(operation)
            late.view.over[operation.number] = WHOLE
        late.barrier.gathered.join(late.view)
        self._count_arrivals(late.barrier, late.count, late.moment)
        late.barrier.settle()

    def _count_arrivals(self, barrier: Barrier, count: int, moment: Moment) -> None:
        barrier.arrived += count

    def _wait_at(self, stmt: WaitBarrier) -> Waiting:
        barrier, parity = self._find_barrier(stmt.barrier), self._evaluator.number(stmt.parity)
        wait = Blocked(
            stmt=stmt,
            where=f"for {barrier.name}",
            is_over=lambda: barrier.phase % 2 != parity,
        )
        moment = self._moment()
        yield from self._alone(wait)
        view = self._views[self._actor]
        view.join(barrier.published)
        barrier.passed.append((self._actor, view.times[self._actor], moment))
        view.times[self._actor] += 1
        self._last_waits[self._actor, barrier.name] = Wait(moment=moment, count=parity)

    def _sync(self, stmt: Sync) -> Waiting:
        name = f"barrier {stmt.barrier}"
        found = self._named.setdefault(stmt.barrier, Barrier(name=name, expected=stmt.count))
        if found.expected != stmt.count:
            self._disagree(found, stmt)
        end = found.phase + 1
        self._count_arrivals(found, stmt.threads, self._moment())
        found.latest, found.waits = self._moment(), stmt.waits
        self._release(found.gathered)
        found.settle()
        is_alone = not self._in_turns() and stmt.threads >= math.prod(self._program.threads)
        if stmt.waits and (is_alone or self._in_turns()):  # else others are lowered afterwards
            here = Blocked(stmt=stmt, where=f"at {name}", is_over=lambda: found.phase >= end)
            yield from self._alone(here)
            self._views[self._actor].join(found.published)

    def _disagree(self, barrier: Barrier, stmt: Sync) -> None:
        """Note that other roles wait for another number of threads at a numbered barrier."""

    def _moment(self) -> Moment:
        """The statement that runs now."""
        return self._moment_of(self.at)

    def _moment_of(self, stmt: Stmt | None) -> Moment:
        number = self._numbers.get(id(stmt), -1)
        loops = self._loops.get(number, ())
        known = tuple((name, int(self._values[name])) for name in loops if name in self._values)
        return Moment(number=number, loops=known)


def _name(buffer: str, number: int) -> str:
    return f"{buffer}[{number}]"


def _loops_around(
    body: tuple[Stmt, ...], outer: tuple[str, ...], first: int = 0
) -> Generator[tuple[int, tuple[str, ...]], None, int]:
    """For each statement, by number, the variables of the loops around it."""
    number = first
    for stmt in body:
        yield number, outer
        number += 1
        inside = (*outer, stmt.var.name) if isinstance(stmt, For) else outer
        for inner in bodies(stmt):
            number = yield from _loops_around(inner, inside, number)
    return number
