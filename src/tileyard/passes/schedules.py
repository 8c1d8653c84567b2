"""How the plan of a loop is written in it, for the passes that follow plans; it still runs in order.
``stage`` is how many iterations a statement is late, ``order`` its place in a step; both omit Lets. A
``group`` plans for roles: it has the statements whose copies one row of barriers counts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from tileyard.base.model import Record
from tileyard.ir.nodes import Assert, Atomic, Copy, For, Issue, Let, Print, Stmt, Var, WaitGroup
from tileyard.ir.walk import Effects, buffer_effects, expressions, walk, walk_expr
from tileyard.passes.storage import Storage


class Scheduled(Record):
    """A statement of a planned loop, but no Let: its place among all, and how many iterations it is late."""

    stmt: Stmt
    place: int
    stage: int


def scheduled(loop: Stmt) -> tuple[Scheduled, ...]:
    """A planned loop's statements in textual order, without Lets; empty for any other statement."""
    if not isinstance(loop, For) or not loop.order:
        return ()
    stmts = without_lets(loop.body)
    if len(stmts) != len(loop.order):
        return ()
    rows = zip(stmts, loop.order, loop.stage, strict=True)
    return tuple(Scheduled(stmt=stmt, place=place, stage=stage) for stmt, place, stage in rows)


class Waiting(Record):
    """How a pipeline waits for copies: when a step begins, for those issued ``lag`` or more steps before.
    The first wait is in step ``first``; copies are issued up to iterations of stage ``issued``.
    """

    first: int
    lag: int
    issued: int


def find_waiting(loop: For) -> Waiting:
    """How a planned loop's pipeline waits: as late as tiles' first uses allow, or until the end."""
    rows = [row for row in scheduled(loop) if not isinstance(row.stmt, WaitGroup)]
    firsts, lags, stages = list[int](), list[int](), list[int]()
    for row in rows:
        issues = (stmt for stmt in walk((row.stmt,)) if isinstance(stmt, Issue))
        tiles = buffer_effects(issues).written
        if tiles:
            uses = [
                one.stage
                for one in rows
                if one is not row and tiles & buffers_in(with_lets(loop.body, one.stmt))
            ]
            firsts.append(min(uses, default=max(one.stage for one in rows)))
            lags.append(firsts[-1] - row.stage)
            stages.append(row.stage)
    return Waiting(
        first=min(firsts, default=0), lag=min(lags, default=0), issued=max(stages, default=0)
    )


def is_for_roles(stmt: Stmt) -> bool:
    """Whether ``stmt`` is a loop that is planned for a producer and a consumer."""
    return isinstance(stmt, For) and bool(stmt.group)


def groups_of(loop: Stmt) -> tuple[tuple[Stmt, ...], ...]:
    """The statements with the producer's copies, per row of barriers; none for a loop not for roles."""
    if not isinstance(loop, For):
        return ()
    stmts = without_lets(loop.body)
    return tuple(tuple(stmts[number] for number in numbers) for numbers in loop.group)


def tiles_of(stmt: Stmt) -> frozenset[str]:
    """The tiles that the copies of a loop for roles fill."""
    return tiles_filled(tuple(one for group in groups_of(stmt) for one in group))


def tiles_filled(stmts: tuple[Stmt, ...]) -> frozenset[str]:
    """The tiles that the copies in statements fill."""
    return frozenset(stmt.dst.buffer for stmt in walk(stmts) if isinstance(stmt, Copy))


def needed_lets(body: tuple[Stmt, ...], stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The Lets of ``body`` on which ``stmts`` depend."""
    needed, found = variables_in(stmts), list[Stmt]()
    for stmt in reversed(body):
        if isinstance(stmt, Let) and stmt.var.name in needed:
            needed |= variables_in((stmt,))
            found.insert(0, stmt)
    return tuple(found)


def with_lets(body: tuple[Stmt, ...], stmt: Stmt) -> tuple[Stmt, ...]:
    """``stmt`` after the Lets of ``body`` on which it depends."""
    return (*needed_lets(body, (stmt,)), stmt)


def variables_in(stmts: tuple[Stmt, ...]) -> set[str]:
    """The variables in the expressions of statements."""
    exprs = (expr for stmt in walk(stmts) for expr in expressions(stmt))
    return {part.name for expr in exprs for part in walk_expr(expr) if isinstance(part, Var)}


def buffers_in(stmts: tuple[Stmt, ...]) -> frozenset[str]:
    """The buffers that statements use."""
    effects = buffer_effects(stmts)
    return effects.read | effects.written


def without_lets(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The statements of ``body`` that a schedule counts."""
    return tuple(stmt for stmt in body if not isinstance(stmt, Let))


@dataclass(frozen=True)
class _Item:
    """A statement, or a Let whose value changes in the loop: stage, place, what it reads and writes."""

    stmt: Stmt
    stage: int
    place: float
    effects: Effects

    def lag_to(self, later: "_Item") -> int:
        """How many iterations, its own included, may have done this when ``later`` is done for the first."""
        return later.stage - self.stage + (later.place > self.place)


@dataclass(frozen=True, kw_only=True)
class ScheduleRules:
    """The loop with this ``body`` under a schedule, whose ``rows`` are in the order of the text.
    ``loads`` are the tiles of copies that may be asynchronous, by their statements' identities.
    """

    storage: Storage
    body: tuple[Stmt, ...]
    rows: tuple[Scheduled, ...]
    loads: Mapping[int, frozenset[str]]

    @cached_property
    def asynchronous(self) -> frozenset[int]:
        """The loads that run ahead of all uses of what they fill. They are issued first in each step."""
        found, last = set[int](), max(row.stage for row in self.rows)
        for row in self.rows:
            tiles = self.loads.get(id(row.stmt), frozenset())
            uses = [other.stage for other in self.rows if self._uses(other, row, tiles)]
            if tiles and row.stage < min(uses, default=last):
                found.add(id(row.stmt))
        return frozenset(found)

    @cached_property
    def versions(self) -> dict[str, int]:
        """The number of versions needed of each tile that iterations refill."""
        found = {}
        for tile in self.filled:
            users = [one for one in self._items if tile in one.effects.read | one.effects.written]
            writers = [one for one in users if tile in one.effects.written]
            lags = [one.lag_to(user) for one in writers for user in users if one is not user]
            last = max(one.stage for one in self._items)
            alone = [last - one.stage for one in writers if len(users) == 1]
            found[tile] = max([1, *lags, *alone])
        return found

    @cached_property
    def filled(self) -> dict[str, Stmt]:
        """The tiles that each iteration refills before using them, with the statement that fills them."""
        found: dict[str, Stmt] = {}
        used = set[str]()
        for one in self._items:
            tiles = self.loads.get(id(one.stmt), frozenset[str]())
            tile = self.storage.filled_by(one.stmt)
            if tile not in one.effects.read | self.storage.viewed:
                tiles |= {tile}
            found |= {tile: one.stmt for tile in tiles - used if self._is_shared(tile)}
            used |= one.effects.read | one.effects.written
        return found

    def find_broken(self) -> Stmt | None:
        """A statement that cannot run as far ahead as the schedule asks, or out of order; None if all can."""
        items = self._items
        for number, first in enumerate(items):
            for second in items[number + 1 :]:
                shared = _conflicts(first.effects, second.effects)
                is_late = (first.stage, first.place) > (second.stage, second.place)
                is_kept = first.lag_to(second) <= 1 or shared <= self.filled.keys()
                if shared and (is_late or not is_kept):
                    return second.stmt if is_late else first.stmt
        return self._find_torn()

    @cached_property
    def _items(self) -> list[_Item]:
        """The items in textual order; a Let is before the next statement of the stage that needs it."""
        items = []
        for at, stmt in enumerate(self.body):
            row = next((row for row in self.rows if row.stmt is stmt), None)
            before = 0.0
            if row is None and id(stmt) in self._changing:
                stages = {user.stage for user in self._users(stmt)}
                behind = {id(one) for one in self.body[at:]}
                row = next(
                    (r for r in self.rows if id(r.stmt) in behind and r.stage in stages), None
                )
                before = 0.5
            if row is not None:
                early = id(stmt) in self.asynchronous
                place = row.place - before - (len(self.rows) if early else 0)
                items.append(_Item(stmt, row.stage, place, self._effects_of(stmt)))
        return items

    @cached_property
    def _changing(self) -> frozenset[int]:
        """The Lets, and the updates with a variable, whose values depend on what the loop writes."""
        written = buffer_effects(self.body).through(self.storage.owners).written
        found = set[int]()
        for stmt in self.body:
            read = buffer_effects((stmt,)).through(self.storage.owners).read
            if isinstance(stmt, Atomic) and stmt.var is not None:
                found.add(id(stmt))
            if isinstance(stmt, Let) and (
                read & written or any(id(let) in found for let in needed_lets(self.body, (stmt,)))
            ):
                found.add(id(stmt))
        return frozenset(found)

    def _find_torn(self) -> Stmt | None:
        """A statement that needs such a variable's value in another stage, or after one of another stage."""
        late = [row for row in self.rows if id(row.stmt) not in self.asynchronous]
        order = sorted(late, key=lambda row: row.place)
        for stmt in self.body:
            users = self._users(stmt) if id(stmt) in self._changing else []
            users += [row for row in late if row.stmt is stmt and users]
            for row in users:
                block = [other for other in late if other.stage == row.stage]
                at = order.index(block[0])
                if row.stage != users[0].stage or order[at : at + len(block)] != block:
                    return row.stmt
        return None

    def _users(self, source: Stmt) -> list[Scheduled]:
        var = source.var if isinstance(source, Let | Atomic) else None
        if var is None:
            return []
        return [
            row
            for row in self.rows
            if row.stmt is not source and var.name in variables_in(with_lets(self.body, row.stmt))
        ]

    def _effects_of(self, stmt: Stmt) -> Effects:
        """The effects of a statement and its Lets; messages to the user count as writes to the buffer ''."""
        effects = buffer_effects(with_lets(self.body, stmt)).through(self.storage.owners)
        says = any(isinstance(inner, Print | Assert) for inner in walk((stmt,)))
        return Effects(read=effects.read, written=effects.written | ({""} if says else set()))

    def _uses(self, other: Scheduled, row: Scheduled, tiles: frozenset[str]) -> bool:
        effects = buffer_effects(with_lets(self.body, other.stmt))
        return other is not row and bool(tiles & (effects.read | effects.written))

    def _is_shared(self, tile: str) -> bool:
        return bool(tile) and self.storage.buffers[tile].scope == "shared"


def _conflicts(first: Effects, second: Effects) -> frozenset[str]:
    return (first.written & (second.read | second.written)) | (first.read & second.written)
