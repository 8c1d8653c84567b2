"""Plans the pipelines of loops: which copies are asynchronous, what runs ahead, and by how many iterations.

A planned loop issues its asynchronous copies first, commits them as one group, and waits for it, so it still does one iteration
after the other. Its ``stage`` says by how many iterations a statement is late, and its ``order`` in which order statements
follow each other then; both count the statements of its body that are no Let. ``inject_pipeline.py`` follows them.

One module because what may run ahead depends on all uses of what it touches.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from tileyard.ir.dtypes import find_dtype
from tileyard.ir.nodes import (
    Atomic,
    Break,
    Buffer,
    CommitGroup,
    Const,
    Copy,
    Expr,
    For,
    If,
    Issue,
    Let,
    Load,
    Program,
    Region,
    Roles,
    Stmt,
    Synchronization,
    Tensor,
    Unit,
    Var,
    WaitGroup,
    While,
)
from tileyard.ir.rewrite import Copies, Names, rewrite
from tileyard.ir.walk import (
    bodies,
    buffer_effects,
    expressions,
    number_statements,
    own_effects,
    walk,
    walk_expr,
    written_region,
)
from tileyard.model import Record
from tileyard.passes.base import Note, Passed
from tileyard.passes.cp_async import why_not_cp_async

UNIT: Unit = "cp_async"

_Fate = Literal["kept", "replaced", "read"]
"""What becomes of the content of a tile."""


@dataclass(frozen=True)
class PlanPipeline:
    """Plans for ``cp.async``, and for so much shared memory of a block."""

    shared_bytes: int
    name: str = "plan-pipeline"

    def run(self, program: Program) -> Passed:
        """Plan the loops that can be pipelined, and say why others cannot be."""
        program = rewrite(program, lambda stmt: (stmt,)).program  # each statement is one object
        planner = _Planner(program, self.shared_bytes)
        planner.plan()
        copies = Copies(Names(program))

        def change(stmt: Stmt) -> tuple[Stmt, ...]:
            if not isinstance(stmt, For) or stmt.kind != "pipelined":
                return (stmt,)
            if stmt.var.name in planner.loops:
                return (_planned(stmt, planner.loops[stmt.var.name], copies),)
            return (msgspec.structs.replace(stmt, order=(), stage=(), group=()),)

        done = rewrite(program, change, copies)
        return Passed(program=done.program, origins=done.origins, notes=planner.sorted_notes())


@dataclass(frozen=True, kw_only=True)
class _Loop:
    """A loop that can be pipelined. ``guards`` is how many branches are around all statements of its body but Lets, ``inner`` are
    the statements inside of them, ``producers`` the places of those that become asynchronous copies, by themselves or in a branch.
    """

    loop: For
    guards: int
    inner: tuple[Stmt, ...]
    producers: tuple[int, ...]
    stages: int

    @property
    def tiles(self) -> dict[str, int]:
        """The tiles that the copies fill, each with the place of its copy."""
        copies = ((at, stmt) for at in self.producers for stmt in walk((self.inner[at],)))
        return {copy.dst.buffer: at for at, copy in copies if isinstance(copy, Copy)}

    @property
    def depth(self) -> int:
        """How many iterations are under way at once: no more than there are."""
        extent = self.loop.extent
        most = int(extent.value) if isinstance(extent, Const) else self.stages
        return max(1, min(self.stages, most))


class _Refused(Exception):
    """A loop cannot be pipelined: the reason."""


class _Planner:
    """``loops`` are those that can be pipelined, by the names of their variables, which are unique."""

    def __init__(self, program: Program, shared_bytes: int) -> None:
        self._program = program
        self._shared_bytes = shared_bytes
        self._numbers = {id(stmt): number for number, stmt in number_statements(program)}
        arrays = (param.buffer for param in program.params if isinstance(param, Tensor))
        self._buffers = {buffer.name: buffer for buffer in (*arrays, *program.buffers)}
        self._owners = {b.name: b.view_of or b.name for b in self._buffers.values()}
        self._viewed = {name for b in program.buffers if b.view_of for name in (b.name, b.view_of)}
        lets = (stmt for stmt in walk(program.body) if isinstance(stmt, Let))
        self._lets = {let.var.name: let.value for let in lets}
        self._notes: dict[int, str] = {}
        self.loops: dict[str, _Loop] = {}

    def plan(self) -> None:
        """Plan each loop by itself, then drop what uses elsewhere and the size of shared memory forbid."""
        self._visit(self._program.body, in_role=False)
        self._drop_shared_tiles()
        self._drop_what_is_too_large()

    def sorted_notes(self) -> tuple[Note, ...]:
        """Why loops are not pipelined, and copies not asynchronous, in the order of the Program."""
        return tuple(
            Note(number=number, text=self._notes[number]) for number in sorted(self._notes)
        )

    def _note(self, stmt: Stmt, text: str) -> None:
        self._notes[self._numbers[id(stmt)]] = text

    def _visit(self, body: tuple[Stmt, ...], *, in_role: bool) -> None:
        for stmt in body:
            for inner in bodies(stmt):
                self._visit(inner, in_role=in_role or isinstance(stmt, Roles))
            if isinstance(stmt, For) and stmt.kind == "pipelined":
                try:
                    self._require_plain(stmt, in_role=in_role)
                    self.loops[stmt.var.name] = self._plan_loop(stmt)
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

    def _plan_loop(self, loop: For) -> _Loop:
        """The plan of a loop by itself; raises _Refused."""
        written = buffer_effects(loop.body).through(self._owners).written
        guards, inner, conds = 0, without_lets(loop.body), list[Expr]()
        lets = tuple(stmt for stmt in loop.body if isinstance(stmt, Let))
        while len(inner) == 1 and isinstance(inner[0], If) and not inner[0].orelse:
            conds.append(inner[0].cond)
            guards, inner = guards + 1, inner[0].then
        if self._read_by(conds, lets) & written:
            guards = 0
        if not guards:
            lets, inner = (), loop.body
        producers = []
        for at, stmt in enumerate(inner):
            reasons = self._why_late((*lets, *inner[:at]), stmt, inner[at + 1 :], written)
            for copy, reason in reasons:
                if reason:
                    self._note(copy, f"not asynchronous: {reason}")
            if reasons and not any(reason for _, reason in reasons):
                producers.append(at)
        if not producers:
            raise _Refused("none of its copies can be asynchronous")
        plan = _Loop(
            loop=loop, guards=guards, inner=inner, producers=tuple(producers), stages=loop.stages
        )
        return self._follow(plan) if loop.order else plan

    def _follow(self, plan: _Loop) -> _Loop:
        """The plan with the schedule that the user gives; raises _Refused where that cannot be followed."""
        loop, last = plan.loop, max(plan.loop.stage)
        rows = scheduled(loop)
        if not rows or plan.guards:
            raise _Refused("its schedule has not one place for each statement")
        if {row.stage for row in rows} != {0, last} or not last:
            raise _Refused(f"its schedule has other stages than 0 and {last or 1}")
        copies = [id(plan.inner[at]) for at in plan.producers]
        for row in rows:
            if not row.stage and id(row.stmt) not in copies:
                self._note(
                    row.stmt, "cannot run ahead, and the schedule of the loop says that it does"
                )
                raise _Refused("its schedule breaks a dependence")
        late = [row.place for row in rows if row.stage]
        if late != sorted(late):
            raise _Refused("its schedule changes the order of statements that run late")
        ahead = {id(row.stmt) for row in rows if not row.stage}
        producers = tuple(at for at in plan.producers if id(plan.inner[at]) in ahead)
        return replace(plan, producers=producers, stages=last + 1)

    def _is_load(self, copy: Copy) -> bool:
        """Whether a copy fills a tile in shared memory from an array."""
        scopes = (self._buffers[region.buffer].scope for region in (copy.src, copy.dst))
        return tuple(scopes) == ("global", "shared")

    def _why_late(
        self,
        before: tuple[Stmt, ...],
        stmt: Stmt,
        after: tuple[Stmt, ...],
        written: frozenset[str],
    ) -> list[tuple[Copy, str]]:
        """The loads of a statement, each with why it cannot run ahead of those ``before`` it and of earlier iterations, if it cannot."""
        loads = [s for s in walk((stmt,)) if isinstance(s, Copy) and self._is_load(s)]
        is_branch = isinstance(stmt, If) and not stmt.orelse and set(stmt.then) <= {*loads}
        if not isinstance(stmt, Copy) and not is_branch:
            return [(copy, "it is in a loop or branch with other statements") for copy in loads]
        found = []
        for number, copy in enumerate(loads):
            tile = copy.dst.buffer
            reason = self._why_not(copy, written) or self._why_dependent(stmt, before, written)
            if not reason and tile in _used((*before, *loads[:number])):
                reason = f"{tile} is used before it in the same iteration"
            if not reason and not all(_is_only_under(stmt, user, tile) for user in after):
                reason = f"{tile} is used where its condition may not hold"
            found.append((copy, reason))
        return found

    def _why_not(self, copy: Copy, written: frozenset[str]) -> str:
        """Why a copy cannot be asynchronous in a loop that writes these buffers, wherever it is; empty where it can."""
        src, dst = self._buffers[copy.src.buffer], self._buffers[copy.dst.buffer]
        reason = why_not_cp_async(copy, src, dst, self._lets)
        if reason:
            return reason
        if self._owners[src.name] in written:
            return f"the loop writes {src.name}"
        if dst.name in self._viewed:
            return f"{dst.name} is seen as more than one buffer"
        return "" if self._is_whole(copy.dst) else f"it fills only a part of {dst.name}"

    def _why_dependent(self, stmt: Stmt, before: tuple[Stmt, ...], written: frozenset[str]) -> str:
        """On which results of the loop the bounds and the condition of ``stmt`` depend; empty where on none."""
        exprs = [expr for inner in walk((stmt,)) for expr in expressions(inner)]
        late = self._read_by(exprs, before) & written
        if late:
            return f"it depends on {min(late)}, which the loop writes"
        bound = {s.var.name for s in walk(before) if isinstance(s, Atomic) and s.var is not None}
        if bound & _variables((stmt, *needed_lets(before, (stmt,)))):
            return "it depends on an atomic update"
        return ""

    def _read_by(self, exprs: Iterator[Expr] | list[Expr], before: tuple[Stmt, ...]) -> set[str]:
        """The buffers that expressions read, Lets ``before`` them included."""
        known = {stmt.var.name: stmt.value for stmt in before if isinstance(stmt, Let)}
        found, left = set[str](), list(exprs)
        while left:
            for part in walk_expr(left.pop()):
                if isinstance(part, Load):
                    found.add(self._owners[part.buffer])
                if isinstance(part, Var) and part.name in known:
                    left.append(known.pop(part.name))
        return found

    # ---- all loops --------------------------------------------------------------------------

    def _drop_shared_tiles(self) -> None:
        """Keep copies to tiles of which nobody outside of the loop reads what the loop leaves in them."""
        dropped = True
        while dropped:
            dropped = False
            for one in list(self.loops.values()):
                body = self._program.body
                bad = [n for t, n in one.tiles.items() if self._after(body, one.loop, t) == "read"]
                dropped = dropped or bool(bad)
                self._drop_copies(one, bad)

    def _after(self, body: tuple[Stmt, ...], loop: For, tile: str) -> _Fate:
        """What becomes of the content that ``loop``, which is somewhere in ``body``, leaves in a tile, up to the end of ``body``."""
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
        """What statements do first to the content of a tile."""
        fates = (self._fate(stmt, tile) for stmt in body)
        return next((fate for fate in fates if fate != "kept"), "kept")

    def _fate(self, stmt: Stmt, tile: str) -> _Fate:
        if tile not in _used((stmt,)):
            return "kept"
        plan = self.loops.get(stmt.var.name) if isinstance(stmt, For) else None
        if plan is not None and tile in plan.tiles:
            return "kept"  # it fills the tile itself, in each of its iterations
        if bodies(stmt):
            is_read = tile in own_effects(stmt).read
            is_read = is_read or any(self._next(inner, tile) == "read" for inner in bodies(stmt))
            return "read" if is_read else "kept"
        region = written_region(stmt)
        is_new = region is not None and self._is_whole(region) and region.buffer == tile
        return "replaced" if is_new and tile not in own_effects(stmt).read else "read"

    def _is_whole(self, region: Region) -> bool:
        zeros = all(start == Const(0, start.dtype) for start in region.starts)
        return zeros and region.extents == self._buffers[region.buffer].shape

    def _drop_copies(self, one: _Loop, places: list[int]) -> None:
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

    def _drop(self, one: _Loop, reason: str) -> None:
        del self.loops[one.loop.var.name]
        self._note(one.loop, f"not pipelined: {reason}")

    def _drop_what_is_too_large(self) -> None:
        """Keep loops, in their order, as long as the versions of their tiles fit into shared memory."""
        versions: dict[str, int] = {}
        for one in sorted(self.loops.values(), key=lambda one: self._numbers[id(one.loop)]):
            wanted = dict(versions)
            for name in one.tiles:
                wanted[name] = max(wanted.get(name, 1), one.depth)
            tiles = (b for b in self._program.buffers if b.scope == "shared" and not b.view_of)
            size = sum(_count_bytes(tile) * wanted.get(tile.name, 1) for tile in tiles)
            if size <= self._shared_bytes:
                versions = wanted
                continue
            taken = f"{one.depth} stages take {size} bytes of shared memory"
            self._drop(one, f"{taken}, and a block has {self._shared_bytes}")
            self._drop_shared_tiles()


# ---- the planned loop -------------------------------------------------------------------------


class Scheduled(Record):
    """A statement of a planned loop: its place among all, and by how many iterations it is late. Lets have none of their own."""

    stmt: Stmt
    place: int
    stage: int


def scheduled(loop: Stmt) -> tuple[Scheduled, ...]:
    """The statements of a planned loop in the order of its text, without its Lets; nothing for any other statement."""
    if not isinstance(loop, For) or not loop.order:
        return ()
    stmts = without_lets(loop.body)
    if len(stmts) != len(loop.order):
        return ()
    rows = zip(stmts, loop.order, loop.stage, strict=True)
    return tuple(Scheduled(stmt=stmt, place=place, stage=stage) for stmt, place, stage in rows)


def _planned(loop: For, plan: _Loop, copies: Copies) -> For:
    """``loop`` with its producers in front, a commit and a wait behind them, and its schedule."""
    inner, conds = loop.body, list[Expr]()
    lets = tuple(stmt for stmt in loop.body if isinstance(stmt, Let)) if plan.guards else ()
    for _ in range(plan.guards):
        (branch,) = without_lets(inner)
        if isinstance(branch, If):
            conds.append(branch.cond)
            inner = branch.then
    loads = tuple(inner[at] for at in plan.producers)
    early = needed_lets(inner, loads)
    if plan.guards:  # what is ahead and what is late are two branches, so each has its own Lets
        fresh = copies.copy((*early, *loads), {})
        early, loads = fresh[: len(early)], fresh[len(early) :]
    gone = {*plan.producers, *(at for at, stmt in enumerate(inner) if stmt in early)}
    late = tuple(stmt for at, stmt in enumerate(inner) if at not in gone)
    issues = (_issued(load, copies) for load in loads)
    ahead: tuple[Stmt, ...] = (*early, *issues)
    for cond in reversed(conds):
        ahead, late = (If(cond, ahead),), (If(cond, late),) if late else ()
    body = (*lets, *ahead, CommitGroup(UNIT), WaitGroup(Const(0, "int32"), UNIT), *late)
    lag, first = plan.depth - 1, len(without_lets(ahead)) + 1
    last = len(without_lets(late))
    # In a pipeline the wait comes first: then one barrier of the block is enough for each iteration.
    places = (*range(1, first + 1), 0) if lag else tuple(range(first + 1))
    return msgspec.structs.replace(
        loop,
        body=body,
        order=(*places, *range(first + 1, first + 1 + last)),
        stage=(*(0,) * first, *(lag,) * (1 + last)),
    )


def _issued(load: Stmt, copies: Copies) -> Stmt:
    """An asynchronous copy in the place of a copy, or of those in a branch."""
    if isinstance(load, If):
        then = tuple(_issued(stmt, copies) for stmt in load.then)
        return copies.derive(msgspec.structs.replace(load, then=then), load)
    return copies.derive(Issue(UNIT, (load,)), load)


def needed_lets(body: tuple[Stmt, ...], stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The Lets of ``body`` on which ``stmts`` depend."""
    needed, found = _variables(stmts), list[Stmt]()
    for stmt in reversed(body):
        if isinstance(stmt, Let) and stmt.var.name in needed:
            needed |= _variables((stmt,))
            found.insert(0, stmt)
    return tuple(found)


def _variables(stmts: tuple[Stmt, ...]) -> set[str]:
    """The variables in the expressions of statements."""
    exprs = (expr for stmt in walk(stmts) for expr in expressions(stmt))
    return {part.name for expr in exprs for part in walk_expr(expr) if isinstance(part, Var)}


def _used(stmts: tuple[Stmt, ...]) -> frozenset[str]:
    """The buffers that statements use."""
    effects = buffer_effects(stmts)
    return effects.read | effects.written


def _is_only_under(load: Stmt, user: Stmt, tile: str) -> bool:
    """Whether ``user`` uses a tile only where the condition under which ``load`` fills it holds."""
    if not isinstance(load, If) or tile not in _used((user,)):
        return True
    return isinstance(user, If) and user.cond == load.cond and tile not in _used(user.orelse)


def without_lets(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The statements of ``body`` that a schedule counts."""
    return tuple(stmt for stmt in body if not isinstance(stmt, Let))


def _has_break(body: tuple[Stmt, ...]) -> bool:
    """Whether a break in ``body`` leaves the loop that it is the body of."""
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
