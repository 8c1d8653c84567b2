"""Evaluates constraints for many points at once, with the exact results of Python's numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tileyard.base.model import Value
from tileyard.frontend.constraints import Const, Expr, Name, combine, is_true

MOST_INT: Final = 1 << 62
"""Whole numbers below it are added and multiplied as such; larger ones one by one, in Python."""
MOST_EXACT: Final = 1 << 53
"""Below it a whole number is a float of the same value."""
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Column:
    """Values of many points, and at which of them they are ``undefined``, if any; those are arbitrary."""

    values: Array
    undefined: npt.NDArray[np.bool_] | None = None

    @property
    def is_whole(self) -> bool:
        """Whether all values are whole or truth values that fit a machine word."""
        return self.values.dtype.kind in "bi"

    def take(self, rows: Array) -> "Column":
        """The values at these rows."""
        undefined = None if self.undefined is None else self.undefined[rows]
        return Column(self.values[rows], undefined)


def make_column(values: Sequence[Value | None]) -> Column:
    """The column of an axis; None is undefined."""
    if isinstance(values, range):
        if max(map(abs, (*values[:1], *values[-1:])), default=0) < MOST_INT:
            return Column(np.arange(values.start, values.stop, values.step, dtype=np.int64))
        return Column(np.array(values, dtype=object))
    kinds = set(map(type, values))
    if type(None) in kinds:
        return _from_objects(values)
    sizes = [abs(value) for value in values if isinstance(value, int | float)]
    if kinds == {bool}:
        return Column(np.array(values, dtype=np.bool_))
    if kinds <= {bool, int} and max(sizes, default=0) < MOST_INT:
        return Column(np.array(values, dtype=np.int64))
    whole = (size for size in sizes if not isinstance(size, float))
    if kinds <= {bool, int, float} and max(whole, default=0) <= MOST_EXACT:
        return Column(np.array(values, dtype=np.float64))
    made = np.empty(len(values), dtype=object)
    made[:] = values
    return Column(made)


def evaluate_column(expr: Expr, columns: Mapping[str, Column], rows: int) -> Column:
    """The value of an expression at each of the rows."""
    if isinstance(expr, Const):
        return _make_constant(expr.value, rows)
    if isinstance(expr, Name):
        return columns[expr.name]
    return _combine(expr.sign, [evaluate_column(part, columns, rows) for part in expr.parts])


def _make_constant(value: Value | None, rows: int) -> Column:
    """The same value at each of the rows."""
    if value is None:
        return Column(np.zeros(rows, dtype=np.int64), np.ones(rows, dtype=np.bool_))
    one = make_column([value])
    return Column(np.broadcast_to(one.values, (rows,)))


def find_true(column: Column) -> npt.NDArray[np.bool_]:
    """The rows at which a value is true, and defined."""
    truth = _as_truth(column)
    return truth.values if truth.undefined is None else truth.values & ~truth.undefined


def _combine(sign: str, parts: Sequence[Column]) -> Column:
    """The result of an operation at each row."""
    if sign in ("and", "or"):
        return _join_truth(sign, list(map(_as_truth, parts)))
    if sign == "not":
        truth = _as_truth(parts[0])
        return Column(~truth.values, truth.undefined)
    if sign == "in":
        equal = [_combine("==", (parts[0], part)) for part in parts[1:]]
        if not equal:
            return Column(np.zeros(len(parts[0].values), dtype=np.bool_))
        return _join_truth("or", list(map(_as_truth, equal)))
    made = _combine_fast(sign, parts)
    return _combine_slowly(sign, parts) if made is None else made


def _as_truth(column: Column) -> Column:
    if column.values.dtype.kind == "b":
        return column
    if column.values.dtype.kind != "O":
        return Column(column.values != 0, column.undefined)
    truth = _from_objects([is_true(one) for one in _list(column)])
    return Column(truth.values != 0, truth.undefined)


def _join_truth(sign: str, parts: Sequence[Column]) -> Column:
    decides = sign == "or"
    decided = np.zeros(len(parts[0].values), dtype=np.bool_)
    undefined = decided.copy()
    for part in parts:
        here = part.values if decides else ~part.values
        decided |= here if part.undefined is None else here & ~part.undefined
        if part.undefined is not None:
            undefined |= part.undefined
    undefined &= ~decided
    values = decided if decides else ~decided
    return Column(values, undefined if undefined.any() else None)


def _largest(column: Column) -> int:
    values = column.values
    if values.dtype.kind == "b" or not values.size:
        return 1
    return max(abs(int(values.max())), abs(int(values.min())))


_BINARY: dict[str, Any] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
    "neg": np.negative,
    "pos": np.positive,
    "abs": np.abs,
    "/": np.true_divide,
    "//": np.floor_divide,
    "%": np.mod,
}
_DIVISIONS = ("/", "//", "%")


def _combine_fast(sign: str, parts: Sequence[Column]) -> Column | None:
    """The result in machine words, None if that would not be exact."""
    if any(part.values.dtype.kind == "O" for part in parts):
        return None
    is_whole = all(part.is_whole for part in parts)
    sizes = [_largest(part) for part in parts if part.is_whole]
    if is_whole and sign in ("+", "-", "*"):
        bound = sizes[0] * sizes[-1] if sign == "*" else sum(sizes)
        if bound >= MOST_INT:
            return None
    if (not is_whole or sign == "/") and max(sizes, default=0) > MOST_EXACT:
        return None
    if sign in ("min", "max") and any(np.isnan(part.values).any() for part in parts):
        return None
    values = [
        part.values.astype(np.int64) if part.values.dtype.kind == "b" else part.values
        for part in parts
    ]
    undefined = _join_undefined(parts)
    if sign in _DIVISIONS:
        is_zero = values[1] == 0
        if is_zero.any():
            undefined = is_zero if undefined is None else undefined | is_zero
            values[1] = np.where(is_zero, 1, values[1])
    with np.errstate(all="ignore"):
        made = values[0]
        if len(values) == 1:
            made = made if sign in ("min", "max") else _BINARY[sign](made)
        for other in values[1:]:
            made = _BINARY[sign](made, other)
    return Column(made, undefined)


def _join_undefined(parts: Sequence[Column]) -> npt.NDArray[np.bool_] | None:
    known = [part.undefined for part in parts if part.undefined is not None]
    return np.logical_or.reduce(known) if known else None


def _combine_slowly(sign: str, parts: Sequence[Column]) -> Column:
    rows = zip(*map(_list, parts), strict=True)
    return _from_objects([combine(sign, row) for row in rows])


def _list(column: Column) -> list[Value | None]:
    values: list[Value | None] = column.values.tolist()
    if column.undefined is None:
        return values
    pairs = zip(values, column.undefined.tolist(), strict=True)
    return [None if is_undefined else value for value, is_undefined in pairs]


def _from_objects(values: Sequence[Value | None]) -> Column:
    undefined = np.fromiter((value is None for value in values), np.bool_, len(values))
    column = make_column([0 if value is None else value for value in values])
    return Column(column.values, undefined if undefined.any() else None)
