"""How the plan of a loop is written in it, for the passes that follow plans; it still runs in order.
``stage`` is how many iterations a statement is late, ``order`` its place in a step; both omit Lets. A
``group`` plans for roles: it has the statements whose copies one row of barriers counts.
"""

from tileyard.base.model import Record
from tileyard.ir.nodes import Copy, For, Issue, Let, Stmt, Var, WaitGroup
from tileyard.ir.walk import buffer_effects, expressions, walk, walk_expr


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
