"""Plans the pipelines of loops: which copies are asynchronous, what runs ahead, and by how many
iterations. With TMA, loops that suit it get a producer and a consumer (``specialize_warps.py``)
unless ``plan_roles.py`` objects; all others use ``cp.async`` (``inject_pipeline.py``).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from tileyard.ir.dtypes import find_dtype
from tileyard.ir.nodes import (
    Atomic,
    Break,
    Buffer,
    Const,
    Copy,
    Expr,
    For,
    If,
    Issue,
    Let,
    Load,
    Program,
    Roles,
    Stmt,
    Synchronization,
    Var,
    While,
)
from tileyard.ir.rewrite import Copies, Names, rewrite
from tileyard.ir.walk import (
    bodies,
    buffer_effects,
    expressions,
    own_effects,
    walk,
    walk_expr,
    written_region,
)
from tileyard.passes.base import Note, Passed
from tileyard.passes.instructions import Architecture, choose_load, find_architecture, is_load
from tileyard.passes.loop_plans import LoopPlan, write_plan, write_role_plan
from tileyard.passes.plan_roles import find_declined, group_tiles
from tileyard.passes.schedules import (
    ScheduleRules,
    buffers_in,
    needed_lets,
    scheduled,
    tiles_filled,
    variables_in,
    without_lets,
)
from tileyard.passes.storage import Storage

BARRIER_BYTES = 8
_Fate = Literal["kept", "replaced", "read"]


@dataclass(frozen=True, kw_only=True)
class Loads:
    """The loads of a loop that writes these buffers, on an architecture."""

    storage: Storage
    arch: Architecture
    written: frozenset[str]

    def why_late(
        self, before: tuple[Stmt, ...], stmt: Stmt, after: tuple[Stmt, ...]
    ) -> list[tuple[Copy, str]]:
        """A statement's loads, with why each can't run ahead of ``before`` and earlier iterations, if so."""
        loads = [s for s in walk((stmt,)) if isinstance(s, Copy) and is_load(s, self.storage)]
        is_branch = isinstance(stmt, If) and not stmt.orelse and set(stmt.then) <= {*loads}
        if not isinstance(stmt, Copy) and not is_branch:
            return [(copy, "it is in a loop or branch with other statements") for copy in loads]
        found = []
        for number, copy in enumerate(loads):
            tile = copy.dst.buffer
            reason = self._why_not(copy) or self._why_dependent(stmt, before)
            if not reason and tile in buffers_in((*before, *loads[:number])):
                reason = f"{tile} is used before it in the same iteration"
            if not reason and not all(_is_only_under(stmt, user, tile) for user in after):
                reason = f"{tile} is used where its condition may not hold"
            found.append((copy, reason))
        return found

    def read_by(self, exprs: Iterable[Expr], before: tuple[Stmt, ...]) -> set[str]:
        """The buffers that expressions read, including the Lets ``before`` them."""
        known = {stmt.var.name: stmt.value for stmt in before if isinstance(stmt, Let)}
        found, left = set[str](), list(exprs)
        while left:
            for part in walk_expr(left.pop()):
                if isinstance(part, Load):
                    found.add(self.storage.owners[part.buffer])
                if isinstance(part, Var) and part.name in known:
                    left.append(known.pop(part.name))
        return found

    def _why_not(self, copy: Copy) -> str:
        """Why a copy cannot be asynchronous in the loop, at any place; empty if it can."""
        choice = choose_load(copy, self.storage, self.arch)
        if choice.instruction == "copy":
            return choice.reason
        storage, src, tile = self.storage, copy.src.buffer, copy.dst.buffer
        if storage.owners[src] in self.written:
            return f"the loop writes {src}"
        if tile in storage.viewed:
            return f"{tile} is seen as more than one buffer"
        return "" if storage.is_whole(copy.dst) else f"it fills only a part of {tile}"

    def _why_dependent(self, stmt: Stmt, before: tuple[Stmt, ...]) -> str:
        """The results of the loop on which the bounds and the condition of ``stmt`` depend; empty if none."""
        exprs = [expr for inner in walk((stmt,)) for expr in expressions(inner)]
        late = self.read_by(exprs, before) & self.written
        if late:
            return f"it depends on {min(late)}, which the loop writes"
        bound = {s.var.name for s in walk(before) if isinstance(s, Atomic) and s.var is not None}
        if bound & variables_in((stmt, *needed_lets(before, (stmt,)))):
            return "it depends on an atomic update"
        return ""


def _is_only_under(load: Stmt, user: Stmt, tile: str) -> bool:
    """Whether ``user`` uses a tile only if the condition under which ``load`` fills it holds."""
    if not isinstance(load, If) or tile not in buffers_in((user,)):
        return True
    return isinstance(user, If) and user.cond == load.cond and tile not in buffers_in(user.orelse)


@dataclass(frozen=True)
class PlanPipeline:
    """Plans pipelines for the units and the shared memory of an architecture."""

    architecture: str
    name: str = "plan-pipeline"

    def run(self, program: Program) -> Passed:
        """Plan the loops that can be pipelined, and note why others cannot."""
        program = rewrite(program, lambda stmt: (stmt,)).program  # each statement is one object
        planner = _Planner(Storage(program), find_architecture(self.architecture))
        planner.plan()
        copies = Copies(Names(program))
        groups = group_tiles([plan for plan in planner.loops.values() if plan.for_roles])

        def change(stmt: Stmt) -> tuple[Stmt, ...]:
            if not isinstance(stmt, For) or stmt.kind != "pipelined":
                return (stmt,)
            plan = planner.loops.get(stmt.var.name)
            if plan is None:
                return (msgspec.structs.replace(stmt, order=(), stage=(), group=()),)
            if plan.for_roles:
                return (write_role_plan(stmt, plan, groups, copies),)
            return (write_plan(stmt, plan, copies),)

        done = rewrite(program, change, copies)
        return Passed(program=done.program, origins=done.origins, notes=planner.sorted_notes())


class _Refused(Exception):
    """A loop cannot be pipelined: the reason."""


class _Planner:
    """``loops`` are those that can be pipelined, by the names of their variables, which are unique."""

    def __init__(self, storage: Storage, arch: Architecture) -> None:
        self._storage, self._arch = storage, arch
        self._declined: dict[str, str] = {}
        self._notes: dict[int, str] = {}
        self.loops: dict[str, LoopPlan] = {}

    def plan(self) -> None:
        """Plan each loop, then drop plans that conflict with a tile's other uses or the size of shared
        memory. If loops do not suit roles, the whole Program is planned again with these loops without them.
        """
        while True:
            self._notes, self.loops = {}, {}
            self._visit(self._storage.program.body, in_role=False)
            self._drop_shared_tiles()
            self._drop_what_is_too_large()
            declined = find_declined(self._storage, self.loops, self._arch)
            if not declined:
                return
            self._declined |= declined

    def sorted_notes(self) -> tuple[Note, ...]:
        return tuple(
            Note(number=number, text=self._notes[number]) for number in sorted(self._notes)
        )

    def _note(self, stmt: Stmt, text: str) -> None:
        self._notes[self._storage.numbers[id(stmt)]] = text

    def _visit(self, body: tuple[Stmt, ...], *, in_role: bool) -> None:
        for stmt in body:
            for inner in bodies(stmt):
                self._visit(inner, in_role=in_role or isinstance(stmt, Roles))
            if isinstance(stmt, For) and stmt.kind == "pipelined":
                try:
                    self._require_plain(stmt, in_role=in_role)
                    self.loops[stmt.var.name] = self._plan_for_units(stmt)
                except _Refused as refused:
                    self._note(stmt, f"not pipelined: {refused}")

    # ---- one loop ---------------------------------------------------------------------------

    def _require_plain(self, loop: For, *, in_role: bool) -> None:
        inner = list(walk(loop.body))
        reasons = {
            "it has no stages": not (loop.stages or loop.order),
            "it is in one of several roles": in_role,
            "it has asynchronous operations or synchronization of its own": any(
                isinstance(stmt, Issue | Synchronization) for stmt in inner
            ),
            "a loop in it is": any(isinstance(s, For) and s.var.name in self.loops for s in inner),
            "a break can end it": _has_break(loop.body),
            f"its variable is {loop.var.dtype}": loop.var.dtype.startswith("uint"),
        }
        for reason, is_given in reasons.items():
            if is_given:
                raise _Refused(reason)

    def _plan_for_units(self, loop: For) -> LoopPlan:
        """The plan of a single loop, for roles if TMA can do a copy and none declines. Raises _Refused."""
        reason = self._declined.get(loop.var.name)
        if reason is None and self._arch.has_tma:
            plan = self._plan_loop(loop, self._arch)
            loads = (load for at in plan.producers for load in walk((plan.inner[at],)))
            by_tma = any(self._is_by_tma(load) for load in loads)
            if by_tma and _is_for_two(plan):
                return replace(plan, for_roles=True)
            reason = "none of its copies can go by TMA"
            if by_tma:
                reason = "its schedule has more than a stage of copies and one of all else"
        if reason:
            self._note(loop, f"not split into roles: {reason}")
        return self._plan_loop(loop, self._arch.without_tma())

    def _is_by_tma(self, stmt: Stmt) -> bool:
        if not isinstance(stmt, Copy):
            return False
        return choose_load(stmt, self._storage, self._arch).instruction == "tma"

    def _plan_loop(self, loop: For, arch: Architecture) -> LoopPlan:
        """The plan of a single loop, for the units of ``arch``; raises _Refused."""
        written = buffer_effects(loop.body).through(self._storage.owners).written
        rules = Loads(storage=self._storage, arch=arch, written=written)
        guards, inner, conds = 0, without_lets(loop.body), list[Expr]()
        lets = tuple(stmt for stmt in loop.body if isinstance(stmt, Let))
        while len(inner) == 1 and isinstance(inner[0], If) and not inner[0].orelse:
            conds.append(inner[0].cond)
            guards, inner = guards + 1, inner[0].then
        if rules.read_by(conds, lets) & written:
            guards = 0
        if not guards:
            lets, inner = (), loop.body
        producers = []
        for at, stmt in enumerate(inner):
            reasons = rules.why_late((*lets, *inner[:at]), stmt, inner[at + 1 :])
            for copy, reason in reasons:
                if reason:
                    self._note(copy, f"not asynchronous: {reason}")
            if reasons and not any(reason for _, reason in reasons):
                producers.append(at)
        if not producers:
            raise _Refused("none of its copies can be asynchronous")
        plan = LoopPlan(
            loop=loop, guards=guards, inner=inner, producers=tuple(producers), stages=loop.stages
        )
        return self._follow(plan) if loop.order else plan

    def _follow(self, plan: LoopPlan) -> LoopPlan:
        """The plan with the user's schedule; raises _Refused if it cannot be followed."""
        rows = scheduled(plan.loop)
        if not rows or plan.guards:
            raise _Refused("its schedule has not one place for each statement")
        first = min(row.stage for row in rows)
        rows = tuple(msgspec.structs.replace(row, stage=row.stage - first) for row in rows)
        last = max(row.stage for row in rows)
        if not last:
            raise _Refused("its schedule runs nothing ahead")
        loads = {id(plan.inner[at]): tiles_filled((plan.inner[at],)) for at in plan.producers}
        rules = ScheduleRules(storage=self._storage, body=plan.inner, rows=rows, loads=loads)
        broken = rules.find_broken()
        if broken is not None:
            self._note(broken, "cannot run ahead, and the schedule of the loop says that it does")
            raise _Refused("its schedule breaks a dependence")
        producers = tuple(at for at in plan.producers if id(plan.inner[at]) in rules.asynchronous)
        if not producers:
            raise _Refused("none of its copies can be asynchronous")
        places = {id(stmt): at for at, stmt in enumerate(plan.inner)}
        filled = {
            tile: (places[id(stmt)], rules.versions[tile])
            for tile, stmt in rules.filled.items()
            if rules.versions[tile] > 1 or id(stmt) in rules.asynchronous
        }
        return replace(plan, producers=producers, stages=last + 1, rows=rows, filled=filled)

    # ---- all loops --------------------------------------------------------------------------

    def _drop_shared_tiles(self) -> None:
        """Keep copies to tiles whose content no statement outside of the loop reads after it."""
        dropped = True
        while dropped:
            dropped = False
            for one in list(self.loops.values()):
                tiles = {name: frozenset(plan.tiles) for name, plan in self.loops.items()}
                fates = _Fates(storage=self._storage, tiles=tiles)
                bad = [at for tile, at in one.tiles.items() if fates.is_read(one.loop, tile)]
                dropped = dropped or bool(bad)
                self._drop_copies(one, bad)

    def _drop_copies(self, one: LoopPlan, places: list[int]) -> None:
        if places and one.rows:
            stmt = one.inner[places[0]]
            tile = next(tile for tile, at in one.tiles.items() if at == places[0])
            self._note(
                stmt, f"cannot run ahead: what the loop leaves in {tile} may be read outside of it"
            )
            self._drop(one, "its schedule breaks a dependence")
            return
        for at in places:
            for copy in walk((one.inner[at],)):
                if isinstance(copy, Copy):
                    reason = f"what the loop leaves in {copy.dst.buffer} may be read outside of it"
                    self._note(copy, f"not asynchronous: {reason}")
        left = tuple(at for at in one.producers if at not in places)
        if left:
            self.loops[one.loop.var.name] = replace(one, producers=left)
        else:
            self._drop(one, "none of its copies can be asynchronous")

    def _drop(self, one: LoopPlan, reason: str) -> None:
        del self.loops[one.loop.var.name]
        self._note(one.loop, f"not pipelined: {reason}")

    def _drop_what_is_too_large(self) -> None:
        """Keep loops, in order, as long as the versions of their tiles fit into shared memory."""
        versions: dict[str, int] = {}
        barriers = 0
        for one in sorted(self.loops.values(), key=lambda one: self._storage.numbers[id(one.loop)]):
            wanted = dict(versions)
            for name, count in one.versions.items():
                wanted[name] = max(wanted.get(name, 1), count)
            tiles = (
                b for b in self._storage.program.buffers if b.scope == "shared" and not b.view_of
            )
            own = 2 * BARRIER_BYTES * one.depth * len(one.tiles) if one.for_roles else 0
            size = sum(_count_bytes(tile) * wanted.get(tile.name, 1) for tile in tiles)
            size += barriers + own
            if size <= self._arch.shared_bytes:
                versions, barriers = wanted, barriers + own
                continue
            taken = f"{one.depth} stages take {size} bytes of shared memory"
            self._drop(one, f"{taken}, and a block has {self._arch.shared_bytes}")
            self._drop_shared_tiles()


def _is_for_two(plan: LoopPlan) -> bool:
    """Whether one role can do the producers of a plan, and another role the rest as written."""
    loads = [id(plan.inner[at]) for at in plan.producers]
    late = [row for row in plan.rows if id(row.stmt) not in loads]
    stages = {row.stage for row in plan.rows if id(row.stmt) in loads}
    is_plain = late == sorted(late, key=lambda row: row.place) and stages <= {0}
    return is_plain and all(row.stage == plan.stages - 1 for row in late)


def _has_break(body: tuple[Stmt, ...]) -> bool:
    """Whether a break in ``body`` leaves the loop whose body it is."""
    return any(
        isinstance(stmt, Break)
        or (not isinstance(stmt, For | While) and any(map(_has_break, bodies(stmt))))
        for stmt in body
    )


def _count_bytes(buffer: Buffer) -> int:
    size = find_dtype(buffer.dtype).bits
    for extent in buffer.shape:
        size *= int(extent.value) if isinstance(extent, Const) else 1
    return size // 8


@dataclass(frozen=True, kw_only=True)
class _Fates:
    """Fates in a Program whose loops fill ``tiles`` themselves, by the names of the loops' variables."""

    storage: Storage
    tiles: Mapping[str, frozenset[str]]

    def is_read(self, loop: For, tile: str) -> bool:
        """Whether a statement outside of ``loop`` may read what it leaves in a tile."""
        return self._after(self.storage.program.body, loop, tile) == "read"

    def _after(self, body: tuple[Stmt, ...], loop: For, tile: str) -> _Fate:
        """The fate of what ``loop``, which is somewhere in ``body``, leaves in a tile, up to the end of
        ``body``.
        """
        at = next(n for n, stmt in enumerate(body) if any(s is loop for s in walk((stmt,))))
        stmt = body[at]
        fate: _Fate = "kept"
        if stmt is not loop:
            inner = next(b for b in bodies(stmt) if any(s is loop for s in walk(b)))
            fate = self._after(inner, loop, tile)
            if fate == "kept" and isinstance(stmt, For | While):  # the next iteration begins
                is_read = tile in own_effects(stmt).read or self._next(inner, tile) == "read"
                fate = "read" if is_read else "kept"
        return self._next(body[at + 1 :], tile) if fate == "kept" else fate

    def _next(self, body: tuple[Stmt, ...], tile: str) -> _Fate:
        """The first effect of statements on the content of a tile."""
        fates = (self._fate(stmt, tile) for stmt in body)
        return next((fate for fate in fates if fate != "kept"), "kept")

    def _fate(self, stmt: Stmt, tile: str) -> _Fate:
        if tile not in buffers_in((stmt,)):
            return "kept"
        if isinstance(stmt, For) and tile in self.tiles.get(stmt.var.name, ()):
            return "kept"  # it fills the tile itself, in each of its iterations
        if bodies(stmt):
            is_read = tile in own_effects(stmt).read
            is_read = is_read or any(self._next(inner, tile) == "read" for inner in bodies(stmt))
            return "read" if is_read else "kept"
        region = written_region(stmt)
        is_new = region is not None and self.storage.is_whole(region) and region.buffer == tile
        return "replaced" if is_new and tile not in own_effects(stmt).read else "read"
