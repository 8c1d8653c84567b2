"""Dot-product units of CPUs: instructions that add, to each lane of an accumulator, the products of two
16-bit or four 8-bit elements. Which products of tiles they compute, and how their operands are packed.

A word of 32 bits holds ``fold`` elements that are adjacent along k. Sums of integers are exact. Sums of
bfloat16, and of 8-bit floats as bfloat16, are in the unit's order: unless a partial sum overflows, they
differ from the exact sum by at most (k + 1) (2^-23 times the sum of the magnitudes + 2^-125), where the
magnitudes are those of the products and of the number that they are added to. AVX512-BF16 rounds after each
product, to the nearest. ARM's BFDOT adds the two products of a word, then the sum to the total, and rounds
both to odd: by less than 2^-23. Both take denormal numbers for zero, operands as well as results: tiles that
hold some are multiplied in plain C.
"""

from dataclasses import dataclass

from tileyard.targets.cpu.machine import Machine

WORD = "uint32_t"
"""The C type of a word of elements."""

_FLOATS = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
_BYTES = ("int8", "uint8")
_SUMS = ("int32", "uint32")
_SHIFT = 128
"""What a change of its highest bit adds to a byte that is read with, or without, a sign afterwards."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Packing:
    """How one operand is stored: elements of ``dtype``, ``fold`` in a word. If it ``is_checked``, a flag
    follows its elements: whether some are denormal. If it ``is_flipped``, bytes have the other sign.
    """

    dtype: str
    fold: int
    is_checked: bool = False
    is_flipped: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Unit:
    """A unit and what it multiplies. If it ``is_swapped``, the right operand is its first one.
    ``correction`` times the sum of a column of the right operand is added to the column's results.
    """

    name: str
    scalar: str
    left: Packing
    right: Packing
    is_swapped: bool = False
    correction: int = 0

    @property
    def fold(self) -> int:
        """Elements in a word."""
        return self.left.fold

    def dot(self, total: str, left: str, right: str) -> str:
        """The C statement that adds the products of vectors of words."""
        return f"TY_DOT_{self._call(total, left, right)}"

    def plain(self, total: str, left: str, right: str) -> str:
        """``dot`` in plain C, in the order of k."""
        return f"TY_PLAIN_{self._call(total, left, right)}"

    def _call(self, total: str, left: str, right: str) -> str:
        first, second = (right, left) if self.is_swapped else (left, right)
        return f"{self.name.upper()}({total}, {first}, {second});"

    @property
    def trust(self) -> str:
        """The C variable that says whether the unit has given the right answers in this process."""
        return f"ty_trusts_{self.name}"


def find_unit(machine: Machine, a: str, b: str, c: str) -> Unit | None:
    """The machine's unit for ``c += a @ b`` of these scalar types; None if none is exact enough."""
    if "bf16" in machine.units and c == "float32" and a in _FLOATS and b in _FLOATS:
        left, right = (
            Packing(dtype="bfloat16", fold=2, is_checked=kind == "bfloat16") for kind in (a, b)
        )
        return Unit(name="bf16", scalar="float", left=left, right=right)
    if c not in _SUMS or a not in _BYTES or b not in _BYTES:
        return None
    # "i8" multiplies bytes without signs by bytes with signs; the others multiply bytes of one kind.
    mixed, same = "i8", "s8" if b == "int8" else "u8"
    first, second = (same, mixed) if a == b else (mixed, same)
    name = first if first in machine.units else second
    if name not in machine.units:
        return None
    is_flipped = name == second
    return Unit(
        name=name,
        scalar=WORD,  # whose sums wrap
        left=Packing(dtype=a, fold=4, is_flipped=is_flipped),
        right=Packing(dtype=b, fold=4),
        is_swapped=name == mixed and b == "uint8",
        correction=0 if not is_flipped else -_SHIFT if a == "int8" else _SHIFT,
    )
