"""Bounds integer expressions, which proves that an index needs no check, and folds constants."""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from tileyard.ir.dtypes import find_dtype, is_integer
from tileyard.ir.nodes import Cast, Const, Expr, For, Load, Op, Program, Scalar, Var
from tileyard.ir.walk import convert

LARGEST_DIM = (1 << 31) - (1 << 16)
"""Largest dimension: with it, sums and products of block sizes and indices stay in 32 bits."""
_AT_ENDS: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "min": min,
    "max": max,
    "floordiv": operator.floordiv,
    "truncdiv": operator.floordiv,
}
"""Operations whose smallest and largest results are at the ends of their operands' intervals."""
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


@dataclass(frozen=True, slots=True)
class Interval:
    """All integers from ``low`` to ``high``, both included; empty where ``low > high``."""

    low: int
    high: int

    def within(self, other: "Interval") -> bool:
        """Whether all of it is inside ``other``."""
        return other.low <= self.low and self.high <= other.high

    def hull(self, other: "Interval") -> "Interval":
        """The smallest interval that contains both."""
        return Interval(min(self.low, other.low), max(self.high, other.high))


def dtype_interval(dtype: str) -> Interval:
    """All values of an integer type, or bool."""
    return Interval(*find_dtype(dtype).range) if dtype != "bool" else Interval(0, 1)


class Ranges:
    """The intervals of the variables in scope, and of expressions over them."""

    def __init__(self, program: Program) -> None:
        self._vars: dict[str, Interval] = {}
        self._extents: dict[str, Expr] = {}
        for param in program.params:
            if isinstance(param, Scalar) and not find_dtype(param.var.dtype).is_float:
                self._vars[param.var.name] = dtype_interval(param.var.dtype)
        for var in program.dims:
            self._vars[var.name] = Interval(0, LARGEST_DIM)
        for axis in program.grid:
            self._extents[axis.var.name] = axis.extent
            self.bind(axis.var, Interval(0, max(self.of(axis.extent).high - 1, 0)))

    def bind(self, var: Var, interval: Interval) -> None:
        """Set the values that ``var`` can have."""
        whole = dtype_interval(var.dtype)
        self._vars[var.name] = interval if interval.within(whole) else whole

    def bind_loop(self, loop: For) -> None:
        """Set the values that the variable of a loop can have inside it."""
        start, extent = self.of(loop.start), self.of(loop.extent)
        if loop.start == Const(0, loop.start.dtype):
            self._extents[loop.var.name] = loop.extent
        self.bind(loop.var, Interval(start.low, max(start.high + extent.high - 1, start.low)))

    def of(self, expr: Expr) -> Interval:
        """The values that ``expr``, an integer or bool, can have."""
        exact, whole = self.exact(expr), dtype_interval(expr.dtype)
        return exact if exact.within(whole) else whole

    def is_exact(self, expr: Expr) -> bool:
        """Whether ``expr`` itself, regardless of its parts, never wraps."""
        return self.exact(expr).within(dtype_interval(expr.dtype))

    def is_below(self, index: Expr, extent: Expr) -> bool:
        """Whether ``index < extent`` is certain."""
        if self.of(index).high < self.of(extent).low:
            return True
        return isinstance(index, Var) and self._extents.get(index.name) == extent

    def exact(self, expr: Expr) -> Interval:
        """The values that ``expr`` would have if its own result did not wrap."""
        match expr:
            case Const():
                return Interval(int(expr.value), int(expr.value))
            case Var():
                return self._vars.get(expr.name, dtype_interval(expr.dtype))
            case Op():
                return self._op(expr)
            case Cast() if not find_dtype(expr.value.dtype).is_float:
                return self.of(expr.value)
            case Cast() | Load():
                return dtype_interval(expr.dtype)
            case _:
                assert_never(expr)

    def _op(self, op: Op) -> Interval:
        whole = dtype_interval(op.dtype)
        if op.name == "select":
            return self.of(op.args[1]).hull(self.of(op.args[2]))
        is_float = any(find_dtype(arg.dtype).is_float for arg in op.args)
        if len(op.args) != 2 or op.dtype == "bool" or is_float:
            return whole
        return _binary(op.name, self.of(op.args[0]), self.of(op.args[1]), whole)


def _binary(name: str, a: Interval, b: Interval, whole: Interval) -> Interval:
    match name:
        case "floormod" if b.low > 0:
            return Interval(0, min(b.high - 1, a.high) if a.low >= 0 else b.high - 1)
        case "truncmod" if b.low > 0 and a.low >= 0:
            return Interval(0, min(b.high - 1, a.high))
        case "shr" if a.low >= 0 and b.low >= 0:
            return Interval(0, a.high >> b.low)
        case "bitand" if a.low >= 0 or b.low >= 0:
            return Interval(0, min(side.high for side in (a, b) if side.low >= 0))
        case "floordiv" if b.low <= 0:
            return whole
        case "truncdiv" if b.low <= 0 or a.low < 0:
            return whole
        case _ if name in _AT_ENDS:
            ends = [_AT_ENDS[name](x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
            return Interval(min(ends), max(ends))
        case _:
            return whole


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
