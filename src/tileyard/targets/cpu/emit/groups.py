"""Divisions of a loop's variable by a small constant, resolved by writing several elements at once."""

from dataclasses import dataclass

from tileyard.ir.nodes import Const, Expr, For, Load, Op, Var
from tileyard.ir.walk import children, replace_parts, walk_expr
from tileyard.targets.cpu.emit.context import Bound, Context, add

MOST = 8
"""The largest divisor that is resolved; all are powers of two."""


def count_at_once(expr: Expr, stmt: For) -> int:
    """How many elements are to be written at once, so that no division of the variable is left."""
    divisors = {
        divisor
        for part in walk_expr(expr)
        if (divisor := _divisor(part)) and stmt.var in walk_expr(children(part)[0])
    }
    most = max(divisors, default=1)
    if not 1 < most <= MOST or any(least < 0 or most % least for least in divisors):
        return 1
    is_whole = isinstance(stmt.extent, Const) and int(stmt.extent.value) % most == 0
    return most if is_whole and MOST % most == 0 and _is_multiple(stmt.start, most) else 1


def _divisor(expr: Expr) -> int:
    """What a quotient or a remainder is divided by, 0 where that is no constant or it is neither."""
    match expr:
        case Op(
            name="floordiv" | "floormod" | "truncdiv" | "truncmod", args=(_, Const(value=value))
        ):
            return int(value)
        case _:
            return 0


def _is_multiple(expr: Expr, factor: int) -> bool:
    """Whether ``expr`` is certainly a multiple of ``factor``."""
    match expr:
        case Const():
            return int(expr.value) % factor == 0
        case Op(name="add" | "sub", args=(left, right)):
            return _is_multiple(left, factor) and _is_multiple(right, factor)
        case Op(name="mul", args=(left, right)):
            return _is_multiple(left, factor) or _is_multiple(right, factor)
        case _:
            return False


def _without(expr: Expr, var: Var) -> Expr | None:
    """What is added to ``var`` in ``expr``; None where it is not such a sum."""
    if expr == var:
        return Const(0, expr.dtype)
    match expr:
        case Op(name="add", args=(left, right)):
            inside, other = (left, right) if var in walk_expr(left) else (right, left)
            rest = None if var in walk_expr(other) else _without(inside, var)
            return None if rest is None else add(rest, other)
        case _:
            return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """Element ``rest`` of ``count`` that are written at once; ``group`` counts those by ``count``.

    ``bounds`` collects what holds of indices without divisions, because it held with them.
    """

    ctx: Context
    var: Var
    group: Var
    count: int
    rest: int
    bounds: set[Bound]

    def resolve(self, expr: Expr) -> Expr | None:
        """``expr`` without divisions of the variable; None where its parts are to be looked at."""
        if expr in self.ctx.known:
            return expr
        if isinstance(expr, Load) and not self.ctx.open_bounds(expr.buffer, expr.indices):
            indices = tuple(replace_parts(at, self.resolve) for at in expr.indices)
            self.bounds.update(zip(indices, self.ctx.shape(expr.buffer), strict=True))
            return Load(expr.buffer, indices, expr.dtype)
        divisor = _divisor(expr)
        if divisor and isinstance(expr, Op) and self.var in walk_expr(expr.args[0]):
            return self._divide(expr, divisor)
        return None

    def _divide(self, op: Op, divisor: int) -> Expr | None:
        base = _without(op.args[0], self.var)
        if (
            base is None
            or not _is_multiple(base, divisor)
            or self.ctx.ranges.of(op.args[0]).low < 0
        ):
            return None
        if op.name.endswith("mod"):
            return Const(self.rest % divisor, op.dtype)
        groups = Op("mul", (self.group, Const(self.count // divisor, op.dtype)), op.dtype)
        whole = self.group if self.count == divisor else groups
        start = add(Op("floordiv", (base, op.args[1]), op.dtype), whole)
        if base == Const(0, base.dtype):
            start = whole
        return add(start, Const(self.rest // divisor, op.dtype))


def is_along(indices: tuple[Expr, ...], var: Var) -> bool:
    """Whether these are the indices of contiguous elements while ``var`` counts."""
    return (
        bool(indices)
        and _steps_by_one(indices[-1], var)
        and not any(var in walk_expr(at) for at in indices[:-1])
    )


def _steps_by_one(expr: Expr, var: Var) -> bool:
    if expr == var:
        return True
    match expr:
        case Op(name="add", args=(left, right)):
            sides = [side for side in (left, right) if var in walk_expr(side)]
            return len(sides) == 1 and _steps_by_one(sides[0], var)
        case Op(name="sub", args=(left, right)):
            return var not in walk_expr(right) and _steps_by_one(left, var)
        case _:
            return False
