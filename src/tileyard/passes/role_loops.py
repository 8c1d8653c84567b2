"""Loops shared by a producer and a consumer: their parts, barriers between the two, each one's statements."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from tileyard.ir.dtypes import find_dtype
from tileyard.ir.nodes import (
    Arrive,
    Const,
    Copy,
    Expr,
    Fence,
    For,
    If,
    Issue,
    Let,
    Load,
    LoopKind,
    Op,
    Product,
    Stmt,
    Store,
    Var,
    WaitBarrier,
    While,
)
from tileyard.ir.rewrite import Copies, Names
from tileyard.ir.syntax import ONE, ZERO
from tileyard.ir.walk import buffer_effects, regions, walk
from tileyard.passes.instructions import Architecture, choose_load, choose_product
from tileyard.passes.plan_roles import PRODUCER_THREADS
from tileyard.passes.schedules import (
    buffers_in,
    groups_of,
    needed_lets,
    scheduled,
    tiles_filled,
    tiles_of,
    without_lets,
)
from tileyard.passes.storage import Storage, with_indices


@dataclass(frozen=True, kw_only=True)
class RoleLoop:
    """A loop's parts: Lets and conditions around the rest, statements that fill tiles, and their users."""

    loop: For
    lets: tuple[Stmt, ...]
    conds: tuple[Expr, ...]
    loads: tuple[Stmt, ...]
    late: tuple[Stmt, ...]
    is_repeated: bool

    @property
    def name(self) -> str:
        """The name of the loop's variable."""
        return self.loop.var.name

    @property
    def depth(self) -> int:
        """The number of iterations that may be under way."""
        return max(row.stage for row in scheduled(self.loop)) + 1

    @property
    def is_counted(self) -> bool:
        """Whether its variable determines how many iterations have been done."""
        start = self.loop.start
        is_plain = isinstance(start, Const | Var)
        return not self.is_repeated and not self.conds and is_plain


def read_role_loop(loop: For, around: Iterable[Stmt]) -> RoleLoop:
    """The parts of a loop that is planned for roles, with the statements ``around`` it."""
    loads = tuple(stmt for group in groups_of(loop) for stmt in group)
    mine = {id(stmt) for stmt in loads}
    late = tuple(stmt for stmt in loop.body if id(stmt) not in mine)
    lets, conds = list[Stmt](), list[Expr]()
    while True:
        (*others, branch) = without_lets(late) or (None,)
        has_lets = bool(conds) and len(late) > 1  # they are inside of the previous guard
        if others or has_lets or not isinstance(branch, If) or branch.orelse:
            break
        ifs = [stmt for stmt in loads if isinstance(stmt, If) and stmt.cond == branch.cond]
        if len(ifs) < len(loads) or any(stmt.orelse for stmt in ifs):
            break
        lets += [stmt for stmt in late if isinstance(stmt, Let)]
        conds.append(branch.cond)
        loads = tuple(inner for stmt in ifs for inner in stmt.then)
        late = branch.then
    return RoleLoop(
        loop=loop,
        lets=tuple(lets),
        conds=tuple(conds),
        loads=loads,
        late=late,
        is_repeated=any(isinstance(stmt, For | While) for stmt in around),
    )


@dataclass(frozen=True, kw_only=True)
class Group:
    """Tiles filled and used together in ``versions`` versions, with a row of barriers for each direction.
    ``loops`` fill them; if it ``is_mixed``, some by ``cp.async``, and each thread of the producer arrives.
    """

    tiles: frozenset[str]
    loops: frozenset[str]
    versions: int
    full: str
    empty: str
    is_mixed: bool

    @property
    def arrivals(self) -> int:
        """Number of arrivals that fill a version."""
        return PRODUCER_THREADS if self.is_mixed else 1


def read_groups(
    loops: Sequence[RoleLoop], names: Names, storage: Storage, arch: Architecture
) -> tuple[Group, ...]:
    """The groups of all loops; tiles that are grouped in one loop are grouped in all."""
    together: list[frozenset[str]] = []
    for stmts in (stmts for one in loops for stmts in groups_of(one.loop)):
        tiles = tiles_filled(stmts)
        joined = [one for one in together if one & tiles]
        together = [one for one in together if not one & tiles]
        together.append(tiles.union(*joined))
    found = []
    for tiles in together:
        own = [one for one in loops if tiles & tiles_of(one.loop)]
        prefix = "" if len(together) == 1 else f"{min(tiles)}_"
        loads = [s for one in own for s in walk(one.loads) if isinstance(s, Copy)]
        units = {
            choose_load(load, storage, arch).instruction
            for load in loads
            if load.dst.buffer in tiles
        }
        found.append(
            Group(
                tiles=tiles,
                loops=frozenset(one.name for one in own),
                versions=max(one.depth for one in own),
                full=names.fresh(f"{prefix}full"),
                empty=names.fresh(f"{prefix}empty"),
                is_mixed=units != {"tma"},
            )
        )
    return tuple(found)


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of the roles, of ``threads`` threads; ``registers`` count iterations of loops counted together."""

    groups: tuple[Group, ...]
    registers: Mapping[frozenset[str], str]
    threads: int
    storage: Storage
    arch: Architecture
    copies: Copies

    def produce(self, one: RoleLoop) -> For:
        """The producer's loop."""
        body = list[Stmt]()
        lets = needed_lets(one.loads, one.loads) if one.conds else ()
        for group in self._groups_of(one):
            loads = tuple(s for s in one.loads if tiles_filled((s,)) & group.tiles)
            count = self._count(one, group)
            body += (*needed_lets(lets, loads), self._wait(group.empty, group, count, flip=1))
            body += self._filled(loads, group, count)
            body.append(self._arrive_full(loads, group, count))
        around = needed_lets(one.loop.body, _whole_loads(one))
        return self._loop(one, around, (*body, *self._counted(one)))

    def consume(self, one: RoleLoop) -> For:
        """The consumer's loop."""
        late, body = one.late, list[Stmt]()
        plan = {group: _uses(late, group) for group in self._groups_of(one)}
        for at, stmt in enumerate((*late, None)):
            for group, (first, _) in plan.items():
                if first == at:
                    body += self._wait_full(one, group, late)
            if stmt is not None:
                body += self._at_slots(one, (stmt,))
            for group, (_, last) in plan.items():
                if last == at:
                    body += self._release(one, group, late)
        return self._loop(one, one.lets, (*body, *self._counted(one)))

    # ---- statements -------------------------------------------------------------------------

    def _loop(self, one: RoleLoop, lets: tuple[Stmt, ...], body: tuple[Stmt, ...]) -> For:
        for cond in reversed(one.conds):
            body = (If(cond, body),)
        kind: LoopKind = "serial"
        plain = msgspec.structs.replace(
            one.loop, kind=kind, stages=0, order=(), stage=(), group=(), body=(*lets, *body)
        )
        self.copies.derive(plain, one.loop)
        return plain

    def _groups_of(self, one: RoleLoop) -> tuple[Group, ...]:
        return tuple(group for group in self.groups if one.name in group.loops)

    def _count(self, one: RoleLoop, group: Group) -> Expr:
        """The number of iterations done so far of the loops of a group."""
        if group.loops in self.registers:
            return _register(self.registers[group.loops])
        var, start = one.loop.var, one.loop.start
        return var if start == Const(0, start.dtype) else Op("sub", (var, start), var.dtype)

    def _counted(self, one: RoleLoop) -> tuple[Stmt, ...]:
        found = [_register(name) for loops, name in self.registers.items() if one.name in loops]
        return tuple(Store(r.buffer, r.indices, Op("add", (r, ONE), r.dtype)) for r in found)

    def _wait(self, row: str, group: Group, count: Expr, flip: int) -> Stmt:
        """Wait for the phase of the version that iteration ``count`` uses."""
        dtype = count.dtype
        phase = count
        if group.versions > 1:
            phase = Op("floordiv", (count, Const(group.versions, dtype)), dtype)
        parity: Expr = Op("floormod", (phase, Const(2, dtype)), dtype)
        if flip:
            parity = Op("bitxor", (parity, Const(flip, dtype)), dtype)
        return WaitBarrier(_place(row, group, count), parity)

    def _filled(self, stmts: tuple[Stmt, ...], group: Group, count: Expr) -> tuple[Stmt, ...]:
        """``stmts`` with their copies issued asynchronously."""
        found = list[Stmt]()
        for stmt in self._at(stmts, {group: count}):
            if isinstance(stmt, If):
                then = self._filled(stmt.then, group, count)
                found.append(self.copies.derive(msgspec.structs.replace(stmt, then=then), stmt))
            elif isinstance(stmt, Copy):
                issue = self._issue(stmt, group, count)
                found += (self.copies.derive(new, stmt) for new in issue)
            else:
                found.append(stmt)
        return tuple(found)

    def _issue(self, copy: Copy, group: Group, count: Expr) -> tuple[Stmt, ...]:
        if choose_load(copy, self.storage, self.arch).instruction != "tma":
            return (Issue("cp_async", (copy,)),)
        size = find_dtype(self.storage.buffers[copy.dst.buffer].dtype).bits
        for extent in copy.dst.extents:
            size *= int(extent.value) if isinstance(extent, Const) else 1
        place = _place(group.full, group, count)
        return (Arrive(place, count=0, bytes=size // 8), Issue("tma", (copy,), place))

    def _arrive_full(self, loads: tuple[Stmt, ...], group: Group, count: Expr) -> Stmt:
        copies = (stmt for stmt in walk(loads) if isinstance(stmt, Copy))
        units = {choose_load(copy, self.storage, self.arch).instruction for copy in copies}
        place = _place(group.full, group, count)
        if "cp_async" in units:
            return Arrive(place, count=group.arrivals, after="cp_async")
        return Arrive(place, count=group.arrivals)

    def _wait_full(self, one: RoleLoop, group: Group, late: tuple[Stmt, ...]) -> list[Stmt]:
        """Wait until a version is full; a fence makes writes of ``cp.async`` visible to ``wgmma``."""
        found = [self._wait(group.full, group, self._count(one, group), flip=0)]
        products = (stmt for stmt in walk(late) if isinstance(stmt, Product))
        by_wgmma = (
            product
            for product in products
            if choose_product(product, self.storage, self.arch).instruction == "wgmma"
        )
        read = {region.buffer for product in by_wgmma for region in regions(product)}
        return [*found, Fence(self.threads)] if group.is_mixed and read & group.tiles else found

    def _release(self, one: RoleLoop, group: Group, late: tuple[Stmt, ...]) -> list[Stmt]:
        """Signal that a version is empty; after a fence if statements have written where TMA writes next."""
        place = _place(group.empty, group, self._count(one, group))
        is_written = buffer_effects(late).written & group.tiles
        fence: list[Stmt] = [Fence(self.threads)] if is_written else []
        return [*fence, Arrive(place, count=self.threads)]

    def _at_slots(self, one: RoleLoop, stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return self._at(stmts, {g: self._count(one, g) for g in self._groups_of(one)})

    def _at(self, stmts: tuple[Stmt, ...], counts: Mapping[Group, Expr]) -> tuple[Stmt, ...]:
        slots = {
            tile: Op("floormod", (count, Const(group.versions, count.dtype)), count.dtype)
            for group, count in counts.items()
            if group.versions > 1 and group.loops in self.registers
            for tile in group.tiles
        }
        if not slots:
            return stmts

        def indices(buffer: str, old: tuple[Expr, ...]) -> tuple[Expr, ...]:
            return (slots[buffer], *old[1:]) if buffer in slots else old

        return self.copies.change(stmts, lambda stmt: with_indices(stmt, indices))


def _uses(late: tuple[Stmt, ...], group: Group) -> tuple[int, int]:
    """The first and last position that uses tiles of a group; after all statements if none does."""
    found = [at for at, stmt in enumerate(late) if buffers_in((stmt,)) & group.tiles]
    return (found[0], found[-1]) if found else (len(late), len(late))


def _whole_loads(one: RoleLoop) -> tuple[Stmt, ...]:
    return tuple(stmt for group in groups_of(one.loop) for stmt in group)


def _place(row: str, group: Group, count: Expr) -> Load:
    """The barrier of the version that iteration ``count`` uses."""
    slot: Expr = ZERO
    if group.versions > 1:
        slot = Op("floormod", (count, Const(group.versions, count.dtype)), count.dtype)
    return Load(row, (slot,), "int32")


def _register(name: str) -> Load:
    return Load(name, (ZERO,), "int32")
