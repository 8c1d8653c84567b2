"""Lowers TIR expressions to the tile IR's."""

import math
from collections.abc import Callable
from typing import Any

from tilelang import tvm

from tileyard.frontend.scope import Scope
from tileyard.ir.dtypes import is_float
from tileyard.ir.nodes import Cast, Const, Expr, Load, Op, Region

_BINARY = {
    "Add": "add",
    "Sub": "sub",
    "Mul": "mul",
    "FloorDiv": "floordiv",
    "FloorMod": "floormod",
    "Min": "min",
    "Max": "max",
    "EQ": "eq",
    "NE": "ne",
    "LT": "lt",
    "LE": "le",
    "GT": "gt",
    "GE": "ge",
    "And": "and",
    "Or": "or",
}
"""TIR's expression nodes with two operands, by class."""

_SAME_NAME = (
    "exp exp2 exp10 log log2 log10 log1p sqrt rsqrt tanh sin cos tan sigmoid erf pow "
    "floor ceil round trunc fmod atan2 isnan isinf isfinite reinterpret"
)
_FAST = "exp exp10 log log2 log10 sin cos tan"

_INTRINSICS = {
    **{f"tirx.{name}": name for name in _SAME_NAME.split()},
    **{f"tl.__{name}": name for name in _FAST.split()},
    "tirx.fabs": "abs",
    "tirx.abs": "abs",
    "tirx.nearbyint": "round",
    "tirx.if_then_else": "select",
    "tirx.bitwise_and": "bitand",
    "tirx.bitwise_or": "bitor",
    "tirx.bitwise_xor": "bitxor",
    "tirx.bitwise_not": "bitnot",
    "tirx.shift_left": "shl",
    "tirx.shift_right": "shr",
}
"""Intrinsics that are scalar operations of ours, argument by argument.

TileLang's fast variants (``tl.__exp``) are less exact forms of the same function.
"""


def lower_expr(scope: Scope, expr: Any) -> Expr:  # noqa: ANN401 (TVM's nodes are untyped)
    """The tile IR's form of a scalar TIR expression; raises UnsupportedError."""
    kind = type(expr).__name__
    rule = _RULES.get(kind)
    if rule is not None:
        return rule(scope, expr)
    if kind in _BINARY:
        return _op(scope, _BINARY[kind], (expr.a, expr.b), expr.dtype)
    return scope.refuse(f"expression {kind}")


def lower_region(scope: Scope, call: Any) -> Region:  # noqa: ANN401
    """The box that a ``tl.region`` call or a plain load describes."""
    if type(call).__name__ == "Call" and call.op.name == "tl.region":
        load, extents = call.args[0], list(call.args)[2:]
    elif type(call).__name__ == "BufferLoad":
        load, extents = call, [tvm.tirx.IntImm("int32", 1)] * len(call.indices)
    elif type(call).__name__ == "BufferRegion":
        buffer = scope.buffer(call.buffer)
        starts = tuple(lower_expr(scope, item.min) for item in call.region)
        return Region(buffer.name, starts, tuple(lower_expr(scope, r.extent) for r in call.region))
    else:
        return scope.refuse(f"{type(call).__name__} in place of a region")
    buffer = scope.buffer(load.buffer)
    starts = tuple(lower_expr(scope, index) for index in load.indices)
    if len(extents) != len(starts):
        scope.refuse(
            f"region of {buffer.name}", "has another rank than its buffer, which is not covered"
        )
    return Region(buffer.name, starts, tuple(lower_expr(scope, extent) for extent in extents))


def _op(scope: Scope, name: str, args: Any, dtype: object) -> Expr:  # noqa: ANN401
    lowered = tuple(lower_expr(scope, arg) for arg in args)
    return Op(name, lowered, scope.dtype(dtype, name))


def _int(scope: Scope, expr: Any) -> Expr:  # noqa: ANN401
    dtype = scope.dtype(expr.dtype, "literal")
    return Const(bool(expr.value) if dtype == "bool" else int(expr.value), dtype)


def _float(scope: Scope, expr: Any) -> Expr:  # noqa: ANN401
    dtype = scope.dtype(expr.dtype, "literal")
    value = float(expr.value)
    return Op("nan", (), dtype) if math.isnan(value) else Const(value, dtype)


def _load(scope: Scope, expr: Any) -> Expr:  # noqa: ANN401
    buffer = scope.buffer(expr.buffer)
    if expr.predicate is not None:
        scope.refuse(f"predicated load of {buffer.name}")
    indices = tuple(lower_expr(scope, index) for index in expr.indices)
    return Load(buffer.name, indices, scope.dtype(expr.dtype, buffer.name))


def _divide(scope: Scope, expr: Any) -> Expr:  # noqa: ANN401
    name = "div" if is_float(str(expr.dtype)) else "truncdiv"
    return _op(scope, name, (expr.a, expr.b), expr.dtype)


def _remainder(scope: Scope, expr: Any) -> Expr:  # noqa: ANN401
    name = "fmod" if is_float(str(expr.dtype)) else "truncmod"
    return _op(scope, name, (expr.a, expr.b), expr.dtype)


def _multiply(scope: Scope, expr: Any) -> Expr:  # noqa: ANN401
    """A product; ``-inf``, which TileLang writes as a product, becomes the literal that it is."""
    product = _op(scope, "mul", (expr.a, expr.b), expr.dtype)
    match product:
        case Op(args=(Const(value=math.inf, dtype=dtype), Const(value=-1.0))):
            return Const(-math.inf, dtype)
        case _:
            return product


def _select(scope: Scope, expr: Any) -> Expr:  # noqa: ANN401
    args = (expr.condition, expr.true_value, expr.false_value)
    return _op(scope, "select", args, expr.dtype)


def _call(scope: Scope, expr: Any) -> Expr:  # noqa: ANN401
    name = getattr(expr.op, "name", None) or str(expr.op)
    if name in _INTRINSICS:
        if dict(expr.annotations):
            scope.refuse(f"{name} with {', '.join(map(str, expr.annotations))}")
        return _op(scope, _INTRINSICS[name], expr.args, expr.dtype)
    match name:
        case "tl.infinity" | "tirx.infinity":
            return Const(math.inf, scope.dtype(expr.dtype, name))
        case "tl.fast_rcp" | "tl.ieee_frcp":
            dtype = scope.dtype(expr.dtype, name)
            return Op("div", (Const(1.0, dtype), lower_expr(scope, expr.args[0])), dtype)
        case "tl.clamp":
            return _clamp(scope, expr)
        case "tirx.likely":
            return lower_expr(scope, expr.args[0])
        case "tirx.call_extern" | "tirx.call_pure_extern":
            return scope.refuse(f"call_extern {expr.args[0].value}")
        case _:
            return scope.refuse(name)


def _clamp(scope: Scope, expr: Any) -> Expr:  # noqa: ANN401
    """``min(max(x, low), high)``, but NaN where any of the three is NaN."""
    dtype = scope.dtype(expr.dtype, "clamp")
    value, low, high = (lower_expr(scope, arg) for arg in expr.args)
    clamped = Op("min", (Op("max", (value, low), dtype), high), dtype)
    for part in (high, low, value):
        if is_float(dtype) and not isinstance(part, Const):
            clamped = Op("select", (Op("isnan", (part,), "bool"), part, clamped), dtype)
    return clamped


_RULES: dict[str, Callable[[Scope, Any], Expr]] = {
    "IntImm": _int,
    "FloatImm": _float,
    "Var": lambda scope, expr: scope.var(expr),
    "SizeVar": lambda scope, expr: scope.var(expr),
    "BufferLoad": _load,
    "Cast": lambda scope, expr: Cast(
        lower_expr(scope, expr.value), scope.dtype(expr.dtype, "conversion")
    ),
    "Div": _divide,
    "Mod": _remainder,
    "Mul": _multiply,
    "Not": lambda scope, expr: _op(scope, "not", (expr.a,), expr.dtype),
    "Select": _select,
    "Call": _call,
}
"""How each class of TIR expression is lowered that is more than an operation on two operands."""
