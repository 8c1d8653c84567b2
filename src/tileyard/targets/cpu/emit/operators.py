"""C's operators, how tightly they bind, and conversions between scalar types."""

from typing import NamedTuple

from tileyard.ir.dtypes import find_dtype
from tileyard.targets.cpu.emit.scalars import SCALARS


class C(NamedTuple):
    """A C expression and how tightly its outermost operator binds."""

    text: str
    binds: int = 20

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
EXACT = frozenset({"abs", "floor", "ceil", "round", "trunc"})
"""Functions of floats whose result a narrow type that holds the argument holds too."""


def cast(text: str, source: str, target: str) -> str:
    """A value converted from one dtype to another; ``text`` binds as tightly as a call."""
    if source == target:
        return text
    a, b = SCALARS[source], SCALARS[target]
    kind_a, kind_b = find_dtype(source), find_dtype(target)
    if kind_b.kind == "bool":
        return f"({text} != 0)"
    if kind_b.is_float:
        if b.narrow:
            how = "saturate" if kind_b.bits == 8 else "round"
            number = text if a.value == "float" else _to_float(text, source)
            return f"ty_{how}_{b.narrow}({number})"
        return text if a.value == b.value else f"({b.value}){text}"
    if kind_a.is_float:
        return f"ty_truncate_{a.suffix}_{b.suffix}({text})"
    return f"({b.value}){text}"


def _to_float(text: str, source: str) -> str:
    """A number as a float, which narrower types then round as they round the number itself."""
    return f"ty_odd_f32({text})" if find_dtype(source).is_float else f"(float){text}"
