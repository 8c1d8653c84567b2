"""The plan of a loop, and its written form in the loop: copies first, then a wait, then the rest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from tileyard.ir.nodes import (
    CommitGroup,
    Const,
    Copy,
    Expr,
    For,
    If,
    Issue,
    Let,
    Stmt,
    Unit,
    WaitGroup,
)
from tileyard.ir.rewrite import Copies
from tileyard.ir.walk import walk
from tileyard.passes.schedules import Scheduled, buffers_in, find_waiting, needed_lets, without_lets

UNIT: Unit = "cp_async"


@dataclass(frozen=True, kw_only=True)
class LoopPlan:
    """A loop that can be pipelined. ``guards`` counts the branches around all of its body but Lets,
    ``inner`` are the statements in them, ``producers`` the positions of those that become asynchronous
    copies. ``for_roles`` some go by TMA, and the block is split. ``rows`` are the user's schedule, if any,
    and ``filled`` the tiles that it needs versions of: the refilling statement's position, and their number.
    """

    loop: For
    guards: int
    inner: tuple[Stmt, ...]
    producers: tuple[int, ...]
    stages: int
    for_roles: bool = False
    rows: tuple[Scheduled, ...] = ()
    filled: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def tiles(self) -> dict[str, int]:
        """The tiles that have versions, each with the position of the statement that fills it."""
        if self.rows:
            return {tile: at for tile, (at, _) in self.filled.items()}
        copies = ((at, stmt) for at in self.producers for stmt in walk((self.inner[at],)))
        return {copy.dst.buffer: at for at, copy in copies if isinstance(copy, Copy)}

    @property
    def depth(self) -> int:
        """The number of iterations under way at once: not more than the loop has."""
        extent = self.loop.extent
        most = int(extent.value) if isinstance(extent, Const) else self.stages
        return max(1, min(self.stages, most))

    @property
    def versions(self) -> dict[str, int]:
        """The number of versions of each of its tiles."""
        if self.for_roles or not self.rows:
            return dict.fromkeys(self.tiles, self.depth)
        return {tile: count for tile, (_, count) in self.filled.items()}

    def uses(self, tile: str) -> tuple[int, int]:
        """The first and last position of a non-producer statement that uses a tile; -1 for none."""
        places = (at for at in range(len(self.inner)) if at not in self.producers)
        found = [at for at in places if tile in buffers_in((self.inner[at],))]
        return (found[0], found[-1]) if found else (-1, -1)


def write_plan(loop: For, plan: LoopPlan, copies: Copies) -> For:
    """``loop`` with its producers in front, then a commit and a wait, and its schedule. Each step
    waits first, so that one barrier of the block is enough; then it issues.
    """
    parts = _take_apart(loop, plan)
    issues = (_issued(load, copies) for load in parts.loads)
    ahead, late = parts.guarded((*parts.early, *issues)), parts.guarded(parts.late)
    if parts.conds:  # early and late statements are in two branches, so each has its own Lets
        ahead = copies.copy(ahead, {})
    body = (*parts.lets, *ahead, CommitGroup(UNIT), WaitGroup(Const(0, "int32"), UNIT), *late)
    stage = (*(0,) * len(without_lets(ahead)), *(plan.depth - 1,) * len(without_lets(late)))
    follows = list(range(len(without_lets(late))))
    if plan.rows:
        own = zip(without_lets(loop.body), plan.rows, strict=True)
        rows = {id(stmt): row for stmt, row in own}
        asked = [rows[id(stmt)] for stmt in without_lets(parts.late)]
        stage = (*(rows[id(load)].stage for load in parts.loads), *(row.stage for row in asked))
        follows = [sorted(row.place for row in asked).index(row.place) for row in asked]
    first = len(stage) - len(follows) + 1
    places = (*range(1, first + 1), 0) if max(stage) else tuple(range(first + 1))
    issued = max(stage[: first - 1])
    planned = msgspec.structs.replace(
        loop,
        body=body,
        order=(*places, *(first + 1 + place for place in follows)),
        stage=(*stage[: first - 1], issued, 0, *stage[first - 1 :]),
        group=(),
    )
    wait = find_waiting(planned).first
    stage = (*planned.stage[:first], wait, *planned.stage[first + 1 :])
    return msgspec.structs.replace(planned, stage=stage)


def write_role_plan(
    loop: For, plan: LoopPlan, groups: Sequence[frozenset[str]], copies: Copies
) -> For:
    """``loop`` with its producers in front, by ``groups``, each row of barriers' tiles, and its schedule."""
    parts = _take_apart(loop, plan)
    chosen = [[load for load in parts.loads if buffers_in((load,)) & tiles] for tiles in groups]
    ahead: list[Stmt] = [] if parts.conds else [*parts.early]
    numbers, count = list[tuple[int, ...]](), 0
    for loads in filter(None, chosen):
        if parts.conds:
            ahead += copies.copy(
                parts.guarded((*needed_lets(parts.early, tuple(loads)), *loads)), {}
            )
        else:
            ahead += loads
        size = 1 if parts.conds else len(loads)
        numbers.append(tuple(range(count, count + size)))
        count += size
    late = parts.guarded(parts.late)
    last = len(without_lets(late))
    return msgspec.structs.replace(
        loop,
        body=(*parts.lets, *ahead, *late),
        order=tuple(range(count + last)),
        stage=(*(0,) * count, *(plan.depth - 1,) * last),
        group=tuple(numbers),
    )


@dataclass(frozen=True, kw_only=True)
class _Parts:
    """A loop's parts: Lets around its guards, the guards' conditions, the loads' Lets, loads, the rest."""

    lets: tuple[Stmt, ...]
    conds: tuple[Expr, ...]
    early: tuple[Stmt, ...]
    loads: tuple[Stmt, ...]
    late: tuple[Stmt, ...]

    def guarded(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """``body`` inside of the guards; nothing if it is empty."""
        for cond in reversed(self.conds):
            body = (If(cond, body),) if body else ()
        return body


def _take_apart(loop: For, plan: LoopPlan) -> _Parts:
    inner, conds = loop.body, list[Expr]()
    lets = tuple(stmt for stmt in loop.body if isinstance(stmt, Let)) if plan.guards else ()
    for _ in range(plan.guards):
        (branch,) = without_lets(inner)
        if isinstance(branch, If):
            conds.append(branch.cond)
            inner = branch.then
    loads = tuple(inner[at] for at in plan.producers)
    early = needed_lets(inner, loads)
    gone = set(plan.producers)
    if not conds:
        gone |= {at for at, stmt in enumerate(inner) if stmt in early}
    late = tuple(stmt for at, stmt in enumerate(inner) if at not in gone)
    return _Parts(lets=lets, conds=tuple(conds), early=early, loads=loads, late=late)


def _issued(load: Stmt, copies: Copies) -> Stmt:
    """An asynchronous copy in place of a copy, or of the copies in a branch."""
    if isinstance(load, If):
        then = tuple(_issued(stmt, copies) for stmt in load.then)
        return copies.derive(msgspec.structs.replace(load, then=then), load)
    return copies.derive(Issue(UNIT, (load,)), load)
