"""Functions of TileLang that are expressions of several operations, or that say how they round."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tileyard.frontend.scope import Scope
from tileyard.ir.dtypes import is_float, is_integer
from tileyard.ir.nodes import Cast, Const, Expr, Op
from tileyard.ir.walk import convert

Make = Callable[[Scope, str, list[Expr]], Expr]
"""From the dtype of the result and the arguments to an expression."""

NEAREST = "rn"


def numbers(scope: Scope, name: str, args: Sequence[Any]) -> list[Any]:
    """The arguments that are numbers; refused where one asks for another rounding than to nearest."""
    found = [arg for arg in args if type(arg).__name__ != "StringImm"]
    if not name.startswith("tl.ieee_"):
        return found
    last = args[-1]
    if type(last).__name__ == "StringImm" and str(last.value) != NEAREST:
        scope.refuse(f"{name} with rounding {last.value}")
    return found


def _of(operation: str, scope: Scope, dtype: str, args: list[Expr]) -> Expr:
    """One operation of floats, of the same arguments."""
    _require_float(scope, operation, dtype)
    return Op(operation, tuple(args), dtype)


def _reciprocal(scope: Scope, dtype: str, args: list[Expr]) -> Expr:
    _require_float(scope, "a reciprocal", dtype)
    return Op("div", (Const(1.0, dtype), args[0]), dtype)


def _reciprocal_root(scope: Scope, dtype: str, args: list[Expr]) -> Expr:
    """Rounded once, which the quotient of a rounded root is not."""
    _require_float(scope, "ieee_frsqrt", dtype)
    wide = Op("rsqrt", (Cast(args[0], "float64"),), "float64")
    return wide if dtype == "float64" else Cast(wide, dtype)


def _round_away(scope: Scope, dtype: str, args: list[Expr]) -> Expr:
    """To the nearest whole number, from the middle to the one that is farther from 0."""
    _require_float(scope, "round", dtype)
    value = args[0]
    whole = Op("trunc", (value,), dtype)
    rest = Op("abs", (Op("sub", (value, whole), dtype),), dtype)
    is_far = Op("ge", (rest, Const(0.5, dtype)), "bool")
    next_one = Op("add", (whole, Op("copysign", (Const(1.0, dtype), value), dtype)), dtype)
    return Op("select", (is_far, next_one, whole), dtype)


def _infinity(scope: Scope, dtype: str, _: list[Expr]) -> Expr:
    _require_float(scope, "infinity", dtype)
    return Const(math.inf, dtype)


def _require_float(scope: Scope, name: str, dtype: str) -> None:
    if not is_float(dtype):
        scope.refuse(name, f"does not take {dtype}")


def _clamp(_: Scope, dtype: str, args: list[Expr]) -> Expr:
    """``min(max(x, low), high)``, but NaN where any of the three is NaN."""
    value, low, high = args
    clamped: Expr = Op("min", (Op("max", (value, low), dtype), high), dtype)
    for part in (high, low, value):
        if is_float(dtype) and not isinstance(part, Const):
            clamped = Op("select", (Op("isnan", (part,), "bool"), part, clamped), dtype)
    return clamped


def _leading_zeros(_: Scope, dtype: str, args: list[Expr]) -> Expr:
    return convert(Op("clz", (args[0],), args[0].dtype), dtype)


def _first_one(scope: Scope, dtype: str, args: list[Expr]) -> Expr:
    """The place of the last bit that is set, counted from 1; 0 where there is none."""
    value, kind = args[0], args[0].dtype
    if not is_integer(kind):
        scope.refuse("__ffs", f"does not take {kind}")
    zero = Const(0, kind)
    below = Op("bitxor", (value, Op("sub", (value, Const(1, kind)), kind)), kind)
    found = Op("popcount", (below,), kind)
    return convert(Op("select", (Op("eq", (value, zero), "bool"), zero, found), kind), dtype)


def _scaled(_: Scope, dtype: str, args: list[Expr]) -> Expr:
    """``ldexp``, whose exponent the tile IR has in the number's own type."""
    return Op("ldexp", (args[0], convert(args[1], dtype)), dtype)


FUNCTIONS: dict[str, Make] = {
    "tl.infinity": _infinity,
    "tirx.infinity": _infinity,
    "tl.fast_rcp": _reciprocal,
    "tl.ieee_frcp": _reciprocal,
    "tl.ieee_add": partial(_of, "add"),
    "tl.ieee_sub": partial(_of, "sub"),
    "tl.ieee_mul": partial(_of, "mul"),
    "tl.ieee_fdiv": partial(_of, "div"),
    "tl.ieee_fmaf": partial(_of, "fma"),
    "tl.ieee_fsqrt": partial(_of, "sqrt"),
    "tl.ieee_frsqrt": _reciprocal_root,
    "tl.round_ties_away_from_zero": _round_away,
    "tl.clamp": _clamp,
    "tirx.clz": _leading_zeros,
    "tirx.ldexp": _scaled,
    "tl.__ffs": _first_one,
}
"""What each of TVM's intrinsics becomes."""
