"""Which parallel loops are better written by the row, and which parts of their values by whole rows."""

from tileyard.ir.dtypes import find_dtype
from tileyard.ir.nodes import Cast, Expr, For, Let, Load, Op, Store, Var
from tileyard.ir.walk import replace_parts, walk_expr
from tileyard.targets.cpu.emit.context import Context
from tileyard.targets.cpu.emit.exprs import unrounded
from tileyard.targets.cpu.emit.groups import count_at_once, is_along
from tileyard.targets.cpu.emit.scalars import SCALARS

_EIGHT = 8
"""Bits of numbers whose arithmetic does not saturate, while their conversions do."""


_FUNCTIONS = frozenset({"exp", "exp2", "exp10", "log10", "sin", "cos", "pow"})
"""Functions that tile.h has for whole rows."""


ROW_FUNCTIONS = _FUNCTIONS - {"exp", "exp2"}
"""Functions that tile.h has for whole rows and not for single vectors."""


def is_row(ctx: Context, store: Store, var: Var) -> bool:
    """Whether the elements that a store writes certainly exist and lie one after the other."""
    return is_along(store.indices, var) and not ctx.open_bounds(store.buffer, store.indices)


def is_narrow_row(ctx: Context, expr: Expr, var: Var) -> bool:
    """Whether ``expr`` reads contiguous numbers of a narrow array, all of which exist."""
    return (
        isinstance(expr, Load)
        and expr.buffer in ctx.arrays
        and bool(ctx.scalar(expr.buffer).narrow)
        and is_along(expr.indices, var)
        and not ctx.open_bounds(expr.buffer, expr.indices)
    )


def rounds(ctx: Context, expr: Expr) -> bool:
    """Whether the value of ``expr`` is rounded by a step that rows have, a conversion's."""
    if not isinstance(expr, Cast | Op):
        return False
    rounding = unrounded(ctx, expr)[1]
    return bool(rounding) and (isinstance(expr, Cast) or not rounding.startswith("f8"))


def is_row_function(expr: Expr) -> bool:
    """Whether ``expr`` is a function that is applied to whole rows."""
    is_known = isinstance(expr, Op) and expr.name in _FUNCTIONS
    return (
        is_known and SCALARS[expr.dtype].value == "float" and find_dtype(expr.dtype).bits > _EIGHT
    )


def has_gain(ctx: Context, store: Store, stmt: For) -> bool:
    """Whether a store converts, rounds, calls a function of rows or divides the loop's variable."""
    if store.buffer in ctx.large and ctx.element_type(store.buffer) == "float":
        return True
    if store.buffer in ctx.arrays and ctx.scalar(store.buffer).narrow:
        return True
    parts = tuple(walk_expr(store.value))
    return (
        any(
            is_narrow_row(ctx, part, stmt.var) or rounds(ctx, part) or is_row_function(part)
            for part in parts
        )
        or count_at_once(store.value, stmt) > 1
    )


def plain_stores(stmt: For) -> list[Store] | None:
    """The stores of the body with what it binds put in its place; None where there is more in it."""
    bound: dict[Expr, Expr] = {}
    found: list[Store] = []
    written = {part.buffer for part in stmt.body if isinstance(part, Store)}
    for part in stmt.body:
        if isinstance(part, Let) and part.value.dtype == part.var.dtype:
            if any(isinstance(x, Load) and x.buffer in written for x in walk_expr(part.value)):
                return None
            bound[part.var] = replace_parts(part.value, bound.get)
        elif isinstance(part, Store):
            indices = tuple(replace_parts(at, bound.get) for at in part.indices)
            found.append(Store(part.buffer, indices, replace_parts(part.value, bound.get)))
        else:
            return None
    return found or None
