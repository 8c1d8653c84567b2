"""Evaluates expressions to NumPy scalars."""

import math
from collections.abc import Callable, Mapping
from typing import Any, assert_never

import numpy as np

from tileyard.errors import KernelFault
from tileyard.ir.dtypes import TENSOR_FLOAT, find_dtype
from tileyard.ir.meanings import MEANINGS, convert_one, make_nan, reinterpret
from tileyard.ir.nodes import Cast, Const, Expr, Load, Op, Var

LoadElement = Callable[[str, tuple[int, ...]], np.generic]


def literal(const: Const) -> Any:  # noqa: ANN401 (a NumPy scalar)
    """The value of ``const`` in its dtype: rounded once where it is a float."""
    dtype = find_dtype(const.dtype)
    if dtype.is_float and math.isinf(const.value) and const.dtype == "float8_e5m2":
        return np.asarray(const.value).astype(dtype.numpy)[()]  # a conversion would saturate
    if dtype.is_float:
        return convert_one(np.float64(const.value), const.dtype)
    return dtype.numpy.type(const.value)


class Evaluator:
    """Evaluates among the ``values`` of variables; ``load`` gives the elements of buffers."""

    def __init__(self, values: Mapping[str, np.generic], load: LoadElement) -> None:
        self._values = values
        self._load = load
        self._literals: dict[int, tuple[Const, np.generic]] = {}

    def value(self, expr: Expr) -> Any:  # noqa: ANN401 (a NumPy scalar of the expression's dtype)
        """The value of ``expr``, a NumPy scalar of its dtype. May raise KernelFault."""
        match expr:
            case Var():
                return self._values[expr.name]
            case Const():
                return self._literal(expr)
            case Load():
                return self._load(expr.buffer, self.indices(expr.indices))
            case Cast():
                return convert_one(self.value(expr.value), expr.dtype)
            case Op():
                return self._op(expr)
            case _:
                assert_never(expr)

    def number(self, expr: Expr) -> int:
        """The value of an integer expression."""
        return int(self.value(expr))

    def indices(self, exprs: tuple[Expr, ...]) -> tuple[int, ...]:
        """The values of integer expressions."""
        return tuple(int(self.value(expr)) for expr in exprs)

    def _literal(self, const: Const) -> np.generic:
        """Literals are converted once; the node is kept so that its identity stays its own."""
        if id(const) not in self._literals:
            self._literals[id(const)] = (const, literal(const))
        return self._literals[id(const)][1]

    def _op(self, op: Op) -> Any:  # noqa: ANN401
        args = op.args
        match op.name:
            case "select":
                return self.value(args[1] if self.value(args[0]) else args[2])
            case "and":
                return np.bool_(self.value(args[0]) and self.value(args[1]))
            case "or":
                return np.bool_(self.value(args[0]) or self.value(args[1]))
            case "nan":
                return make_nan(op.dtype)
            case "reinterpret":
                return reinterpret(self.value(args[0]), op.dtype)
            case name:
                result = MEANINGS[name](*[self.value(arg) for arg in args])
                return convert_one(result, TENSOR_FLOAT) if op.dtype == TENSOR_FLOAT else result


def no_loads(buffer: str, _: tuple[int, ...]) -> np.generic:
    """A ``LoadElement`` for where buffers cannot be read, such as shapes."""
    raise KernelFault(f"{buffer} is read where only numbers can be")
