"""Which tiles nothing reads any more: what a pass writes to them need not reach memory."""

from collections.abc import Iterator, Sequence

from tileyard.ir.effects import buffer_effects, expressions, read_regions, written_region
from tileyard.ir.nodes import Atomic, Const, Copy, Expr, Fill, For, Load, Region, Roles, Stmt, Store
from tileyard.ir.walk import bodies, walk, walk_expr
from tileyard.targets.cpu.emit.context import Context
from tileyard.targets.cpu.emit.copies import same_extent
from tileyard.targets.cpu.emit.fusing import Pass
from tileyard.targets.cpu.emit.nests import loads


def find_unwritten(
    ctx: Context, found: Pass, rest: Sequence[Stmt], *, is_outermost: bool
) -> frozenset[str]:
    """The tiles that a pass writes for itself only; ``rest`` is what follows it in the same body."""
    return frozenset(
        name
        for name in _stored(ctx, found)
        if not ctx.is_aliased(name)
        and (
            (is_outermost and not touching(rest, name))
            or (not touching(rest, name) and is_fresh(ctx, name))
            or name in _only_here(ctx, found)
        )
    )


def _stored(ctx: Context, found: Pass) -> set[str]:
    stores = (step.buffer for step in found.nest.steps if isinstance(step, Store))
    return {name for name in stores if name in ctx.plan.tiles}


def _only_here(ctx: Context, found: Pass) -> Iterator[str]:
    """The tiles that a pass writes before it reads them, and that nothing else touches."""
    seen: set[str] = set()
    for step in found.nest.steps:
        seen.update(load.buffer for load in loads(step))
        name = step.buffer
        is_first = isinstance(step, Store) and name not in seen
        if is_first and touching(ctx.program.body, name) == touching(found.statements, name):
            yield name
        seen.add(name)


def touching(body: Sequence[Stmt], buffer: str) -> int:
    """How many statements touch a buffer, their nested bodies aside."""
    count = 0
    for stmt in walk(tuple(body)):
        names = {region.buffer for region in read_regions(stmt)}
        written = written_region(stmt)
        names |= {written.buffer} if written else set()
        names |= {stmt.buffer} if isinstance(stmt, Store | Atomic) else set()
        for expr in expressions(stmt):
            names |= _read(expr)
        count += buffer in names
    return count


def _read(expr: Expr) -> set[str]:
    return {part.buffer for part in walk_expr(expr) if isinstance(part, Load)}


def is_fresh(ctx: Context, tile: str) -> bool:
    """Whether each body that reads a tile has written all of it before, so that none outlives a body."""
    body = ctx.program.body
    if any(isinstance(stmt, Roles) for stmt in walk(body)):
        return False
    return all(_begins_anew(ctx, each, tile) for each in _all_bodies(body))


def _all_bodies(body: tuple[Stmt, ...]) -> Iterator[tuple[Stmt, ...]]:
    yield body
    for stmt in body:
        if not _is_whole_statement(stmt):
            for inner in bodies(stmt):
                yield from _all_bodies(inner)


def _is_whole_statement(stmt: Stmt) -> bool:
    """Whether a statement is looked at as one, its body included."""
    return not bodies(stmt) or (isinstance(stmt, For) and stmt.kind == "parallel")


def _begins_anew(ctx: Context, body: tuple[Stmt, ...], tile: str) -> bool:
    """Whether nothing of a body reads what another one, or another run of it, has written.

    That is where all of the tile is written first, and again after each nested body that touches it.
    """
    is_written = False
    for stmt in body:
        if not touching((stmt,), tile):
            continue
        if not _is_whole_statement(stmt):
            if any(tile in _read(expr) for expr in expressions(stmt)):
                return False
            is_written = False
        elif not is_written:
            if not isinstance(stmt, Copy | Fill) or tile in buffer_effects((stmt,)).read:
                return False
            is_written = is_whole_tile(ctx, stmt.dst)
            if not is_written:
                return False
    return True


def is_whole_tile(ctx: Context, region: Region) -> bool:
    """Whether a region is all of a tile."""
    return region.buffer in ctx.plan.tiles and all(
        start == Const(0, start.dtype) and same_extent(extent, size)
        for start, extent, size in zip(
            region.starts, region.extents, ctx.shape(region.buffer), strict=True
        )
    )
