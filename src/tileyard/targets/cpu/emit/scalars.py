"""How each scalar type lives in C: in arrays, in tiles, in variables; and its literals.

Narrow floats are kept in ``float`` outside the user's arrays, always as a value that they can hold:
whoever computes one rounds it.
"""

import math
from dataclasses import dataclass

import numpy as np

from tileyard.ir import specs
from tileyard.ir.dtypes import find_dtype
from tileyard.ir.nodes import Const


@dataclass(frozen=True, kw_only=True, slots=True)
class CScalar:
    """``memory`` is the C type in arrays, ``tile`` in tiles, ``value`` in variables.

    ``suffix`` is that of tile.h's functions on values; ``narrow`` that of its rounding and
    conversion functions, empty where memory holds values as they are.
    """

    memory: str
    tile: str
    value: str
    suffix: str
    narrow: str = ""


def _table() -> dict[str, CScalar]:
    table = {"bool": CScalar(memory="uint8_t", tile="uint8_t", value="int", suffix="i32")}
    for bits in (8, 16, 32, 64):
        for kind, mark in (("int", "i"), ("uint", "u")):
            name = f"{kind}{bits}_t"
            table[f"{kind}{bits}"] = CScalar(
                memory=name, tile=name, value=name, suffix=f"{mark}{bits}"
            )
    for dtype, name, suffix in (("float32", "float", "f32"), ("float64", "double", "f64")):
        table[dtype] = CScalar(memory=name, tile=name, value=name, suffix=suffix)
    narrow = (
        ("float16", "f16", "uint16_t"),
        ("bfloat16", "bf16", "uint16_t"),
        ("float8_e4m3fn", "f8e4m3", "uint8_t"),
        ("float8_e5m2", "f8e5m2", "uint8_t"),
        ("tfloat32", "tf32", "float"),
    )
    for dtype, mark, memory in narrow:
        table[dtype] = CScalar(
            memory=memory, tile="float", value="float", suffix="f32", narrow=mark
        )
    return table


SCALARS = _table()
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
"""The sizes of the C types that tiles are made of."""


def literal(const: Const) -> str:
    """A C literal with exactly the value that ``const`` has in its dtype."""
    dtype = find_dtype(const.dtype)
    if dtype.kind == "bool":
        return "1" if const.value else "0"
    if dtype.is_float:
        with np.errstate(all="ignore"):  # what is too large becomes an infinity
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


def _float_literal(value: float, mark: str) -> str:
    if math.isnan(value):
        return "TY_NAN"
    if math.isinf(value):
        return "TY_INF" if value > 0 else "-TY_INF"
    digits = str(np.float32(value) if mark else value)
    return digits + mark if "." in digits or "e" in digits else f"{digits}.0{mark}"
