"""Simple values of whole vectors in C: sums and products of contiguous numbers, converted on the way.

Compilers find most vectors by themselves; those of narrow numbers are written out here.
"""

from tileyard.ir.nodes import Cast, Expr, Load, Op, Var
from tileyard.ir.walk import walk_expr
from tileyard.targets.cpu.emit.context import Context
from tileyard.targets.cpu.emit.exprs import place, value
from tileyard.targets.cpu.emit.groups import is_along
from tileyard.targets.cpu.emit.operators import BINARY, unrounded_cast
from tileyard.targets.cpu.emit.scalars import SCALARS

ROUNDED = frozenset({"f16", "bf16"})
"""Narrow types that tile.h reads, rounds and writes by the vector."""

_BYTES = {"int8": "i8", "uint8": "u8"}
"""Integers that tile.h reads as vectors of floats."""


def vector(ctx: Context, expr: Expr, var: Var) -> str:
    """The values of ``expr`` from ``var`` on, the last rounding included; empty where it is not simple.

    Without ``var`` in it, this is one number, which counts for all.
    """
    text, rounding = unrounded_vector(ctx, expr, var)
    return f"ty_round_row_{rounding}({text})" if text and rounding else text


def unrounded_vector(ctx: Context, expr: Expr, var: Var) -> tuple[str, str]:
    """As ``vector``, but the last step left out: the narrow type to which it is to be rounded."""
    if SCALARS[expr.dtype].value != "float" or SCALARS[expr.dtype].narrow not in ("", *ROUNDED):
        return "", ""
    if var not in walk_expr(expr):
        return f"({value(ctx, expr)})", ""
    match expr:
        case Load():
            return _load(ctx, expr, var), ""
        case Cast():
            return _cast(ctx, expr, var)
        case Op(name="add" | "sub" | "mul" | "div"):
            left, right = (vector(ctx, arg, var) for arg in expr.args)
            text = f"({left} {BINARY[expr.name][0]} {right})" if left and right else ""
            return text, SCALARS[expr.dtype].narrow
        case Op(name="neg"):
            inner = vector(ctx, expr.args[0], var)
            return (f"(-{inner})" if inner else ""), ""
        case _:
            return "", ""


def _load(ctx: Context, expr: Load, var: Var) -> str:
    if not is_along(expr.indices, var) or ctx.open_bounds(expr.buffer, expr.indices):
        return ""
    kind = ctx.scalar(expr.buffer).narrow if expr.buffer in ctx.arrays else "f32"
    return f"ty_load_{kind or 'f32'}(&{place(ctx, expr.buffer, expr.indices)})"


def _cast(ctx: Context, expr: Cast, var: Var) -> tuple[str, str]:
    inner = expr.value
    if isinstance(inner, Load) and inner.dtype in _BYTES:
        if not is_along(inner.indices, var) or ctx.open_bounds(inner.buffer, inner.indices):
            return "", ""
        return f"ty_load_{_BYTES[inner.dtype]}(&{place(ctx, inner.buffer, inner.indices)})", ""
    if SCALARS[inner.dtype].value != "float":
        return "", ""
    text = vector(ctx, inner, var)
    return unrounded_cast(text, inner.dtype, expr.dtype) if text else ("", "")
