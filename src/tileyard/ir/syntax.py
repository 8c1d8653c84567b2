"""Definitions shared by the printer and the reader of Program text; ``reader.py`` describes the language."""

import keyword
from collections.abc import Sequence
from typing import TypeGuard, get_args

import msgspec

from tileyard.ir.dtypes import is_float, is_integer
from tileyard.ir.meanings import OPS
from tileyard.ir.nodes import (
    Assert,
    Atomic,
    AtomicKind,
    Await,
    Break,
    Const,
    Expr,
    For,
    If,
    Issue,
    Let,
    Load,
    Print,
    Region,
    Roles,
    Stmt,
    Store,
    While,
)

PRECEDENCE = {
    "select": 1,
    "or": 2,
    "and": 3,
    "not": 4,
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge"), 5),
    "bitor": 6,
    "bitxor": 7,
    "bitand": 8,
    "shl": 9,
    "shr": 9,
    "add": 10,
    "sub": 10,
    **dict.fromkeys(("mul", "div", "floordiv", "floormod"), 11),
    "neg": 12,
    "bitnot": 12,
}
"""Precedence of the operations that have a symbol; calls and names bind tightest."""

PREFIX = 12
TIGHTEST = 13

ZERO = Const(0, "int32")
ONE = Const(1, "int32")

STATEMENTS = {
    str(kind.__struct_config__.tag): kind
    for kind in get_args(Stmt)
    if kind not in {Let, Store, Atomic, Print, Assert, For, If, While, Break, Roles, Await, Issue}
}
"""The statements spelled as calls, by name: tile operations and synchronization."""

ATOMICS: dict[str, AtomicKind] = {f"atomic_{kind}": kind for kind in get_args(AtomicKind)}
"""The calls that update an element atomically."""

FIELDS = {name: msgspec.structs.fields(kind) for name, kind in STATEMENTS.items()}
"""The fields of each of ``STATEMENTS``, in order; all except those of ``OPERANDS`` are given by keyword."""

OPERANDS = (Region, Expr, Load)
"""Types of the fields that are given by position."""


def layout_indices(rank: int) -> tuple[str, ...]:
    """The names of the indices, and of the number of a copy, in the layout of a buffer of this rank."""
    return (*(f"i{number}" for number in range(rank)), "copy")


def describe_outside(
    name: str,
    starts: Sequence[int | None],
    extents: Sequence[int | None],
    shape: Sequence[int | None],
) -> str:
    """The sentence for a box that is outside of a tile; None is a number that is not known."""
    bounds = ", ".join(
        "..."
        if start is None or extent is None
        else str(start)
        if extent == 1
        else f"{start}:{start + extent}"
        for start, extent in zip(starts, extents, strict=True)
    )
    sizes = ", ".join("..." if size is None else str(size) for size in shape)
    return f"out of bounds: {name}[{bounds}] is outside of {name}'s shape ({sizes})"


def is_name(name: str) -> bool:
    """Whether ``name`` can name a variable, a buffer or a kernel."""
    return name.isidentifier() and not keyword.iskeyword(name) and name != "inf"


def is_literal(expr: Expr) -> bool:
    """Whether ``expr`` is printed as a number whose dtype follows from its neighbours."""
    return isinstance(expr, Const) and expr.dtype != "bool"


def literal_dtype(is_float_literal: bool, hint: str | None) -> str:
    """The dtype of a bare number: the hinted one if its kind agrees, else 32 bits."""
    if is_float_literal:
        return hint if hint is not None and is_float(hint) else "float32"
    return hint if hint is not None and is_integer(hint) else "int32"


def operands(name: str, args: Sequence[object]) -> range:
    """The arguments of an operation that share its dtype: all but the condition."""
    return range(1 if name in OPS and OPS[name].condition else 0, len(args))


def outer_hint(name: str, hint: str | None) -> str | None:
    """The hint that an operation passes on from its context to its operands."""
    return hint if name in OPS and OPS[name].result == "same" else None


def result_dtype(name: str, dtypes: Sequence[str]) -> str | None:
    """The dtype of an operation on operands of ``dtypes``, None if it must be stated."""
    result = OPS[name].result if name in OPS else "given"
    if result == "bool":
        return "bool"
    return dtypes[0] if result == "same" and dtypes else None


def is_plain_loop(stmt: Stmt) -> TypeGuard[For]:
    """Whether ``stmt`` is a loop that can share a line with others of its kind."""
    return (
        isinstance(stmt, For)
        and stmt.kind != "pipelined"
        and stmt.var.dtype == "int32"
        and stmt.start == ZERO
        and stmt.stages == 0
        and not (stmt.order or stmt.stage or stmt.group)
        and isinstance(stmt.extent, Const)
    )
