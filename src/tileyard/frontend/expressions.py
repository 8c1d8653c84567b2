"""Lowers TIR expressions, with regions and pointers, to those of the tile IR."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

from tilelang import tvm

from tileyard.frontend.nests import any_or_all
from tileyard.frontend.rewrites import promoted, widened
from tileyard.frontend.scope import Scope
from tileyard.frontend.tir_queries import (
    POINTERS,
    call_name,
    constant_of,
    extern_name,
    is_load,
    is_zero,
)
from tileyard.ir.dtypes import is_float, is_integer
from tileyard.ir.meanings import OPS
from tileyard.ir.nodes import (
    Atomic,
    AtomicKind,
    Buffer,
    Cast,
    Const,
    Expr,
    Let,
    Load,
    Op,
    Region,
    Var,
)
from tileyard.ir.walk import convert

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
    *(row.name for row in OPS.values() if (row.accepts, row.arity, row.symbol) == ("float", 1, "")),
    *["pow", "fmod", "atan2", "hypot", "copysign", "nextafter", "reinterpret", "popcount"],
)
"""Operations that TVM's intrinsics have under the same names, including all functions of one float."""

_FAST = "exp exp10 log log2 log10 sin cos tan"

_INTRINSICS = {
    **{f"tirx.{name}": name for name in _SAME_NAME},
    **{f"tl.__{name}": name for name in _FAST.split()},
    "tl.fma": "fma",
    "tl.fmul": "mul",
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
"""Intrinsics that correspond to a scalar operation of the tile IR, argument by argument.

TileLang's fast variants (``tl.__exp``) are less exact forms of the same function.
"""


def lower_expr(scope: Scope, expr: Any) -> Expr:  # noqa: ANN401 (TVM's nodes are untyped)
    """The tile IR's form of a scalar TIR expression; raises UnsupportedError."""
    expr = promoted(expr)
    kind = type(expr).__name__
    rule = _RULES.get(kind)
    if rule is not None:
        return rule(scope, expr)
    if kind in _BINARY:
        return _op(scope, _BINARY[kind], (expr.a, expr.b), expr.dtype)
    return scope.refuse(f"expression {kind}")


def buffer_of(scope: Scope, tir: Any) -> Buffer:  # noqa: ANN401
    """The tile IR's buffer for a buffer of TIR; a view is declared at its first use."""
    found = scope.known_buffer(tir)
    owner = None if found is not None else scope.owner(tir)
    if found is not None or owner is None:
        return found or scope.refuse(f"buffer {tir.name}", "is not allocated in the kernel")
    view = f"view {tir.name} of {owner.name}"
    scope.require(
        not owner.strides and is_row_major(tir), view, "has strides, which is not covered"
    )
    scope.require(is_zero(tir.elem_offset), view, "has an offset, which is not covered")
    shape = tuple(_extent(scope, extent) for extent in tir.shape)
    dtype = scope.dtype(tir.dtype, str(tir.name))
    if (owner.dtype, owner.shape[1:]) == (dtype, shape):
        return scope.bind_first_version(tir, owner)
    if owner.name in scope.position.own:
        shape = (*scope.position.extents, *shape)
    return scope.bind_view(tir, dtype, shape, owner)


def is_row_major(tir: Any) -> bool:  # noqa: ANN401
    """Whether the strides of ``tir`` follow from its shape."""
    analyzer = tvm.arith.Analyzer()
    expected: Any = 1
    for extent, stride in zip(reversed(tir.shape), reversed(tir.strides), strict=False):
        if not analyzer.can_prove_equal(stride, expected):
            return False
        expected = extent * expected
    return True


def is_region(expr: Any) -> bool:  # noqa: ANN401
    """Whether ``expr`` is a box of a buffer, not a number."""
    return type(expr).__name__ == "BufferRegion" or call_name(expr) == "tl.region"


def lower_region(scope: Scope, call: Any) -> Region:  # noqa: ANN401
    """The box of a ``tl.region`` call or a plain load, in the thread's own box if each thread has one."""
    match type(call).__name__:
        case "Call" if call_name(call) == "tl.region":
            load, _, *extents = list(call.args)
            tir, indices = load.buffer, load.indices
        case "BufferLoad":
            tir, indices = call.buffer, call.indices
            extents = [tvm.tirx.IntImm("int32", 1)] * len(indices)
        case "BufferRegion":
            tir, indices = call.buffer, [item.min for item in call.region]
            extents = [item.extent for item in call.region]
        case kind:
            return scope.refuse(f"{kind} in place of a region")
    buffer = buffer_of(scope, tir)
    starts = tuple(lower_expr(scope, index) for index in indices)
    scope.require(
        len(extents) == len(starts),
        f"region of {buffer.name}",
        "has another rank than its buffer, which is not covered",
    )
    sizes = tuple(_extent(scope, extent) for extent in extents)
    placed = scope.place(buffer, starts)
    ones = (Const(1, "int32"),) * (len(placed) - len(starts))
    return Region(buffer.name, placed, (*ones, *sizes))


def _extent(scope: Scope, expr: Any) -> Expr:  # noqa: ANN401
    """An extent, as a constant if the bound variables prove that it is one."""
    return lower_expr(scope, scope.simplify(expr))


def lower_pointer(scope: Scope, call: Any) -> Load:  # noqa: ANN401
    """The element whose address ``tl.access_ptr`` or ``address_of`` returns."""
    name = call_name(call)
    what = name or type(call).__name__
    scope.require(name in POINTERS, what, "in place of a pointer is not covered")
    load = call.args[0]
    scope.require(is_load(load), f"pointer to {type(load).__name__}")
    buffer = buffer_of(scope, load.buffer)
    indices = tuple(lower_expr(scope, index) for index in load.indices)
    return Load(buffer.name, scope.place(buffer, indices), buffer.dtype)


def _op(scope: Scope, name: str, args: Any, dtype: object) -> Expr:  # noqa: ANN401
    if name not in ("select", "and", "or"):
        return Op(name, tuple(lower_expr(scope, arg) for arg in args), scope.dtype(dtype, name))
    first, *rest = args
    chosen = constant_of(first) if name == "select" else None
    if chosen is not None:
        return lower_expr(scope, rest[not chosen])
    cond = lower_expr(scope, first)
    with scope.conditionally():
        return Op(name, (cond, *(lower_expr(scope, arg) for arg in rest)), scope.dtype(dtype, name))


def _variable(scope: Scope, expr: Any) -> Expr:  # noqa: ANN401
    value = scope.deferred(expr)
    return scope.var(expr) if value is None else lower_expr(scope, value)


def _int(scope: Scope, expr: Any) -> Expr:  # noqa: ANN401
    dtype = scope.dtype(expr.dtype, "literal")
    return Const(bool(expr.value) if dtype == "bool" else int(expr.value), dtype)


def _float(scope: Scope, expr: Any) -> Expr:  # noqa: ANN401
    dtype = scope.dtype(expr.dtype, "literal")
    value = float(expr.value)
    return Op("nan", (), dtype) if math.isnan(value) else Const(value, dtype)


def _load(scope: Scope, expr: Any) -> Expr:  # noqa: ANN401
    buffer = buffer_of(scope, expr.buffer)
    scope.require(expr.predicate is None, f"predicated load of {buffer.name}")
    indices = tuple(lower_expr(scope, index) for index in expr.indices)
    place = scope.place(buffer, indices, is_read=True)
    scope.on_load(buffer.name)
    return Load(buffer.name, place, scope.dtype(expr.dtype, buffer.name))


def _divide(what: str, names: tuple[str, str], scope: Scope, expr: Any) -> Expr:  # noqa: ANN401
    """``names`` are the operation's names for floats and for integers."""
    name = names[not is_float(scope.dtype(expr.dtype, what))]
    return _op(scope, name, (expr.a, expr.b), expr.dtype)


def _multiply(scope: Scope, expr: Any) -> Expr:  # noqa: ANN401
    """A product; ``-inf``, which TileLang writes as a product, becomes a literal."""
    product = _op(scope, "mul", (expr.a, expr.b), expr.dtype)
    match product:
        case Op(args=(Const(value=math.inf, dtype=dtype), Const(value=-1.0))):
            return Const(-math.inf, dtype)
        case _:
            return product


def _call(scope: Scope, expr: Any) -> Expr:  # noqa: ANN401
    name = str(getattr(expr.op, "name", None) or expr.op)
    if name in _INTRINSICS:
        scope.require(
            not dict(expr.annotations), f"{name} with {', '.join(map(str, expr.annotations))}"
        )
        if name.startswith("tl.__"):
            scope.lose(name.removeprefix("tl."))
        return _op(scope, _INTRINSICS[name], expr.args, expr.dtype)
    if name in _FUNCTIONS:
        if name in _LOST_FUNCTIONS or name.startswith("tl.ieee_"):
            scope.lose(name.removeprefix("tl."))
        of_floats, make = _FUNCTIONS[name]
        dtype = scope.dtype(expr.dtype, name)
        arguments = [lower_expr(scope, arg) for arg in _numbers(scope, name, expr.args)]
        is_taken = is_float(dtype) or not of_floats
        scope.require(is_taken, of_floats, f"does not take {dtype}")
        return make(scope, dtype, arguments)
    rule = _CALLS.get(name)
    if rule is not None:
        return rule(scope, expr)
    return scope.refuse(f"call_extern {extern_name(expr)}" if extern_name(expr) else name)


def _large_number(scope: Scope, expr: Any) -> Expr:  # noqa: ANN401
    low, high = (int(half.value) for half in expr.args)
    return Const(high << 32 | low, scope.dtype(expr.dtype, "tirx.large_uint_imm"))


def _atomic(kind: AtomicKind, scope: Scope, expr: Any) -> Expr:  # noqa: ANN401
    """An update that returns the old content: it runs before the statement, and binds that content."""
    place = lower_pointer(scope, expr.args[0])
    value = lower_as(scope, expr.args[1], place.dtype)
    old = Var(scope.names.take("old"), place.dtype)
    what = f"atomic {kind}"
    scope.hoist([Atomic(place.buffer, place.indices, value, kind, old)], what, has_effects=True)
    return old


def _atomic_load(scope: Scope, expr: Any) -> Expr:  # noqa: ANN401
    scope.require(
        not scope.in_while,
        "atomic_load",
        "in a while loop, which waits for another block, is not covered",
    )
    return lower_pointer(scope, expr.args[0])


def _element(scope: Scope, expr: Any) -> Expr:  # noqa: ANN401
    arg = expr.args[0]
    return lower_expr(scope, arg) if is_load(arg) else lower_pointer(scope, arg)


def _any_or_all(scope: Scope, expr: Any) -> Expr:  # noqa: ANN401
    place, count = lower_pointer(scope, expr.args[0]), lower_expr(scope, expr.args[1])
    shape = scope.named(place.buffer).shape
    sizes = [int(extent.value) for extent in shape if isinstance(extent, Const)]
    is_all = len(sizes) == len(shape) and count == Const(math.prod(sizes), count.dtype)
    is_whole = is_all and all(isinstance(i, Const) and i.value == 0 for i in place.indices)
    extents = shape if is_whole else (*(Const(1, "int32") for _ in place.indices[1:]), count)
    name: Literal["any", "all"] = "any" if expr.op.name == "tl.any_of" else "all"
    stmts, folded = any_or_all(scope, name, Region(place.buffer, place.indices, extents))
    found = Var(scope.names.take(f"is_{name}"), "bool")
    scope.hoist([*stmts, Let(found, folded)], f"{name}_of")
    return found


def lower_as(scope: Scope, expr: Any, dtype: str) -> Expr:  # noqa: ANN401
    """The tile IR's form of a scalar TIR expression, in ``dtype``."""
    return convert(lower_expr(scope, widened(expr, dtype)), dtype)


def _cast(scope: Scope, expr: Any) -> Expr:  # noqa: ANN401
    """A conversion; one with another rounding, or with infinities of 8 bits, is refused."""
    asked = {str(key) for key in expr.annotations or ()}
    dtype = scope.dtype(expr.dtype, "conversion")
    scope.require(
        not asked or (asked == {"sat"} and not dtype.startswith("float8")),
        f"cast to {dtype} with {', '.join(sorted(asked))}",
    )
    return Cast(lower_expr(scope, expr.value), dtype)


_RULES: dict[str, Callable[[Scope, Any], Expr]] = {
    "IntImm": _int,
    "FloatImm": _float,
    "Var": _variable,
    "SizeVar": _variable,
    "BufferLoad": _load,
    "Cast": _cast,
    "Div": partial(_divide, "quotient", ("div", "truncdiv")),
    "Mod": partial(_divide, "remainder", ("fmod", "truncmod")),
    "Mul": _multiply,
    "Not": lambda scope, expr: _op(scope, "not", (expr.a,), expr.dtype),
    "Select": lambda scope, expr: _op(
        scope, "select", (expr.condition, expr.true_value, expr.false_value), expr.dtype
    ),
    "Call": _call,
}
"""Lowering of each class of TIR expression that is more than an operation on two operands."""

_CALLS: dict[str, Callable[[Scope, Any], Expr]] = {
    "tirx.large_uint_imm": _large_number,
    "tirx.likely": lambda scope, expr: lower_expr(scope, expr.args[0]),
    "tl.__ldg": _element,
    "tl.atomic_load_elem_op": _atomic_load,
    "tl.atomic_add_ret_elem_op": partial(_atomic, "add"),
    "tl.atomic_max_ret_elem_op": partial(_atomic, "max"),
    "tl.atomic_min_ret_elem_op": partial(_atomic, "min"),
    "tl.any_of": _any_or_all,
    "tl.all_of": _any_or_all,
}
"""Lowering of calls that are neither operations of the tile IR nor made of them."""


Make = Callable[[Scope, str, list[Expr]], Expr]
"""Maps the dtype of the result and the arguments to an expression."""

_NEAREST = "rn"


def _numbers(scope: Scope, name: str, args: Sequence[Any]) -> list[Any]:
    """The arguments that are numbers; refused if one requests rounding other than to nearest."""
    found = [arg for arg in args if type(arg).__name__ != "StringImm"]
    if not name.startswith("tl.ieee_"):
        return found
    last = args[-1]
    if type(last).__name__ == "StringImm":
        scope.require(str(last.value) == _NEAREST, f"{name} with rounding {last.value}")
    return found


def _of(operation: str, _: Scope, dtype: str, args: list[Expr]) -> Expr:
    return Op(operation, tuple(args), dtype)


def _reciprocal(_: Scope, dtype: str, args: list[Expr]) -> Expr:
    return Op("div", (Const(1.0, dtype), args[0]), dtype)


def _reciprocal_root(_: Scope, dtype: str, args: list[Expr]) -> Expr:
    """Rounded once, unlike the quotient of a rounded root."""
    wide = Op("rsqrt", (Cast(args[0], "float64"),), "float64")
    return wide if dtype == "float64" else Cast(wide, dtype)


def _round_away(_: Scope, dtype: str, args: list[Expr]) -> Expr:
    """To the nearest whole number, and from the middle to the one farther from 0."""
    value = args[0]
    whole = Op("trunc", (value,), dtype)
    rest = Op("abs", (Op("sub", (value, whole), dtype),), dtype)
    is_far = Op("ge", (rest, Const(0.5, dtype)), "bool")
    next_one = Op("add", (whole, Op("copysign", (Const(1.0, dtype), value), dtype)), dtype)
    return Op("select", (is_far, next_one, whole), dtype)


def _clamp(_: Scope, dtype: str, args: list[Expr]) -> Expr:
    """``min(max(x, low), high)``, but NaN if any of the three is NaN."""
    value, low, high = args
    clamped: Expr = Op("min", (Op("max", (value, low), dtype), high), dtype)
    for part in (high, low, value):
        if is_float(dtype) and not isinstance(part, Const):
            clamped = Op("select", (Op("isnan", (part,), "bool"), part, clamped), dtype)
    return clamped


def _first_one(scope: Scope, dtype: str, args: list[Expr]) -> Expr:
    """The position of the lowest set bit, counted from 1; 0 if there is none."""
    value, kind = args[0], args[0].dtype
    scope.require(is_integer(kind), "__ffs", f"does not take {kind}")
    zero = Const(0, kind)
    below = Op("bitxor", (value, Op("sub", (value, Const(1, kind)), kind)), kind)
    found = Op("popcount", (below,), kind)
    return convert(Op("select", (Op("eq", (value, zero), "bool"), zero, found), kind), dtype)


def _scaled(_: Scope, dtype: str, args: list[Expr]) -> Expr:
    """``ldexp``; the tile IR has its exponent in the number's own type."""
    return Op("ldexp", (args[0], convert(args[1], dtype)), dtype)


_LOST_FUNCTIONS = frozenset({"tl.fast_rcp", "tl.__ffs", "tirx.clz"})
"""Functions of a GPU that a Program does by several operations."""

_FUNCTIONS: dict[str, tuple[str, Make]] = {
    "tl.infinity": ("infinity", lambda _, dtype, args: Const(math.inf, dtype)),
    "tirx.infinity": ("infinity", lambda _, dtype, args: Const(math.inf, dtype)),
    "tl.fast_rcp": ("a reciprocal", _reciprocal),
    "tl.ieee_frcp": ("a reciprocal", _reciprocal),
    "tl.ieee_add": ("add", partial(_of, "add")),
    "tl.ieee_sub": ("sub", partial(_of, "sub")),
    "tl.ieee_mul": ("mul", partial(_of, "mul")),
    "tl.ieee_fdiv": ("div", partial(_of, "div")),
    "tl.ieee_fmaf": ("fma", partial(_of, "fma")),
    "tl.ieee_fsqrt": ("sqrt", partial(_of, "sqrt")),
    "tl.ieee_frsqrt": ("ieee_frsqrt", _reciprocal_root),
    "tl.round_ties_away_from_zero": ("round", _round_away),
    "tl.clamp": ("", _clamp),
    "tirx.clz": ("", lambda _, dtype, args: convert(Op("clz", (args[0],), args[0].dtype), dtype)),
    "tirx.ldexp": ("", _scaled),
    "tl.__ffs": ("", _first_one),
}
"""The lowering of TVM's intrinsics; one for floats only has the name with which it refuses other types."""
