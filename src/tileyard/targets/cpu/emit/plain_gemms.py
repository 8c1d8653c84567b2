"""Gemms in plain loops: for types and places that no micro-kernel takes."""

from tileyard.ir.dtypes import is_float
from tileyard.ir.nodes import Expr, Gemm, Region
from tileyard.targets.cpu.emit.context import Context, add
from tileyard.targets.cpu.emit.copies import inside_tests
from tileyard.targets.cpu.emit.exprs import condition, element, load, to_memory
from tileyard.targets.cpu.emit.operators import cast
from tileyard.targets.cpu.emit.plan import GemmPlan
from tileyard.targets.cpu.emit.scalars import SCALARS
from tileyard.targets.cpu.emit.segments import constant, loop


def emit_plain_gemm(ctx: Context, stmt: Gemm, plan: GemmPlan) -> None:
    """One step of ``k`` after the other, each rounded to ``c``'s dtype."""
    dtype = ctx.dtype(stmt.c.buffer)
    wide = "float64" if is_float(dtype) else dtype
    i, j, k = ctx.counter("i", plan.m), ctx.counter("j", plan.n), ctx.counter("k", plan.k)
    at = _at(stmt.c, i, j)
    for region in (plan.a, stmt.b, stmt.c):
        if region.buffer not in ctx.arrays:
            inside_tests(ctx, region)
    test = condition(ctx, stmt.c.buffer, at) if stmt.c.buffer in ctx.arrays else ""
    guard = f"if ({test}) " if test else ""
    target = element(ctx, stmt.c.buffer, at)
    a = _operand(ctx, plan.a, (k, i) if stmt.transpose_a else (i, k), wide)
    b = _operand(ctx, stmt.b, (j, k) if stmt.transpose_b else (k, j), wide)
    old = cast(f"({load(ctx, stmt.c.buffer, at).text})", dtype, wide)
    if is_float(dtype):
        total = f"{old} + {a} * {b}"
    else:
        suffix = SCALARS[dtype].suffix
        total = f"ty_add_{suffix}({old}, ty_mul_{suffix}({a}, {b}))"
    order = (
        ((i, plan.m), (j, plan.n), (k, plan.k))
        if stmt.transpose_b
        else ((i, plan.m), (k, plan.k), (j, plan.n))
    )
    if stmt.clear:
        with (
            ctx.out.block(loop(ctx, i, constant(plan.m))),
            ctx.out.block(loop(ctx, j, constant(plan.n))),
        ):
            ctx.out.line(f"{guard}{target} = 0;")
    first, second, third = (loop(ctx, var, constant(extent)) for var, extent in order)
    with ctx.out.block(first), ctx.out.block(second), ctx.out.block(third):
        text = to_memory(ctx, stmt.c.buffer, cast(f"({total})", wide, dtype))
        ctx.out.line(f"{guard}{target} = {text};")


def _at(region: Region, row: Expr, column: Expr) -> tuple[Expr, ...]:
    return (*region.starts[:-2], add(region.starts[-2], row), add(region.starts[-1], column))


def _operand(ctx: Context, region: Region, at: tuple[Expr, Expr], wide: str) -> str:
    read = load(ctx, region.buffer, _at(region, *at)).text
    return cast(f"({read})", ctx.dtype(region.buffer), wide)
