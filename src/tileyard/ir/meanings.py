"""Defines each scalar operation and conversion: the living definition that targets are tested
against. Arithmetic is rounded once, to its dtype. Functions such as ``exp`` are float64's, rounded:
targets may differ in the last places. Integers wrap; division by zero and a shift by a count
outside the word are the kernel's faults.
"""

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tileyard.base.errors import KernelFault
from tileyard.ir.dtypes import DTYPES, TENSOR_FLOAT, DType, find_dtype, name_of
from tileyard.ir.nodes import Expr, Op

Array = NDArray[np.generic]
_SATURATING = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}
"""Types in which larger values, infinities included, become the largest value."""
_HALF = 1 << 12
"""Half of the last significant bit of a tensor float."""
Meaning = Callable[..., Any]
"""Maps the arguments, NumPy scalars of one dtype, to a NumPy scalar of the same dtype."""
_FAR = 10000
"""An exponent outside the range of every type."""
_DOUBLE = 8
Accepts = Literal["any", "number", "float", "wide", "integer", "bits", "bool"]
Result = Literal["same", "bool", "given"]
_INFIX: tuple[tuple[str, str, Accepts], ...] = (
    ("add", "+", "number"),
    ("sub", "-", "number"),
    ("mul", "*", "number"),
    ("div", "/", "float"),
    ("floordiv", "//", "integer"),
    ("floormod", "%", "integer"),
    ("and", "and", "bool"),
    ("or", "or", "bool"),
    ("bitand", "&", "bits"),
    ("bitor", "|", "bits"),
    ("bitxor", "^", "bits"),
    ("shl", "<<", "integer"),
    ("shr", ">>", "integer"),
)
_COMPARISONS: tuple[tuple[str, str, Accepts], ...] = (
    ("eq", "==", "any"),
    ("ne", "!=", "any"),
    ("lt", "<", "number"),
    ("le", "<=", "number"),
    ("gt", ">", "number"),
    ("ge", ">=", "number"),
)
_FUNCTIONS = [
    "exp",
    "exp2",
    "exp10",
    "log",
    "log2",
    "log10",
    "log1p",
    "sqrt",
    "rsqrt",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "sigmoid",
    "erf",
    "floor",
    "ceil",
    "round",
    "trunc",
]
"""Functions of one float."""
_OF_TENSOR_FLOATS = frozenset(
    {
        "select",
        "add",
        "sub",
        "mul",
        "div",
        "neg",
        "abs",
        "min",
        "max",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
    }
)
"""Operations defined on tensor floats: the operation on floats, rounded as in a conversion."""
_KINDS: dict[Accepts, frozenset[str]] = {
    "any": frozenset({"bool", "int", "uint", "float"}),
    "number": frozenset({"int", "uint", "float"}),
    "float": frozenset({"float"}),
    "wide": frozenset({"float"}),
    "integer": frozenset({"int", "uint"}),
    "bits": frozenset({"bool", "int", "uint"}),
    "bool": frozenset({"bool"}),
}


def convert(values: Array, to: str) -> Array:
    """``values`` converted to dtype ``to``; always a new array. Floats round to nearest even,
    tensor floats half away from zero; in eight bits, numbers of every kind saturate. Floats are
    truncated to integers, or to the range's nearest end; NaN becomes 0. Integers wrap.
    """
    if to == TENSOR_FLOAT:
        return _round_tensor_float(convert(values, "float32"))
    target, source = find_dtype(to), find_dtype(name_of(values.dtype))
    if target.kind == "bool":
        return np.asarray(values != values.dtype.type(0))
    if target.is_float and (source.is_float or target.name in _SATURATING):
        return _round(values, target)
    if not source.is_float:
        return values.astype(target.numpy)
    return _truncate(values.astype(np.float64), target)


def _round_tensor_float(values: Array) -> Array:
    """Floats rounded to 10 bits of their significand as on GPUs: half away from zero."""
    bits = np.asarray(values).view(np.uint32)
    up = np.where(np.isfinite(values.astype(np.float64)), bits + np.uint32(_HALF), bits)
    return cut_tensor_float(
        np.where(np.isnan(values.astype(np.float64)), np.float32(np.nan), up.view(np.float32))
    )


def cut_tensor_float(values: Array) -> Array:
    """The content of an array of tensor floats without the bits that do not count."""
    cut = values.view(np.uint32) & np.uint32(~(2 * _HALF - 1) & 0xFFFFFFFF)
    return cut.view(np.float32)


def _round(values: Array, target: DType) -> Array:
    limit = _SATURATING.get(target.name)
    if limit is None or values.dtype == target.numpy:
        return values.astype(target.numpy)
    wide = values.astype(np.float64)
    return np.clip(wide, -limit, limit).astype(np.float32).astype(target.numpy)


def _truncate(values: NDArray[np.float64], target: DType) -> Array:
    least, greatest = target.range
    whole = np.trunc(np.nan_to_num(values, nan=0.0, posinf=np.inf, neginf=-np.inf))
    low, high = whole <= float(least), whole >= float(greatest)
    inside = np.where(low | high, 0.0, whole).astype(target.numpy)
    limited: Array = np.where(low, least, np.where(high, greatest, inside))
    return limited.astype(target.numpy)


def convert_one(value: np.generic, to: str) -> Any:  # noqa: ANN401 (a NumPy scalar)
    """``value`` converted to dtype ``to``."""
    return convert(np.asarray(value), to)[()]


def _rounded(function: Callable[..., Any]) -> Meaning:
    """``function`` on float64 numbers, its result rounded to the arguments' dtype."""

    def meaning(*args: np.generic) -> Any:  # noqa: ANN401 (a NumPy scalar of the same dtype)
        wide = [np.float64(arg) for arg in args]
        return args[0].dtype.type(function(*wide))

    return meaning


def _wrapped(function: Callable[[int, int], int]) -> Meaning:
    """``function`` on integers, the second of which is not 0, its result wrapped."""

    def meaning(left: np.generic, right: np.generic) -> Any:  # noqa: ANN401
        a, b = int(left), int(right)
        if b == 0:
            raise KernelFault("an integer is divided by zero")
        return _wrap(function(a, b), left.dtype)

    return meaning


def _wrap(value: int, dtype: "np.dtype[np.generic]") -> Any:  # noqa: ANN401
    try:
        return dtype.type(value)
    except OverflowError:
        return np.uint64(value & ((1 << 64) - 1)).astype(dtype)


def _shifted(function: Callable[[int, int], int]) -> Meaning:
    def meaning(left: np.generic, right: np.generic) -> Any:  # noqa: ANN401
        bits, count = left.dtype.itemsize * 8, int(right)
        if not 0 <= count < bits:
            raise KernelFault(f"an integer of {bits} bits is shifted by {count}")
        return _wrap(function(int(left), count), left.dtype)

    return meaning


def _of_bits(function: Callable[[int], int]) -> Meaning:
    """``function`` on the bits of an integer as an unsigned number."""

    def meaning(value: np.generic) -> Any:  # noqa: ANN401
        mask = (1 << (value.dtype.itemsize * 8)) - 1
        return value.dtype.type(function(int(value) & mask))

    return meaning


def _scaled(value: np.generic, exponent: Any) -> Any:  # noqa: ANN401
    """``value`` times 2 to the power of ``exponent``, whose fraction is dropped."""
    power = 0 if exponent != exponent else int(np.clip(exponent, -_FAR, _FAR))
    return np.ldexp(value, power)


def _fused(left: np.generic, right: np.generic, addend: np.generic) -> Any:  # noqa: ANN401
    """``left * right + addend``, rounded once."""
    a, b, c = (np.float64(part) for part in (left, right, addend))
    if not (np.isfinite(a) and np.isfinite(b) and np.isfinite(c)) or a == 0 or b == 0:
        return left.dtype.type(a * b + c)
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    if exact == 0:
        return left.dtype.type(0)
    try:
        near = float(exact)
    except OverflowError:
        near = math.copysign(math.inf, exact)
    if left.dtype.itemsize == _DOUBLE or math.isinf(near) or Fraction(near) == exact:
        return left.dtype.type(near)
    # An odd last bit marks an inexact result, for a later rounding to fewer bits.
    if struct.pack("<d", near)[0] % 2 == 0:
        near = math.nextafter(near, math.inf if exact > near else -math.inf)
    return left.dtype.type(near)


def _truncdiv(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


MEANINGS: dict[str, Meaning] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "floordiv": _wrapped(lambda a, b: a // b),
    "floormod": _wrapped(lambda a, b: a % b),
    "truncdiv": _wrapped(_truncdiv),
    "truncmod": _wrapped(lambda a, b: a - b * _truncdiv(a, b)),
    "min": lambda a, b: b if b < a or a != a else a,
    "max": lambda a, b: b if b > a or a != a else a,
    "neg": lambda a: -a,
    "abs": np.abs,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "not": np.logical_not,
    "bitand": lambda a, b: a & b,
    "bitor": lambda a, b: a | b,
    "bitxor": lambda a, b: a ^ b,
    "bitnot": lambda a: ~a,
    "shl": _shifted(lambda a, count: a << count),
    "shr": _shifted(lambda a, count: a >> count),
    "exp": _rounded(np.exp),
    "exp2": _rounded(np.exp2),
    "exp10": _rounded(lambda x: np.power(10.0, x)),
    "log": _rounded(np.log),
    "log2": _rounded(np.log2),
    "log10": _rounded(np.log10),
    "log1p": _rounded(np.log1p),
    "sqrt": _rounded(np.sqrt),
    "rsqrt": _rounded(lambda x: 1.0 / np.sqrt(x)),
    "tanh": _rounded(np.tanh),
    "sin": _rounded(np.sin),
    "cos": _rounded(np.cos),
    "tan": _rounded(np.tan),
    "asin": _rounded(np.arcsin),
    "acos": _rounded(np.arccos),
    "atan": _rounded(np.arctan),
    "sinh": _rounded(np.sinh),
    "cosh": _rounded(np.cosh),
    "asinh": _rounded(np.arcsinh),
    "acosh": _rounded(np.arccosh),
    "atanh": _rounded(np.arctanh),
    "sigmoid": _rounded(lambda x: 1.0 / (1.0 + np.exp(-x))),
    "erf": _rounded(math.erf),
    "pow": _rounded(np.power),
    "fmod": _rounded(np.fmod),
    "atan2": _rounded(np.arctan2),
    "hypot": _rounded(np.hypot),
    "copysign": _rounded(np.copysign),
    "nextafter": np.nextafter,
    "ldexp": _scaled,
    "fma": _fused,
    "popcount": _of_bits(int.bit_count),
    "clz": lambda a: _of_bits(lambda bits: a.dtype.itemsize * 8 - bits.bit_length())(a),
    "floor": _rounded(np.floor),
    "ceil": _rounded(np.ceil),
    "round": _rounded(np.rint),
    "trunc": _rounded(np.trunc),
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
}
"""The meaning of every operation except those that do not evaluate all arguments, or state their type.

``round`` rounds half to even. ``min`` and ``max`` ignore one NaN. ``fmod`` has the sign of its first
argument, ``floormod`` that of its second. ``popcount`` counts the ones, ``clz`` the leading zeros.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Operation:
    """One row. ``symbol`` is the infix or prefix spelling in text; without one it is a call.
    ``accepts`` is the arguments' class of dtypes: ``number`` is any but bool, ``bits`` an integer
    or bool, ``wide`` a float of at least 32 bits. With ``condition`` the first argument is a bool.
    ``result`` is the arguments' dtype, ``bool``, or ``given``, stated by the Op.
    """

    name: str
    arity: int
    accepts: Accepts
    result: Result = "same"
    symbol: str = ""
    condition: bool = False


_ROWS = (
    Operation(name="select", arity=3, accepts="any", condition=True),
    Operation(name="pow", arity=2, accepts="float"),
    Operation(name="fmod", arity=2, accepts="float"),
    Operation(name="atan2", arity=2, accepts="float"),
    Operation(name="hypot", arity=2, accepts="float"),
    Operation(name="copysign", arity=2, accepts="float"),
    Operation(name="nextafter", arity=2, accepts="wide"),
    Operation(name="ldexp", arity=2, accepts="wide"),
    Operation(name="fma", arity=3, accepts="float"),
    Operation(name="popcount", arity=1, accepts="integer"),
    Operation(name="clz", arity=1, accepts="integer"),
    Operation(name="min", arity=2, accepts="number"),
    Operation(name="max", arity=2, accepts="number"),
    Operation(name="truncdiv", arity=2, accepts="integer"),
    Operation(name="truncmod", arity=2, accepts="integer"),
    Operation(name="abs", arity=1, accepts="number"),
    Operation(name="nan", arity=0, accepts="float", result="given"),
    Operation(name="reinterpret", arity=1, accepts="any", result="given"),
    Operation(name="neg", arity=1, accepts="number", symbol="-"),
    Operation(name="not", arity=1, accepts="bool", symbol="not"),
    Operation(name="bitnot", arity=1, accepts="bits", symbol="~"),
    *(Operation(name=n, arity=2, accepts=a, symbol=s) for n, s, a in _INFIX),
    *(Operation(name=n, arity=2, accepts=a, result="bool", symbol=s) for n, s, a in _COMPARISONS),
    *(Operation(name=n, arity=1, accepts="float") for n in _FUNCTIONS),
    *(
        Operation(name=n, arity=1, accepts="float", result="bool")
        for n in ("isnan", "isinf", "isfinite")
    ),
)

OPS = {row.name: row for row in _ROWS}
"""Every scalar operation, by name."""


def _accepts(accepts: Accepts, dtype: DType) -> bool:
    is_wide = dtype.bits >= 32 or accepts != "wide"
    return is_wide and dtype.kind in _KINDS[accepts]


def explain_misuse(op: Op) -> str:
    """What is wrong by the table with ``op``, its arguments' dtypes known, in a line; empty if legal."""
    row = OPS.get(op.name)
    if row is None:
        return f"{op.name} is not a scalar operation"
    if len(op.args) != row.arity:
        return f"{op.name} takes {row.arity} arguments, not {len(op.args)}"
    operands: tuple[Expr, ...] = op.args
    if row.condition:
        if operands[0].dtype != "bool":
            return f"the condition of {op.name} is {operands[0].dtype}, not bool"
        operands = operands[1:]
    dtypes = [operand.dtype for operand in operands] or [op.dtype]
    if any(dtype != dtypes[0] for dtype in dtypes):
        return f"{op.name} has arguments of different types: {', '.join(dtypes)}"
    if TENSOR_FLOAT in (dtypes[0], op.dtype) and op.name not in _OF_TENSOR_FLOATS:
        return f"{op.name} of {TENSOR_FLOAT}, which only arithmetic, gemms and conversions take"
    if not _accepts(row.accepts, DTYPES[dtypes[0]]):
        return f"{op.name} does not take {dtypes[0]}"
    return _explain_result(op, row, dtypes[0])


def _explain_result(op: Op, row: Operation, argument: str) -> str:
    if row.result == "given":
        if op.name == "reinterpret" and DTYPES[argument].bits != DTYPES[op.dtype].bits:
            return f"reinterpret changes the width: {argument} to {op.dtype}"
        return ""
    want = "bool" if row.result == "bool" else argument
    return "" if op.dtype == want else f"{op.name} of {argument} gives {want}, not {op.dtype}"
