"""C's operators, how tightly they bind, and conversions between scalar types."""

from typing import NamedTuple

from tileyard.ir.dtypes import find_dtype
from tileyard.targets.cpu.emit.scalars import SCALARS

CALL = 20


class C(NamedTuple):
    """A C expression and how tightly its outermost operator binds."""

    text: str
    binds: int = CALL

    def inside(self, binds: int) -> str:
        """The text, in parentheses where an operator that binds so tightly stands beside it."""
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
"""Functions of floats whose result a narrow type that holds the argument holds too."""


_EXACT = {"tfloat32": 11, "float16": 11, "bfloat16": 8, "float8_e4m3fn": 4, "float8_e5m2": 3}
"""Bits of a narrow type's significand: it holds all whole numbers of so many bits."""

_WIDER = {
    "float8_e4m3fn": frozenset({"float16", "bfloat16", "tfloat32"}),
    "float8_e5m2": frozenset({"float16", "bfloat16", "tfloat32"}),
    "float16": frozenset({"tfloat32"}),
    "bfloat16": frozenset({"tfloat32"}),
}
"""Narrow types that hold every number of a narrower one."""


def cast(text: str, source: str, target: str, widest: int = 64) -> str:
    """A value converted from one dtype to another; ``text`` binds as tightly as a call.

    ``widest`` is how many bits an integer needs at most, its sign aside.
    """
    number, rounding = unrounded_cast(text, source, target, widest)
    return f"ty_round_{rounding}({number})" if rounding else number


def unrounded_cast(text: str, source: str, target: str, widest: int = 64) -> tuple[str, str]:
    """As ``cast``, but the last step left out: the narrow type to which the number is to be rounded."""
    if source == target:
        return text, ""
    a, b = SCALARS[source], SCALARS[target]
    kind_a, kind_b = find_dtype(source), find_dtype(target)
    if kind_b.kind == "bool":
        return f"({text} != 0)", ""
    if kind_b.is_float:
        if not b.narrow:
            return (text if a.value == b.value else f"({b.value}){text}"), ""
        number = text if a.value == "float" else _to_float(text, source)
        if _is_exact(source, target, widest):
            return number, ""
        if kind_b.bits == _EIGHT:
            number = f"ty_clip_f32({number}, {SATURATED[target]})"
        return number, b.narrow
    if kind_a.is_float:
        return f"ty_truncate_{a.suffix}_{b.suffix}({text})", ""
    return f"({b.value}){text}", ""


def _is_exact(source: str, target: str, widest: int) -> bool:
    """Whether every number that the source can be is one of the narrow target."""
    kind = find_dtype(source)
    if kind.is_float:
        return target in _WIDER.get(source, frozenset())
    bits = 1 if kind.kind == "bool" else kind.bits - (kind.kind == "int")
    return min(widest, bits) <= _EXACT[target]


_EIGHT = 8
SATURATED = {"float8_e4m3fn": "448.0f", "float8_e5m2": "57344.0f"}
"""What a conversion to eight bits holds instead of anything larger."""


def _to_float(text: str, source: str) -> str:
    """A number as a float, which narrower types then round as they round the number itself."""
    return f"ty_odd_f32({text})" if find_dtype(source).is_float else f"(float){text}"
