"""Splits a block into a producer, which copies tiles, and a consumer, which does everything else.

Each group of tiles has two rows of barriers, one per version: the producer waits until a version is
empty, fills it, and arrives at ``full``; the consumer waits for that, and arrives at ``empty``
after its last use. Iterations are counted by the loop's variable, or in a register of each role if
the loop runs repeatedly, has a guard, or shares its tiles: so phases continue from loop to loop.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from tileyard.ir.nodes import (
    Buffer,
    Const,
    Copy,
    Fill,
    For,
    If,
    InitBarrier,
    Let,
    LoopKind,
    Program,
    Region,
    Roles,
    Stmt,
    Store,
)
from tileyard.ir.rewrite import Copies, Names, rewrite_body, with_bodies
from tileyard.ir.syntax import ONE, ZERO
from tileyard.ir.walk import bodies, buffer_effects, own_effects, walk
from tileyard.passes.base import Passed, Slicer
from tileyard.passes.instructions import block_of, count_threads, find_architecture
from tileyard.passes.plan_roles import PRODUCER_THREADS
from tileyard.passes.role_loops import Group, RoleLoop, Side, read_groups, read_role_loop
from tileyard.passes.schedules import buffers_in, is_for_roles, variables_in
from tileyard.passes.storage import Storage, with_buffers

WARPGROUP = 128
REGISTERS = {1: (24, 240), 2: (24, 240), 3: (24, 160)}
"""Registers per thread of each role, by the consumer's warpgroups: at most 64,512 for all.
Source: PTX ISA, "setmaxnreg"."""


@dataclass(frozen=True)
class SpecializeWarps:
    """Splits the loops that are planned for roles into producer and consumer, on an architecture."""

    architecture: str
    name: str = "specialize-warps"

    def run(self, program: Program) -> Passed:
        """Split the block, if a loop is planned for roles."""
        split = _Split(program, self.architecture)
        if not any(map(is_for_roles, walk(program.body))):
            return Passed(
                program=program, origins=tuple(n for n, _ in enumerate(walk(program.body)))
            )
        done = rewrite_body(program, split.body, split.copies)
        first, *rest = block_of(program)
        made = msgspec.structs.replace(
            done.program,
            threads=(first + PRODUCER_THREADS, *rest),
            buffers=(*program.buffers, *split.made),
        )
        return Passed(program=made, origins=done.origins)


class _Split:
    def __init__(self, program: Program, architecture: str) -> None:
        self._program, self._arch = program, find_architecture(architecture)
        self._names = Names(program)
        self._kept: frozenset[int] = frozenset()
        self._loops: dict[int, RoleLoop] = {}
        self.copies = Copies(self._names)
        self.made: list[Buffer] = []

    def body(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        storage = Storage(msgspec.structs.replace(self._program, body=body))
        slicer = Slicer(storage)
        loops = [s for s in walk(body) if isinstance(s, For) and is_for_roles(s)]
        self._loops = {id(loop): read_role_loop(loop, slicer.around(loop)) for loop in loops}
        copies = (s for one in self._loops.values() for s in walk(one.loads) if isinstance(s, Copy))
        self._kept = slicer.slice(copies)
        parts = tuple(self._loops.values())
        groups = read_groups(parts, self._names, storage, self._arch)
        front = self._find_front(body)
        rest = tuple(stmt for stmt in body if id(stmt) not in front)
        threads = count_threads(self._program)

        def side(name: str) -> Side:
            return Side(
                groups=groups,
                registers=self._make_registers(parts, groups, name),
                threads=threads,
                storage=storage,
                arch=self._arch,
                copies=self.copies,
            )

        barriers = tuple(self._make_barriers(groups, threads))
        roles = (self._producer(rest, side("filled")), self._consumer(rest, side("used")))
        ranges = ((0, PRODUCER_THREADS), (PRODUCER_THREADS, PRODUCER_THREADS + threads))
        split = Roles(roles, tuple((own,) for own in ranges), _count_registers(groups, threads))
        first, last = (
            tuple(self.copies.derive(s, loops[0]) for s in new) for new in (barriers, (split,))
        )
        return (*first, *(stmt for stmt in body if id(stmt) in front), *last)

    # ---- shared by the roles ----------------------------------------------------------------

    def _make_barriers(self, groups: tuple[Group, ...], threads: int) -> Iterator[Stmt]:
        for group in groups:
            for name, arrivals in ((group.full, group.arrivals), (group.empty, threads)):
                extent = Const(group.versions, "int32")
                counts = (arrivals,) * group.versions
                self.made.append(Buffer(name, "int32", (extent,), "barrier", arrivals=counts))
                yield InitBarrier(Region(name, (ZERO,), (extent,)))

    def _make_registers(
        self, loops: tuple[RoleLoop, ...], groups: tuple[Group, ...], name: str
    ) -> dict[frozenset[str], str]:
        """A register of a role for each set of loops that are not counted by their own variables."""
        counted = {frozenset({one.name}) for one in loops if one.is_counted}
        found = {}
        for together in dict.fromkeys(group.loops for group in groups):
            if together not in counted:
                found[together] = self._names.fresh(name)
                self.made.append(Buffer(found[together], "int32", (ONE,), "local"))
        return found

    def _find_front(self, body: tuple[Stmt, ...]) -> frozenset[int]:
        """The identities of the block's own statements that only compute, once, what the producer needs."""
        found = {id(stmt) for stmt in body if self._is_setup(stmt)}
        size = -1
        while size != len(found):
            size = len(found)
            others = tuple(stmt for stmt in body if id(stmt) not in found)
            bound = {stmt.var.name for stmt in others if isinstance(stmt, Let)}
            written = buffer_effects(others).written
            used = set[str]()
            for stmt in body:
                if id(stmt) not in found:
                    used |= buffers_in((stmt,))
                    continue
                needs_others = variables_in((stmt,)) & bound or buffers_in((stmt,)) & written
                if needs_others or buffer_effects((stmt,)).written & used:
                    found.discard(id(stmt))
        return frozenset(found)

    def _is_setup(self, stmt: Stmt) -> bool:
        return all(
            id(inner) in self._kept and isinstance(inner, Let | Store | Fill | If | For)
            for inner in walk((stmt,))
        ) and not any(id(inner) in self._loops for inner in walk((stmt,)))

    # ---- roles ------------------------------------------------------------------------------

    def _producer(self, body: tuple[Stmt, ...], side: Side) -> tuple[Stmt, ...]:
        """The statements that fill the tiles, and their dependences, with the producer's own variables."""
        kept = self._sliced(body, side)
        local = {b.name: b for b in self._program.buffers if b.scope == "local"}
        names = {}
        for name in sorted(buffer_effects(kept).written & set(local)):
            names[name] = self._names.copy_of(name)
            self.made.append(msgspec.structs.replace(local[name], name=names[name]))
        own = self.copies.copy(kept, {})
        return (*self._start(side), *self.copies.change(own, lambda s: with_buffers(s, names)))

    def _sliced(self, body: tuple[Stmt, ...], side: Side) -> tuple[Stmt, ...]:
        found = list[Stmt]()
        for stmt in body:
            if id(stmt) in self._loops:
                found.append(side.produce(self._loops[id(stmt)]))
            elif id(stmt) in self._kept:
                inner = with_bodies(stmt, tuple(self._sliced(one, side) for one in bodies(stmt)))
                found.append(self.copies.derive(_as_serial(inner), stmt))
        return tuple(found)

    def _consumer(self, body: tuple[Stmt, ...], side: Side) -> tuple[Stmt, ...]:
        """Everything but the copies, without what only the copies needed."""
        used = self._consumed(body, side)
        while True:
            names, read = variables_in(used), buffer_effects(used).read
            left = self._without_unused(used, names, read)
            if left == used:
                return (*self._start(side), *left)
            used = left

    def _consumed(self, body: tuple[Stmt, ...], side: Side) -> tuple[Stmt, ...]:
        found = list[Stmt]()
        for stmt in body:
            if id(stmt) in self._loops:
                found.append(side.consume(self._loops[id(stmt)]))
            elif any(id(inner) in self._loops for inner in walk((stmt,))):
                inner = tuple(self._consumed(one, side) for one in bodies(stmt))
                found.append(self.copies.derive(with_bodies(stmt, inner), stmt))
            else:
                found.append(stmt)
        return tuple(found)

    def _without_unused(
        self, body: tuple[Stmt, ...], names: set[str], read: frozenset[str]
    ) -> tuple[Stmt, ...]:
        """``body`` without variables and registers of the producer that no statement here reads."""
        found = list[Stmt]()
        for stmt in body:
            old = bodies(stmt)
            inner = tuple(self._without_unused(one, names, read) for one in old)
            is_own = id(stmt) in self._kept
            is_unread = isinstance(stmt, Store | Fill) and not own_effects(stmt).written & read
            is_empty = bool(old) and not any(inner)
            if isinstance(stmt, Let) and stmt.var.name not in names:
                continue
            if is_own and (is_unread or is_empty):
                continue
            changed = any(
                len(a) != len(b) or any(x is not y for x, y in zip(a, b, strict=True))
                for a, b in zip(old, inner, strict=True)
            )
            found.append(self.copies.derive(with_bodies(stmt, inner), stmt) if changed else stmt)
        return tuple(found)

    def _start(self, side: Side) -> tuple[Stmt, ...]:
        return tuple(Store(name, (ZERO,), ZERO) for name in side.registers.values())


def _count_registers(groups: tuple[Group, ...], threads: int) -> tuple[int, ...]:
    """The registers that roles request; none if threads of the producer copy themselves, and need some."""
    if threads % WARPGROUP or any(group.is_mixed for group in groups):
        return ()
    return REGISTERS.get(threads // WARPGROUP, ())


def _as_serial(stmt: Stmt) -> Stmt:
    if not isinstance(stmt, For) or stmt.kind != "pipelined":
        return stmt
    kind: LoopKind = "serial"
    return msgspec.structs.replace(stmt, kind=kind, stages=0, order=(), stage=(), group=())
