"""What is known of a nest of parallel loops: which bounds hold all over it, which stores are apart."""

from collections.abc import Iterable, Iterator

from tileyard.ir.effects import buffer_effects, expressions
from tileyard.ir.nodes import Atomic, Const, Expr, For, If, Let, Load, Op, Store, Var
from tileyard.ir.walk import walk, walk_expr
from tileyard.targets.cpu.emit.context import Bound, Context, add
from tileyard.targets.cpu.emit.exprs import index_side


def is_independent(ctx: Context, stmt: For) -> bool:
    """Whether no iteration of an innermost parallel loop touches what another one writes.

    The compiler is told so only where the indices show it: each buffer that is written is
    touched in one place only, which this loop's variable alone moves.
    """
    if stmt.kind not in ("parallel", "vectorized"):
        return False
    inner = tuple(walk(stmt.body))
    if not all(isinstance(part, Store | Let | If) for part in inner):
        return False
    stores = [part for part in inner if isinstance(part, Store)]
    places = {store.buffer: store.indices for store in stores}
    loads = [load for part in inner for load in _loads(expressions(part))]
    touched = [
        *((s.buffer, s.indices) for s in stores),
        *((x.buffer, x.indices) for x in loads),
    ]
    stored = {ctx.storage(buffer) for buffer in places}
    return all(
        buffer in places and places[buffer] == indices and moves(indices, stmt.var)
        for buffer, indices in touched
        if ctx.storage(buffer) in stored
    )


def moves(indices: tuple[Expr, ...], var: Var) -> bool:
    """Whether different values of ``var`` certainly give different indices."""
    return any(_steps(expr, var) for expr in indices)


def _steps(expr: Expr, var: Var) -> bool:
    if expr == var:
        return True
    match expr:
        case Op(name="add" | "sub", args=(left, right)):
            sides = [side for side in (left, right) if var in walk_expr(side)]
            return len(sides) == 1 and _steps(sides[0], var)
        case _:
            return False


def _loads(exprs: Iterable[Expr]) -> Iterator[Load]:
    for expr in exprs:
        yield from (part for part in walk_expr(expr) if isinstance(part, Load))


def open_bounds(ctx: Context, nest: For) -> list[tuple[Bound, bool, bool]]:
    """The bounds of arrays' elements in a nest that are not certain.

    The loops' variables are given their ranges on the way.
    """
    found: list[tuple[Bound, bool, bool]] = []
    for stmt in walk((nest,)):
        if isinstance(stmt, For):
            ctx.ranges.bind_loop(stmt)
        if isinstance(stmt, Let):
            continue
        for part in _loads(expressions(stmt)):
            if part.buffer in ctx.arrays:
                found += ctx.open_bounds(part.buffer, part.indices)
        if isinstance(stmt, Atomic | Store) and stmt.buffer in ctx.arrays:
            found += ctx.open_bounds(stmt.buffer, stmt.indices)
    return found


def interior_tests(
    ctx: Context, nest: For, bounds: list[tuple[Bound, bool, bool]]
) -> dict[Bound, str]:
    """For each bound that a test before the nest can establish, the test."""
    loops = {stmt.var: stmt for stmt in walk((nest,)) if isinstance(stmt, For)}
    changing = {stmt.var for stmt in walk((nest,)) if isinstance(stmt, Atomic | Let)}
    written = {ctx.storage(buffer) for buffer in buffer_effects((nest,)).written}
    tests: dict[Bound, str] = {}
    for (at, extent), low, high in bounds:
        corners = _corners(at, loops)
        if corners is None or _depends(ctx, corners, {*loops, *changing}, written):
            continue
        parts = []
        if low:
            parts.append(f"{index_side(ctx, corners[0])} >= 0")
        if high:
            parts.append(f"{index_side(ctx, corners[1])} < {index_side(ctx, extent)}")
        tests[at, extent] = " && ".join(parts)
    return tests


def _depends(
    ctx: Context, corners: tuple[Expr, Expr], bound: set[Var | None], written: set[str]
) -> bool:
    """Whether the corners cannot be computed before a nest that binds and writes these."""
    for corner in corners:
        for part in walk_expr(corner):
            if isinstance(part, Var) and part in bound:
                return True
            if isinstance(part, Load) and ctx.storage(part.buffer) in written:
                return True
    return False


def _corners(expr: Expr, loops: dict[Var, For]) -> tuple[Expr, Expr] | None:
    """The least and the greatest value of ``expr`` over the loops; None where it is not monotone."""
    if isinstance(expr, Var) and expr in loops:
        loop = loops[expr]
        last = add(add(loop.start, loop.extent), Const(-1, expr.dtype))
        return loop.start, last
    if not any(part in loops for part in walk_expr(expr) if isinstance(part, Var)):
        return expr, expr
    if not isinstance(expr, Op) or len(expr.args) != 2:
        return None
    left, right = (_corners(arg, loops) for arg in expr.args)
    if left is None or right is None:
        return None
    match expr.name:
        case "add":
            return add(left[0], right[0]), add(left[1], right[1])
        case "sub":
            low, high = (left[0], right[1]), (left[1], right[0])
            return Op("sub", low, expr.dtype), Op("sub", high, expr.dtype)
        case "mul" | "floordiv" if isinstance(expr.args[1], Const) and expr.args[1].value > 0:
            return (
                Op(expr.name, (left[0], expr.args[1]), expr.dtype),
                Op(expr.name, (left[1], expr.args[1]), expr.dtype),
            )
        case _:
            return None
