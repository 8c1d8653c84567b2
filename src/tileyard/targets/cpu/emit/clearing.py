"""Tiles that a gemm accumulates into: clearing them is left to the gemm, which then need not read.

A C variable for each says that the tile counts as zero although its memory was not touched.
"""

from tileyard.ir.effects import buffer_effects, expressions
from tileyard.ir.nodes import (
    Const,
    Copy,
    Fill,
    For,
    Gemm,
    If,
    Load,
    Program,
    Reduce,
    Roles,
    Stmt,
    While,
)
from tileyard.ir.walk import walk, walk_expr
from tileyard.targets.cpu.emit.context import Context
from tileyard.targets.cpu.emit.plan import Plan
from tileyard.targets.cpu.emit.regions import is_whole


def lazy_tiles(program: Program, plan: Plan) -> list[str]:
    """The tiles whose clearing can wait: cleared as a whole, and result of a gemm as a whole."""
    body = tuple(walk(program.body))
    if any(isinstance(stmt, Roles) for stmt in body):  # which go on in turns, not as they stand
        return []
    cleared = {s.dst.buffer for s in body if isinstance(s, Fill) and is_clear(s, plan)}
    results = {s.c.buffer for s in body if isinstance(s, Gemm) and is_result(s, plan)}
    aliased = {name for b in program.buffers if b.view_of for name in (b.name, b.view_of)}
    return sorted((cleared & results) - _exposed(program.body) - aliased)


def is_clear(stmt: Fill, plan: Plan) -> bool:
    """Whether ``stmt`` sets a whole tile to zero."""
    if stmt.dst.buffer not in plan.tiles:
        return False
    tile = plan.tiles[stmt.dst.buffer]
    is_zero = isinstance(stmt.value, Const) and str(float(stmt.value.value)) == "0.0"
    return is_zero and len(tile.shape) == 2 and is_whole(stmt.dst, tile.shape)


def is_result(stmt: Gemm, plan: Plan) -> bool:
    """Whether a micro-kernel writes a whole tile for ``stmt``."""
    if plan.gemms[id(stmt)].shape is None:
        return False
    return is_whole(stmt.c, plan.tiles[stmt.c.buffer].shape)


def _exposed(body: tuple[Stmt, ...]) -> set[str]:
    """Tiles that are touched where ``settle`` does not stand before every touch."""
    found: set[str] = set()
    for stmt in body:
        match stmt:
            case For(kind="parallel"):
                found |= _touched_by_tile_operations(stmt.body)
                continue
            case For() | While():
                found |= _exposed(stmt.body)
            case If():
                found |= _exposed((*stmt.then, *stmt.orelse))
            case _:
                continue
        for expr in expressions(stmt):
            found |= {part.buffer for part in walk_expr(expr) if isinstance(part, Load)}
    return found


def _touched_by_tile_operations(body: tuple[Stmt, ...]) -> set[str]:
    touched: set[str] = set()
    for stmt in walk(body):
        if isinstance(stmt, Copy | Fill | Gemm | Reduce):
            effects = buffer_effects((stmt,))
            touched |= effects.read | effects.written
    return touched


def settle(ctx: Context, stmt: Stmt) -> None:
    """Before ``stmt``, clear the tiles that it touches and that only count as clear.

    Loops and branches around other statements leave that to them.
    """
    if isinstance(stmt, If | While) or (isinstance(stmt, For) and stmt.kind != "parallel"):
        return
    if isinstance(stmt, Fill) and is_clear(stmt, ctx.plan):
        ctx.maybe_clear |= {stmt.dst.buffer} & ctx.lazy.keys()
        return
    effects = buffer_effects((stmt,))
    touched = effects.read | effects.written
    if isinstance(stmt, Gemm) and is_result(stmt, ctx.plan):
        touched = frozenset({ctx.plan.gemms[id(stmt)].a.buffer, stmt.b.buffer})
        ctx.maybe_clear.discard(stmt.c.buffer)
    for buffer in sorted(touched & ctx.maybe_clear):
        ctx.maybe_clear.discard(buffer)
        with ctx.out.block(f"if ({ctx.lazy[buffer]})"):
            ctx.out.line(f"memset({ctx.names[buffer]}, 0, {ctx.plan.tiles[buffer].bytes});")
            ctx.out.line(f"{ctx.lazy[buffer]} = 0;")
