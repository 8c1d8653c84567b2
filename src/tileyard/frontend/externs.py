"""CUDA functions that kernels call by name, and the meanings of the known ones. A function in
imported CUDA text is known by its name and whole text without spaces and comments: those with which
TileLang's examples and BitBLAS unpack small numbers. All others are refused by name.
"""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tileyard.frontend.element_ops import element_after
from tileyard.frontend.expressions import lower_pointer
from tileyard.frontend.scope import Scope
from tileyard.frontend.tir_queries import extern_name
from tileyard.ir.dtypes import DTYPES
from tileyard.ir.nodes import Cast, Const, Expr, Let, Load, Op, Stmt, Store, Var
from tileyard.ir.walk import convert

_MARKS = "TL_IKET_"
"""Prefix of the names of instrumentation: it reports when something happens, and changes nothing."""


def is_mark(call: Any) -> bool:  # noqa: ANN401
    """Whether ``call`` is instrumentation, which has no effect on results."""
    return extern_name(call).startswith(_MARKS)


def lower_extern(scope: Scope, call: Any) -> tuple[Stmt, ...] | None:  # noqa: ANN401
    """The statements for a call of a known CUDA function; None for another call or an unknown function."""
    name = extern_name(call)
    known = KNOWN.get(name)
    if known is None or digest_function(scope.imported, name) != known.digest:
        return None
    source, target = (lower_pointer(scope, arg) for arg in list(call.args)[1:3])
    count = known.counts[-1]
    if len(call.args) > 3:
        if type(call.args[3]).__name__ != "IntImm" or len(call.args) > 4:
            return None
        count = int(call.args[3].value)
    scope.require(
        DTYPES[source.dtype].bits == 8 and target.dtype == known.target,
        f"call_extern {name}",
        f"of {source.dtype} and {target.dtype} is not covered",
    )
    scope.require(
        count in known.counts, f"call_extern {name}", f"of {count} numbers is not covered"
    )
    lets, values = known.unpack(scope, source, count)
    return (
        *lets,
        *(
            Store(target.buffer, element_after(target, place).indices, Cast(value, known.target))
            for place, value in values
        ),
    )


def digest_function(text: str, name: str) -> str:
    """A digest of the content of a function of CUDA text, and of all functions of that text that it calls."""
    functions = _functions(text)
    wanted, found = [name], {}
    while wanted:
        current = wanted.pop()
        if current in functions and current not in found:
            found[current] = functions[current]
            words = set(re.findall(r"\w+", functions[current]))
            wanted += [other for other in functions if other in words]
    said = "\n".join("".join(found[key].split()) for key in sorted(found))
    return hashlib.sha256(said.encode()).hexdigest()[:16] if name in found else ""


def _functions(text: str) -> dict[str, str]:
    """The functions that CUDA text defines, by name, each from its first word to its closing brace."""
    plain = re.sub(r"/\*.*?\*/", " ", re.sub(r"//[^\n]*", " ", text), flags=re.DOTALL)
    plain = re.sub(r"(?m)^\s*#pragma unroll.*$", "", plain)
    found: dict[str, str] = {}
    begin = 0
    for head in re.finditer(r"__device__[^;{}()]*?(\w+)\s*\(", plain):
        if head.start() < begin:
            continue
        depth, place = 0, plain.find("{", head.end())
        while place >= 0:
            depth += {"{": 1, "}": -1}.get(plain[place], 0)
            place += 1
            if depth == 0 or place == len(plain):
                break
        found[head.group(1)] = plain[begin:place]
        begin = place
    return found


# ---- meanings of the known functions ------------------------------------------------------------

Numbers = list[tuple[int, Expr]]
Unpack = Callable[[Scope, Load, int], tuple[list[Stmt], Numbers]]
"""From the first byte and the number of values to preparatory statements, and positions and values."""

Place = Callable[[int], tuple[int, int]]
_WORD = "uint32"


def _byte(first: Load, place: int) -> Expr:
    return convert(convert(element_after(first, place), "uint8"), _WORD)


def _bits(word: Expr, shift: int, mask: int) -> Expr:
    moved = Op("shr", (word, Const(shift, _WORD)), _WORD) if shift else word
    return Op("bitand", (moved, Const(mask, _WORD)), _WORD)


def _packed(bits: int, place: Place, offset: int, factor: int) -> Unpack:
    """Numbers of ``bits``, ``i`` at the byte and bit ``place`` gives; ``x`` means ``factor * x - offset``."""

    def unpack(_: Scope, first: Load, count: int) -> tuple[list[Stmt], Numbers]:
        found: Numbers = []
        for i in range(count):
            byte, shift = place(i)
            value: Expr = Cast(_bits(_byte(first, byte), shift, (1 << bits) - 1), "int32")
            if factor != 1:
                value = Op("mul", (value, Const(factor, "int32")), "int32")
            if offset:
                value = Op("sub", (value, Const(offset, "int32")), "int32")
            found.append((i, value))
        return [], found

    return unpack


def _twiddled_fp4(scope: Scope, first: Load, count: int) -> tuple[list[Stmt], Numbers]:
    """Groups of four bytes, the first on top of a word, hold eight numbers' bits (sign, two of
    exponent, one of fraction) where a GPU makes them bfloat16 with a shift and a mask.
    """
    lets: list[Stmt] = []
    found: Numbers = []
    for group in range(count):
        whole: Expr = Const(0, _WORD)
        for i in range(4):
            byte = Op("shl", (_byte(first, 4 * group + i), Const(24 - 8 * i, _WORD)), _WORD)
            whole = byte if i == 0 else Op("bitor", (whole, byte), _WORD)
        word = Var(scope.names.take("packed"), _WORD)
        lets.append(Let(word, whole))
        for number in range(8):
            low, j = (16, number) if number < 4 else (0, number - 4)  # the upper half is first
            shifted = [place + low - 3 * j for place in (15, 8, 7, 6)]
            spread = [place + low for place in (14, 11, 10, 13)]
            found.append((8 * group + number, _fp4(word, shifted if j < 3 else spread)))
    return lets, found


def _fp4(word: Expr, places: list[int]) -> Expr:
    """The number whose sign, exponent's two bits and fraction's bit are at these places of a word."""
    sign, high, low, fraction = (Cast(_bits(word, place, 1), "int32") for place in places)

    def op(name: str, *args: Expr) -> Expr:
        return Op(name, args, args[-1].dtype)

    zero, one, two = (Const(number, "int32") for number in range(3))
    exponent = op("add", op("mul", high, two), low)
    shift = op("max", op("sub", exponent, one), zero)
    normal = op("shl", op("add", fraction, two), shift)
    halves = op("select", Op("eq", (exponent, zero), "bool"), fraction, normal)
    value = op("mul", Cast(halves, "float32"), Const(0.5, "float32"))
    return op("select", Op("ne", (sign, zero), "bool"), op("neg", value), value)


@dataclass(frozen=True)
class _Function:
    """A known function: its text's digest, result type, what it does, for which ``counts``, by
    default the last.
    """

    digest: str
    target: str
    unpack: Unpack
    counts: range


def _halves(digest: str, bits: int, offset: int = 0, factor: int = 1) -> _Function:
    """Pairs of numbers that are adjacent in the two halves of a word, as float16."""
    places: dict[int, Place] = {
        1: lambda i: (0, i // 2 + 4 * (i % 2)),
        2: lambda i: (i % 2, 2 * (i // 2)),
        4: lambda i: (i // 4 + 2 * (i % 2), 4 * (i // 2 % 2)),
    }
    unpack = _packed(bits, places[bits], offset, factor)
    return _Function(digest, "float16", unpack, range(2, 9, 2))


def _bytes(digest: str, bits: int, offset: int = 0, factor: int = 1) -> _Function:
    """Groups of four numbers that are adjacent in the bytes of a word, as int8."""
    places: dict[int, Place] = {
        1: lambda i: (i % 2, i // 4 + 4 * (i // 2 % 2)),
        2: lambda i: (i % 4, 2 * (i // 4)),
        4: lambda i: (4 * (i // 8) + i % 4, 4 * (i // 4 % 2)),
    }
    unpack = _packed(bits, places[bits], offset, factor)
    return _Function(digest, "int8", unpack, range(16, 17) if bits == 4 else range(4, 17, 4))


KNOWN = {
    "decode_i1s_to_f16": _halves("bf1e5e8da286416b", 1, offset=1, factor=2),
    "decode_i1u_to_f16": _halves("210a7c424f26d5d7", 1),
    "decode_i2s_to_f16": _halves("888004620d97e2d0", 2, offset=2),
    "decode_i2u_to_f16": _halves("25a6727e9bda43ee", 2),
    "decode_i4s_to_f16": _halves("2e6ce0b99f726448", 4, offset=8),
    "decode_i4u_to_f16": _halves("a946467f5f485339", 4),
    "decode_i1s_to_i8s": _bytes("bb75ec4a5dedc64a", 1, offset=1, factor=2),
    "decode_i1u_to_i8s": _bytes("9ac20aac56194a7d", 1),
    "decode_i2s_to_i8s": _bytes("7cb4cba01cca1151", 2, offset=2),
    "decode_i2u_to_i8s": _bytes("93a1aa9e42f8e1ca", 2),
    "decode_i4s_to_i8s": _bytes("594c1e742d65ab0e", 4, offset=7),
    "decode_i4u_to_i8s": _bytes("97b9dba5a005f810", 4),
    "decode_fp4_to_bf16_twiddling": _Function(
        "11513dff89379b23", "bfloat16", _twiddled_fp4, range(1, 9)
    ),
}
"""The known functions, by name."""
