"""One Program per scalar type with every operation on it, and one with every conversion."""

from collections.abc import Mapping

import numpy as np

from tileyard.ir.dtypes import DTYPES, find_dtype
from tileyard.ir.nodes import (
    Buffer,
    Cast,
    Const,
    Expr,
    For,
    Load,
    Op,
    Program,
    Store,
    Tensor,
    Var,
)
from tileyard.ir.ops import OPS, explain_misuse
from tileyard.ir.text import print_program
from tileyard.targets.base import Array
from tileyard.testing.target_cases import TargetCase

_COUNT = 96
_SHIFTS = frozenset({"shl", "shr", "floordiv", "floormod", "truncdiv", "truncmod"})
_RESULTS = ("float32", "float64", "int32", "uint8", "bool")
"""Result types for ``reinterpret`` and similar operations."""


def _numbers(dtype: str, seed: int) -> Array:
    """Numbers of every kind in a type, the extreme ones first."""
    kind, rng = find_dtype(dtype), np.random.default_rng(seed)
    if kind.kind == "bool":
        return rng.integers(0, 2, _COUNT).astype(np.bool_)
    if not kind.is_float:
        low, high = kind.range
        found = [low, high, 0, 1, min(high, 100), max(low, -7)]
        found += [int(value) for value in rng.integers(max(low, -1000), min(high, 1000), _COUNT)]
        return np.array([value & ((1 << 64) - 1) for value in found[:_COUNT]], np.uint64).astype(
            kind.numpy
        )
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 2.5, -3.5, 1e-40, -1e-7, 1e30]
    wide = rng.standard_normal(_COUNT - len(special)) * 10.0 ** rng.integers(-3, 3, _COUNT - 13)
    with np.errstate(all="ignore"):
        return np.array([*special, *wide]).astype(kind.numpy)


def _small(dtype: str) -> Array:
    """Divisors and shift counts: not zero, less than the width of the narrowest word."""
    return (np.arange(_COUNT) % 7 + 1).astype(find_dtype(dtype).numpy)


def _array(name: str, dtype: str) -> Buffer:
    return Buffer(name, dtype, (Const(_COUNT, "int32"),), "global")


def _program(name: str, sources: dict[str, str], results: Mapping[str, Expr]) -> Program:
    i = Var("i", "int32")
    tensors = [Tensor(_array(source, dtype), "in") for source, dtype in sources.items()]
    tensors += [Tensor(_array(result, expr.dtype), "out") for result, expr in results.items()]
    stores = tuple(Store(result, (i,), expr) for result, expr in results.items())
    loop = For(i, Const(0, "int32"), Const(_COUNT, "int32"), "parallel", stores)
    return Program(name, tuple(tensors), (), (), (), (), (loop,))


def _operations(dtype: str) -> dict[str, Op]:
    i = Var("i", "int32")
    x, z, small = (Load(name, (i,), dtype) for name in ("X", "Z", "S"))
    flag = Load("F", (i,), "bool")
    found: dict[str, Op] = {}
    for name, row in OPS.items():
        args: tuple[Expr, ...] = (x, small if name in _SHIFTS else z)[: row.arity]
        args = (flag, x, z) if row.condition else args
        for result in dict.fromkeys((dtype, *_RESULTS)):
            op = Op(name, args, result)
            if not explain_misuse(op) and not _is_undefined(op, dtype):
                found[f"{name}_{result}"] = op
    return found


def _is_undefined(op: Op, dtype: str) -> bool:
    """Whether the bits of the result are undefined: those of a bool, or of a converted NaN."""
    if op.name != "reinterpret":
        return False
    return op.dtype == "bool" or DTYPES[dtype].is_float != DTYPES[op.dtype].is_float


def operation_case(dtype: str) -> TargetCase:
    """The case of every operation on ``dtype``."""
    sources = {"X": dtype, "Z": dtype, "S": dtype, "F": "bool"}
    program = _program(f"operations_{dtype}", sources, _operations(dtype))
    return TargetCase(
        text=print_program(program),
        dims={},
        ulps=4 if find_dtype(dtype).bits > 16 else 1,
        values=(_numbers(dtype, 1), _numbers(dtype, 2), _small(dtype), _numbers("bool", 3)),
    )


def conversion_case(dtype: str) -> TargetCase:
    """The case of the conversions of ``dtype`` to every type."""
    x = Load("X", (Var("i", "int32"),), dtype)
    results: dict[str, Expr] = {f"to_{name}": Cast(x, name) for name in DTYPES}
    return TargetCase(
        text=print_program(_program(f"conversions_{dtype}", {"X": dtype}, results)),
        dims={},
        values=(_numbers(dtype, 4),),
    )


OPERATIONS = {
    **{f"operations on {name}": operation_case(name) for name in DTYPES},
    **{f"conversions of {name}": conversion_case(name) for name in DTYPES},
}
"""Every scalar operation on every type, and every conversion."""
