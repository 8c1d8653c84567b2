"""Bounds the values of integer expressions: this proves that an index needs no check."""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from tileyard.ir.dtypes import find_dtype
from tileyard.ir.nodes import (
    Cast,
    Const,
    Expr,
    For,
    Load,
    Op,
    Program,
    Scalar,
    Var,
)

LARGEST_DIM = (1 << 31) - (1 << 16)
"""Largest dimension: with it, sums and products of block sizes and indices stay in 32 bits."""


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
