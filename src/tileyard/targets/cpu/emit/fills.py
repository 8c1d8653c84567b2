"""Fills in C."""

from tileyard.ir.nodes import Const, Fill
from tileyard.targets.cpu.emit import clearing
from tileyard.targets.cpu.emit.context import Context
from tileyard.targets.cpu.emit.copies import inside_tests
from tileyard.targets.cpu.emit.exprs import condition, index, index_term, to_memory, value
from tileyard.targets.cpu.emit.operators import cast
from tileyard.targets.cpu.emit.segments import (
    counter,
    element_indices,
    loop,
    matrix_start,
    segments,
)
from tileyard.targets.cpu.emit.tiles import Rows


def emit_fill(ctx: Context, stmt: Fill) -> None:
    """Write a fill, or note that the next gemm does it."""
    buffer = stmt.dst.buffer
    if buffer in ctx.lazy and clearing.is_clear(stmt, ctx.plan):
        ctx.out.line(f"{ctx.lazy[buffer]} = 1;")
        return
    if _is_zero(stmt) and not inside_tests(ctx, stmt.dst):
        _clear(ctx, stmt)
        return
    text = cast(f"({value(ctx, stmt.value)})", stmt.value.dtype, ctx.dtype(buffer))
    ctx.out.line(f"const {ctx.element_type(buffer)} fill_ = {to_memory(ctx, buffer, text)};")
    tile = ctx.plan.tiles.get(buffer)
    if tile is not None and not isinstance(tile.layout, Rows):
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
    tile = ctx.plan.tiles.get(stmt.dst.buffer)
    size = f"sizeof({ctx.element_type(stmt.dst.buffer)})"
    if tile is not None and not isinstance(tile.layout, Rows):
        start = index(ctx, matrix_start(ctx, tile, stmt.dst))
        name = ctx.names[stmt.dst.buffer]
        ctx.out.line(f"memset(&{name}[{start}], 0, {tile.matrix_elements} * {size});")
        return
    for segment in segments(ctx, stmt.dst):
        ctx.out.line(f"memset({segment.address}, 0, {index_term(ctx, segment.count)} * {size});")


def _fill_rows(ctx: Context, stmt: Fill, *, is_inside: bool) -> None:
    for segment in segments(ctx, stmt.dst):
        guard, var = "", counter(ctx, "e", segment.count)
        if not is_inside:
            test = condition(ctx, stmt.dst.buffer, element_indices(stmt.dst, segment, var))
            guard = f"if ({test}) " if test else ""
        with ctx.out.block(loop(ctx, var, segment.count)):
            ctx.out.line(f"{guard}({segment.address})[{index(ctx, var)}] = fill_;")
