"""Evaluates expressions for many lanes: to a NumPy scalar if all have the same value, else to an array."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from tileyard.ir.dtypes import TENSOR_FLOAT, find_dtype
from tileyard.ir.lane_meanings import meaning_of_lanes, reinterpret
from tileyard.ir.meanings import MEANINGS, convert, convert_one
from tileyard.ir.nodes import Cast, Const, Expr, Load, Op, Var
from tileyard.ir.specs import literal

Array = NDArray[Any]
Integers = NDArray[np.int64]


@dataclass(slots=True, eq=False)
class Frame:
    """Some lanes, in order, at least one; ``names`` has values of variables in them. Others are in
    the enclosing frame, of whose lanes these are the ones at ``picked``.
    """

    lanes: Integers
    names: dict[str, Any]
    outer: "Frame | None" = None
    picked: Integers | None = None

    def find(self, name: str) -> Any:  # noqa: ANN401 (a NumPy scalar or an array)
        """The value of a variable."""
        if name in self.names or self.outer is None:
            return self.names[name]
        value = self.outer.find(name)
        self.names[name] = value[self.picked] if value.ndim else value
        return self.names[name]

    def pick(self, mask: Array) -> "Frame":
        """The lanes for which ``mask``, an array, is true."""
        if mask.all():
            return self
        picked = np.flatnonzero(mask)
        return Frame(self.lanes[picked], {}, self, picked)


class LaneEvaluator:
    """Evaluates for a frame's lanes; ``load`` returns elements, ``literals`` are known by identity."""

    def __init__(
        self,
        load: Callable[[Load, Frame], Any],
        literals: dict[int, tuple[Const, np.generic]],
    ) -> None:
        self._load = load
        self._literals = literals

    def value(self, expr: Expr, frame: Frame) -> Any:  # noqa: ANN401 (a NumPy scalar or an array)
        """The values of ``expr``, in its dtype. Raises KernelFault if a lane has a fault."""
        match expr:
            case Var():
                return frame.find(expr.name)
            case Const():
                if id(expr) not in self._literals:
                    self._literals[id(expr)] = (expr, literal(expr))
                return self._literals[id(expr)][1]
            case Load():
                return self._load(expr, frame)
            case Cast():
                return _convert(self.value(expr.value, frame), expr.dtype)
            case Op():
                return self._op(expr, frame)
            case _:
                assert_never(expr)

    def _op(self, op: Op, frame: Frame) -> Any:  # noqa: ANN401
        match op.name:
            case "select":
                return self._select(op, frame)
            case "and" | "or":
                return self._logic(op, frame)
            case "nan":
                return convert_one(np.float32(np.nan), op.dtype)
            case "reinterpret":
                value = self.value(op.args[0], frame)
                bits = reinterpret(np.atleast_1d(value), op.dtype)
                return bits if value.ndim else bits[0]
            case name:
                args = [self.value(arg, frame) for arg in op.args]
                is_one = all(arg.ndim == 0 for arg in args)
                result = (MEANINGS[name] if is_one else meaning_of_lanes(name))(*args)
                return _convert(result, TENSOR_FLOAT) if op.dtype == TENSOR_FLOAT else result

    def _select(self, op: Op, frame: Frame) -> Any:  # noqa: ANN401
        cond, *branches = op.args
        mask = self.value(cond, frame)
        if mask.ndim == 0 or mask.all() or not mask.any():
            return self.value(branches[0 if mask.all() else 1], frame)
        if all(isinstance(branch, Const | Var) for branch in branches):
            return np.where(mask, *[self.value(branch, frame) for branch in branches])
        result = np.empty(len(mask), find_dtype(op.dtype).numpy)
        for where, branch in zip((mask, ~mask), branches, strict=True):
            result[where] = self.value(branch, frame.pick(where))
        return result

    def _logic(self, op: Op, frame: Frame) -> Any:  # noqa: ANN401
        left = self.value(op.args[0], frame)
        is_open = left if op.name == "and" else ~left
        if not is_open.any():
            return left
        if is_open.all():
            return self.value(op.args[1], frame)
        result = left.copy()
        result[is_open] = self.value(op.args[1], frame.pick(is_open))
        return result


def _convert(value: Any, dtype: str) -> Any:  # noqa: ANN401 (a NumPy scalar or an array)
    return convert(value, dtype) if value.ndim else convert_one(value, dtype)
