"""Operations on single elements. Imports TileLang: import this late."""

import operator
from collections.abc import Callable, Iterator
from typing import Any

import tilelang.language as T
from tests.differential.language.templates import (
    Operation,
    block,
    element,
    elements,
    operation,
    pairs,
)

_UNARY = """abs fabs ceil floor round nearbyint trunc sqrt rsqrt exp exp2 exp10 log log2 log10 log1p
sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh sigmoid erf isnan isinf isfinite
bitwise_not popcount clz fast_rcp ieee_frcp ieee_fsqrt ieee_frsqrt __exp __exp10 __log __log2 __log10
__sin __cos __tan __ffs"""
_BINARY = """min max pow fmod atan2 hypot copysign nextafter floordiv floormod truncdiv truncmod ceildiv cdiv
align_up bitwise_and bitwise_or bitwise_xor shift_left shift_right fmul ieee_add ieee_sub ieee_mul
ieee_fdiv"""
_SIGNS = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_OTHERS: dict[str, Callable[..., Any]] = {
    "fma": lambda x, y: T.fma(x, y, x),
    "ieee_fmaf": lambda x, y: T.ieee_fmaf(x, y, x),
    "clamp": lambda x, y: T.clamp(x, y, y),
    "if_then_else": lambda x, y: T.if_then_else(x == y, x, y),
    "Select": lambda x, y: T.Select(x == y, x, y),
    "likely": lambda x, y: T.if_then_else(T.likely(x == y), x, y),
}
_OF_ONE: dict[str, Callable[..., Any]] = {
    "ldexp": T.ldexp,
    "infinity": lambda x, _: T.infinity(x.dtype),
    "round, ties away from zero": lambda x, _: T.round(x, "ties-away-from-zero"),
    "max_value": lambda x, _: T.max_value(x.dtype),
    "min_value": lambda x, _: T.min_value(x.dtype),
    "__ldg": lambda x, _: getattr(T, "__ldg")(x),
    "index_to_coordinates": lambda x, i: x + T.cast(T.index_to_coordinates(i, (8, 8))[0], x.dtype),
}
TYPES = """bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 bfloat16 float32 float64
float8_e4m3fn float8_e5m2"""


def arithmetic() -> Iterator[Operation]:
    """Python's operators on elements, and conversions."""
    for sign, function in _SIGNS.items():
        yield operation(f"x {sign} y", elements, function, names="-")
    yield operation("-(x)", element, _unary(operator.neg), names="-")
    yield operation("~x", element, _unary(operator.invert), names="-")
    yield operation("cast, to each type in turn", element, _convert, names="cast")
    yield operation(
        "cast, to 8 bits, sat=False",
        element,
        lambda x, _: T.cast(T.cast(x, "float8_e5m2", sat=False), x.dtype),
        is_typed=False,
        said="sat",
    )
    yield operation(
        "cast, round=rz",
        element,
        lambda x, _: T.cast(T.cast(x, "float16", round="rz"), x.dtype),
        is_typed=False,
        said="round",
    )
    yield operation("reinterpret", element, _reinterpret)


def functions() -> Iterator[Operation]:
    """Functions of elements."""
    for name in _UNARY.split():
        yield operation(name, element, _unary(getattr(T, name)))
    for name in _BINARY.split():
        yield operation(name, elements, getattr(T, name))
    for name, body in _OTHERS.items():
        yield operation(name, elements, body)
    for name, body in _OF_ONE.items():
        yield operation(name, element, body)


def _unary(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, _: function(x)


def _convert(x: Any, _: object) -> Any:
    """From each type to the next, all of them and back."""
    value = x
    for name in TYPES.split():
        value = T.cast(value, name)
    return value


def _reinterpret(x: Any, _: object) -> Any:
    """The bits as an unsigned number, and back."""
    return T.reinterpret(T.reinterpret(x, f"uint{x.dtype.bits}"), x.dtype)


@T.macro
def _dot(A: Any, O: Any) -> None:
    a = T.alloc_local((4,), A.dtype)
    total = T.alloc_local((1,), "int32")
    for i in T.serial(4):
        a[i] = A[0, i]
    total[0] = 0
    T.dp4a(a, a, total)
    O[0, 0] = total[0]


_PAIRS: dict[str, Callable[..., Any]] = {
    **{name: getattr(T, name) for name in ("add2", "sub2", "mul2", "max2", "min2")},
    "fma2": lambda x, y: T.fma2(x, y, x),
    "abs2": lambda x, _: T.abs2(x),
}


def several() -> Iterator[Operation]:
    """Several numbers at once."""
    for name, body in _PAIRS.items():
        yield operation(name, pairs, body)
    yield operation("dp4a", block, lambda A, O: _dot(A, O), result="int32")
