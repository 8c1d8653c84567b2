"""Folds constants in integer expressions, by the rules that TVM applies when it makes an expression."""

import operator
from collections.abc import Callable

from tileyard.ir.dtypes import find_dtype, is_integer
from tileyard.ir.nodes import Cast, Const, Expr, Load, Op, Var
from tileyard.ir.walk import convert

_MEANINGS: dict[str, Callable[[int, int], int | bool]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "floormod": operator.mod,
    "bitand": operator.and_,
    "bitor": operator.or_,
    "bitxor": operator.xor,
    "min": min,
    "max": max,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


def folded(expr: Expr) -> Expr:
    """``expr`` with known integers computed, and without sums with 0 and products with 1."""
    match expr:
        case Const() | Var():
            return expr
        case Load():
            return Load(expr.buffer, tuple(map(folded, expr.indices)), expr.dtype)
        case Cast():
            value = folded(expr.value)
            if isinstance(value, Const) and is_integer(value.dtype) and is_integer(expr.dtype):
                return _known(int(value.value), expr.dtype) or Cast(value, expr.dtype)
            return convert(value, expr.dtype)
        case Op():
            return _folded_op(Op(expr.name, tuple(map(folded, expr.args)), expr.dtype))


def _known(value: int | bool, dtype: str) -> Const | None:
    """A constant of ``dtype``; None if the type cannot hold the value."""
    if dtype == "bool":
        return Const(bool(value), dtype)
    low, high = find_dtype(dtype).range
    return Const(int(value), dtype) if low <= value <= high else None


def _folded_op(op: Op) -> Expr:
    match op:
        case Op(name="select", args=(Const(value=chosen), a, b)):
            return a if chosen else b
        case (
            Op(name="and" | "or" as name, args=(Const(value=known), other))
            | Op(name="and" | "or" as name, args=(other, Const(value=known)))
        ):
            return other if bool(known) == (name == "and") else Const(bool(known), "bool")
        case Op(name="not", args=(Const(value=known),)):
            return Const(not known, "bool")
        case Op(name=name, args=(a, b)) if is_integer(a.dtype) and name in _MEANINGS:
            return _folded_pair(op, a, b)
        case _:
            return op


def _folded_pair(op: Op, a: Expr, b: Expr) -> Expr:
    if isinstance(a, Const) and isinstance(b, Const):
        divides = op.name in ("floordiv", "floormod") and not b.value
        found = None if divides else _MEANINGS[op.name](int(a.value), int(b.value))
        return op if found is None else _known(found, op.dtype) or op
    left = a.value if isinstance(a, Const) else None
    right = b.value if isinstance(b, Const) else None
    match op.name, left, right:
        case ("add", 0, _):
            return b
        case ("mul", 1, _):
            return b
        case ("add" | "sub", _, 0):
            return a
        case ("mul" | "floordiv", _, 1):
            return a
        case ("mul" | "floordiv" | "floormod", 0, _):
            return a
        case ("mul", _, 0):
            return b
        case ("floormod", _, 1):
            return Const(0, op.dtype)
        case _:
            return op
