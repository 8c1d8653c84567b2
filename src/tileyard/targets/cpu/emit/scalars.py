"""Scalar types in C, in arrays, tiles and variables: literals, operators and conversions. Outside the user's
arrays and tiles for units, narrow floats are ``float`` with a value of the narrow type: each
computation rounds.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tileyard.ir import specs
from tileyard.ir.dtypes import find_dtype, is_float
from tileyard.ir.nodes import Const, ReduceKind
from tileyard.ir.tiles import identity


@dataclass(frozen=True, kw_only=True, slots=True)
class CScalar:
    """``memory`` is the C type in arrays, ``tile`` in tiles, ``value`` in variables. ``suffix`` is
    that of tile.h's functions on values, ``narrow`` that of its rounding and conversion, empty if
    memory is unconverted.
    """

    memory: str
    tile: str
    value: str
    suffix: str
    narrow: str = ""


def _plain(name: str, suffix: str) -> CScalar:
    return CScalar(memory=name, tile=name, value=name, suffix=suffix)


def _narrow(mark: str, memory: str) -> CScalar:
    return CScalar(memory=memory, tile="float", value="float", suffix="f32", narrow=mark)


SCALARS = {
    "bool": CScalar(memory="uint8_t", tile="uint8_t", value="int", suffix="i32"),
    **{f"int{bits}": _plain(f"int{bits}_t", f"i{bits}") for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": _plain(f"uint{bits}_t", f"u{bits}") for bits in (8, 16, 32, 64)},
    "float32": _plain("float", "f32"),
    "float64": _plain("double", "f64"),
    "float16": _narrow("f16", "uint16_t"),
    "bfloat16": _narrow("bf16", "uint16_t"),
    "float8_e4m3fn": _narrow("f8e4m3", "uint8_t"),
    "float8_e5m2": _narrow("f8e5m2", "uint8_t"),
    "tfloat32": _narrow("tf32", "float"),
}
"""Every scalar type, by TVM's name."""

C_BYTES = {
    "uint8_t": 1,
    "int8_t": 1,
    "uint16_t": 2,
    "int16_t": 2,
    "uint32_t": 4,
    "int32_t": 4,
    "float": 4,
    "uint64_t": 8,
    "int64_t": 8,
    "double": 8,
}
"""Bytes per C type of tiles."""


def literal(const: Const) -> str:
    """A C literal with exactly the value that ``const`` has in its dtype."""
    dtype = find_dtype(const.dtype)
    if dtype.kind == "bool":
        return "1" if const.value else "0"
    if dtype.is_float:
        with np.errstate(all="ignore"):  # values that are too large become infinities
            value = float(specs.literal(const))
        return _float_literal(value, "" if const.dtype == "float64" else "f")
    number = int(const.value)
    if dtype.name == "int64":
        return f"INT64_C({number})" if number > -(1 << 63) else "INT64_MIN"
    if dtype.name == "uint64":
        return f"UINT64_C({number})"
    if dtype.name == "int32" and number == -(1 << 31):
        return "INT32_MIN"
    return f"{number}u" if dtype.name == "uint32" else str(number)


def identity_literal(kind: ReduceKind, dtype: str) -> str:
    """The initial value of a reduction, in C."""
    start = identity(kind, dtype)
    return literal(Const(start.item() if hasattr(start, "item") else float(start), dtype))


def _float_literal(value: float, mark: str) -> str:
    if math.isnan(value):
        return "TY_NAN"
    if math.isinf(value):
        return "TY_INF" if value > 0 else "-TY_INF"
    digits = str(np.float32(value) if mark else value)
    return digits + mark if "." in digits or "e" in digits else f"{digits}.0{mark}"


# ---- operators ------------------------------------------------------------------------------------


CALL = 20


class C(NamedTuple):
    """A C expression and the precedence of its outermost operator."""

    text: str
    binds: int = CALL

    def inside(self, binds: int) -> str:
        """The text as an operand of an operator of precedence ``binds``, in parentheses if needed."""
        return self.text if self.binds >= binds else f"({self.text})"


PREFIX = 15
CAST = 14
TERNARY = 2
BINARY = {
    "add": ("+", 12),
    "sub": ("-", 12),
    "mul": ("*", 13),
    "div": ("/", 13),
    "lt": ("<", 10),
    "le": ("<=", 10),
    "gt": (">", 10),
    "ge": (">=", 10),
    "eq": ("==", 9),
    "ne": ("!=", 9),
    "bitand": ("&", 8),
    "bitxor": ("^", 7),
    "bitor": ("|", 6),
    "and": ("&&", 5),
    "or": ("||", 4),
}
DIVISIONS = {"floordiv": "/", "floormod": "%", "truncdiv": "/", "truncmod": "%"}
EXACT = frozenset({"abs", "floor", "ceil", "round", "trunc", "copysign"})
"""Functions of floats whose result is in every narrow type that contains the argument."""


_EXACT = {"tfloat32": 11, "float16": 11, "bfloat16": 8, "float8_e4m3fn": 4, "float8_e5m2": 3}
"""Bits of a narrow type's significand: it holds all integers of that many bits."""

_WIDER = {
    "float8_e4m3fn": frozenset({"float16", "bfloat16", "tfloat32"}),
    "float8_e5m2": frozenset({"float16", "bfloat16", "tfloat32"}),
    "float16": frozenset({"tfloat32"}),
    "bfloat16": frozenset({"tfloat32"}),
}
"""Narrow types that contain every number of a narrower one."""


def cast(text: str, source: str, target: str, widest: int = 64) -> str:
    """A value converted to another dtype; ``text`` binds as tightly as a call. ``widest`` is the
    most bits that an integer needs, without its sign.
    """
    number, rounding = unrounded_cast(text, source, target, widest)
    return f"ty_round_{rounding}({number})" if rounding else number


def unrounded_cast(text: str, source: str, target: str, widest: int = 64) -> tuple[str, str]:
    """As ``cast`` without the final rounding, and the narrow type to round to."""
    if source == target:
        return text, ""
    a, b = SCALARS[source], SCALARS[target]
    kind_a, kind_b = find_dtype(source), find_dtype(target)
    if kind_b.kind == "bool":
        return f"({text} != 0)", ""
    if kind_b.is_float:
        if not b.narrow:
            return (text if a.value == b.value else f"({b.value}){text}"), ""
        number = text
        if a.value != "float":  # a float, which narrower types round like the number itself
            number = f"ty_odd_f32({text})" if kind_a.is_float else f"(float){text}"
        if _is_exact(source, target, widest):
            return number, ""
        if target in SATURATED:
            number = f"ty_clip_f32({number}, {SATURATED[target]})"
        return number, b.narrow
    if kind_a.is_float:
        return f"ty_truncate_{a.suffix}_{b.suffix}({text})", ""
    return f"({b.value}){text}", ""


def from_bits(word: str, dtype: str) -> str:
    """The value of ``dtype``, not a bool, whose bits an unsigned integer holds."""
    scalar = SCALARS[dtype]
    if scalar.narrow:
        return f"ty_from_{scalar.narrow}({word})"
    return f"ty_from_bits_{scalar.suffix}({word})" if is_float(dtype) else f"({scalar.value}){word}"


def _is_exact(source: str, target: str, widest: int) -> bool:
    """Whether the narrow target contains every possible value of the source."""
    kind = find_dtype(source)
    if kind.is_float:
        return target in _WIDER.get(source, frozenset())
    bits = 1 if kind.kind == "bool" else kind.bits - (kind.kind == "int")
    return min(widest, bits) <= _EXACT[target]


SATURATED = {"float8_e4m3fn": "448.0f", "float8_e5m2": "57344.0f"}
"""The result of a conversion to eight bits for anything larger."""
