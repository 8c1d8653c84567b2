"""Fills in C; those of tiles that a gemm accumulates into are left to the gemm, which then need not read.

A C variable for each such tile says that it counts as zero although its memory was not touched.
"""

from tileyard.ir.nodes import (
    Const,
    Copy,
    Fill,
    For,
    Gemm,
    If,
    Program,
    Reduce,
    Roles,
    Stmt,
    While,
)
from tileyard.ir.walk import bodies, own_effects, walk
from tileyard.targets.cpu.emit.context import Context
from tileyard.targets.cpu.emit.copies import inside_tests
from tileyard.targets.cpu.emit.exprs import guard, index, index_term, to_memory, value
from tileyard.targets.cpu.emit.parts import find_bodies, is_parallel, is_whole, touched
from tileyard.targets.cpu.emit.plan import Plan
from tileyard.targets.cpu.emit.scalars import cast
from tileyard.targets.cpu.emit.segments import (
    counter,
    element_indices,
    loop,
    matrix_start,
    segments,
)

# ---- clearing -------------------------------------------------------------------------------------


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
    tile = plan.tiles.get(stmt.dst.buffer)
    is_matrix = tile is not None and len(tile.shape) == 2 and is_whole(stmt.dst, tile.shape)
    return is_matrix and _is_zero(stmt)


def is_result(stmt: Gemm, plan: Plan) -> bool:
    """Whether a micro-kernel writes a whole tile for ``stmt``."""
    has_kernel = plan.gemms[id(stmt)].shape is not None
    return has_kernel and is_whole(stmt.c, plan.tiles[stmt.c.buffer].shape)


def _exposed(body: tuple[Stmt, ...]) -> set[str]:
    """Tiles that are touched where ``settle`` does not stand before every touch."""
    found: set[str] = set()
    for stmt in (stmt for each in find_bodies(body) for stmt in each):
        if is_parallel(stmt):
            operations = (Copy, Fill, Gemm, Reduce)
            found |= touched(*(inner for inner in walk((stmt,)) if isinstance(inner, operations)))
        elif bodies(stmt):
            found |= own_effects(stmt).read
    return found


def settle(ctx: Context, stmt: Stmt) -> None:
    """Before ``stmt``, clear the tiles that it touches and that only count as clear.

    Loops and branches around other statements leave that to them.
    """
    if isinstance(stmt, If | While) or (isinstance(stmt, For) and not is_parallel(stmt)):
        return
    if isinstance(stmt, Fill) and is_clear(stmt, ctx.plan):
        ctx.maybe_clear |= {stmt.dst.buffer} & ctx.lazy.keys()
        return
    buffers = touched(stmt)
    if isinstance(stmt, Gemm) and is_result(stmt, ctx.plan):
        buffers = frozenset({ctx.plan.gemms[id(stmt)].a.buffer, stmt.b.buffer})
        ctx.maybe_clear.discard(stmt.c.buffer)
    for buffer in sorted(buffers & ctx.maybe_clear):
        ctx.maybe_clear.discard(buffer)
        with ctx.out.block(f"if ({ctx.lazy[buffer]})"):
            ctx.out.line(f"memset({ctx.names[buffer]}, 0, {ctx.plan.tiles[buffer].bytes});")
            ctx.out.line(f"{ctx.lazy[buffer]} = 0;")


# ---- fills ----------------------------------------------------------------------------------------


def emit_fill(ctx: Context, stmt: Fill) -> None:
    """Write a fill, or note that the next gemm does it."""
    buffer = stmt.dst.buffer
    if buffer in ctx.lazy and is_clear(stmt, ctx.plan):
        ctx.out.line(f"{ctx.lazy[buffer]} = 1;")
        return
    if _is_zero(stmt) and not inside_tests(ctx, stmt.dst):
        _clear(ctx, stmt)
        return
    text = cast(f"({value(ctx, stmt.value)})", stmt.value.dtype, ctx.dtype(buffer))
    ctx.out.line(f"const {ctx.element_type(buffer)} fill_ = {to_memory(ctx, buffer, text)};")
    tile = ctx.packed(buffer)
    if tile is not None:
        start = index(ctx, matrix_start(ctx, tile, stmt.dst))
        with ctx.out.block(f"for (int64_t e_ = 0; e_ < {tile.matrix_elements}; ++e_)"):
            ctx.out.line(f"(&{ctx.names[buffer]}[{start}])[e_] = fill_;")
        return
    tests = inside_tests(ctx, stmt.dst)
    if not tests:
        _fill_rows(ctx, stmt, is_inside=True)
        return
    with ctx.out.block(f"if ({' && '.join(tests.values())})"):
        _fill_rows(ctx, stmt, is_inside=True)
    with ctx.out.block("else"):
        _fill_rows(ctx, stmt, is_inside=False)


def _is_zero(stmt: Fill) -> bool:
    return isinstance(stmt.value, Const) and str(float(stmt.value.value)) == "0.0"


def _clear(ctx: Context, stmt: Fill) -> None:
    """A fill with what is all zero bits in every type."""
    tile = ctx.packed(stmt.dst.buffer)
    size = f"sizeof({ctx.element_type(stmt.dst.buffer)})"
    if tile is not None:
        start = index(ctx, matrix_start(ctx, tile, stmt.dst))
        name = ctx.names[stmt.dst.buffer]
        ctx.out.line(f"memset(&{name}[{start}], 0, {tile.matrix_elements} * {size});")
        return
    for segment in segments(ctx, stmt.dst):
        ctx.out.line(f"memset({segment.address}, 0, {index_term(ctx, segment.count)} * {size});")


def _fill_rows(ctx: Context, stmt: Fill, *, is_inside: bool) -> None:
    for segment in segments(ctx, stmt.dst):
        test, var = "", counter(ctx, "e", segment.count)
        if not is_inside:
            test = guard(ctx, stmt.dst.buffer, element_indices(stmt.dst, segment, var))
        with ctx.out.block(loop(ctx, var, segment.count)):
            ctx.out.line(f"{test}({segment.address})[{index(ctx, var)}] = fill_;")
