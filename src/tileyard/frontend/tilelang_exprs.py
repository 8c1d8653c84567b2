"""The spelling of a Program's expressions, regions and storage in TileLang."""

import math
from collections.abc import Sequence
from typing import assert_never

from tileyard.ir import syntax
from tileyard.ir.dtypes import is_float
from tileyard.ir.meanings import OPS
from tileyard.ir.nodes import Buffer, Cast, Const, Expr, Layout, Load, Op, Region, Var

MODULE = "T"
"""The name of TileLang's language in the written source."""

_FUNCTIONS = {
    **{
        name: name
        for name in [
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
            "trunc",
            "pow",
            "fmod",
            "atan2",
            "hypot",
            "copysign",
            "nextafter",
            "isnan",
            "isinf",
            "isfinite",
            "popcount",
            "abs",
            "min",
            "max",
            "truncdiv",
            "truncmod",
        ]
    },
    "round": "nearbyint",  # both round from the middle to the even number
    "select": "if_then_else",
}
"""TileLang's functions by Tileyard's operations."""


class InexpressibleError(Exception):
    """TileLang has no spelling for this operation."""


def expr(value: Expr, level: int = 0) -> str:
    """``value``, in parentheses if it binds less tightly than ``level``. Raises InexpressibleError."""
    match value:
        case Const():
            return _const(value, level)
        case Var():
            return value.name
        case Load():
            return f"{value.buffer}[{_indices(value.indices)}]"
        case Cast():
            return f'{MODULE}.cast({expr(value.value)}, "{value.dtype}")'
        case Op():
            return _op(value, level)
        case _:
            assert_never(value)


def _indices(values: Sequence[Expr]) -> str:
    return ", ".join(map(expr, values))


def _const(const: Const, level: int) -> str:
    """A number, with its type unless it is int32 or float32: otherwise TVM would widen its neighbour."""
    if const.dtype == "bool":
        return f"{MODULE}.bool({bool(const.value)})"
    if is_float(const.dtype) and math.isinf(const.value):
        text = f'{MODULE}.infinity("{const.dtype}")'
        return f"({text} * -1)" if const.value < 0 else text
    value = float(const.value) if is_float(const.dtype) else int(const.value)
    if syntax.literal_dtype(is_float(const.dtype), None) == const.dtype:
        is_tight = value < 0 and level > syntax.PRECEDENCE["add"]
        return f"({value!r})" if is_tight else repr(value)
    return _typed(const)


def _typed(const: Expr) -> str:
    value = const.value if isinstance(const, Const) else 0
    return f"{MODULE}.{const.dtype}({float(value) if is_float(const.dtype) else int(value)!r})"


def _op(op: Op, level: int) -> str:
    if op.name == "nan":
        return f'{MODULE}.{op.dtype}(float("nan"))'
    if op.name == "reinterpret":
        return f'{MODULE}.reinterpret({expr(op.args[0])}, "{op.dtype}")'
    if op.name == "fma":
        raise InexpressibleError(op.name)  # TileLang only has it for vectors
    if op.name in _FUNCTIONS:
        return f"{MODULE}.{_FUNCTIONS[op.name]}({', '.join(map(expr, op.args))})"
    if op.name not in syntax.PRECEDENCE:
        raise InexpressibleError(op.name)
    own = syntax.PRECEDENCE[op.name]
    symbol = OPS[op.name].symbol
    if op.name == "neg":  # TVM has none
        text, own = f"{expr(op.args[0], own)} * -1", syntax.PRECEDENCE["mul"]
    elif len(op.args) == 1:
        text = f"{symbol}{' ' if symbol.isalpha() else ''}{expr(op.args[0], own)}"
    else:
        is_comparison = own == syntax.PRECEDENCE["eq"]
        left = expr(op.args[0], own + (is_comparison or op.name in ("and", "or")))
        if is_comparison and syntax.is_literal(op.args[0]):  # Python would reverse it
            left = _typed(op.args[0])
        text = f"{left} {symbol} {expr(op.args[1], own + 1)}"
    return f"({text})" if own < level else text


def region(box: Region, buffer: Buffer) -> str:
    """A box of ``buffer``: the whole buffer, or a slice for each dimension of more than one element."""
    starts_all = all(start == syntax.ZERO for start in box.starts)
    if starts_all and box.extents == buffer.shape:
        return box.buffer
    is_one = all(extent == syntax.ONE for extent in box.extents)
    parts = [
        expr(start) if extent == syntax.ONE and not is_one else _slice(start, extent)
        for start, extent in zip(box.starts, box.extents, strict=True)
    ]
    return f"{box.buffer}[{', '.join(parts)}]"


def _slice(start: Expr, extent: Expr) -> str:
    stop = end_of(start, extent)
    return f"{expr(start)}:{expr(stop)}"


def end_of(start: Expr, extent: Expr) -> Expr:
    """``start + extent``, as one number if both are numbers."""
    if isinstance(start, Const) and isinstance(extent, Const):
        return Const(int(start.value) + int(extent.value), start.dtype)
    return extent if start == syntax.ZERO else Op("add", (start, extent), start.dtype)


def shape(extents: Sequence[Expr]) -> str:
    """Extents as a tuple."""
    parts = [expr(extent) for extent in extents]
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def layout(given: Layout, buffer: Buffer) -> str:
    """A layout over the indices of ``buffer``."""
    *names, copy = syntax.layout_indices(len(buffer.shape))
    place = f"[{', '.join(expr(part) for part in given.place)}]"
    if given.thread is None:
        return f"{MODULE}.Layout({shape(buffer.shape)}, lambda {', '.join(names)}: {place})"
    thread = expr(given.thread)
    copies, names = (
        ("", names) if given.copies == 1 else (f", replicate={given.copies}", [*names, copy])
    )
    return (
        f"{MODULE}.Fragment({shape(buffer.shape)}, "
        f"forward_fn=lambda {', '.join(names)}: ({thread}, {place}){copies})"
    )


def declaration(buffer: Buffer) -> str:
    """The expression that allocates ``buffer``, or makes the view; a parameter has an annotation instead."""
    own, kind = shape(buffer.shape), f'"{buffer.dtype}"'
    if buffer.view_of:
        return f"{MODULE}.view({buffer.view_of}, {own}, {kind})"
    match buffer.scope:
        case "barrier":
            return f"{MODULE}.alloc_barrier([{', '.join(map(str, buffer.arrivals))}])"
        case "global":
            return f"{MODULE}.alloc_global({own}, {kind})"
        case "shared" | "fragment" | "local":
            return f"{MODULE}.alloc_{buffer.scope}({own}, {kind})"
        case _:
            assert_never(buffer.scope)


def parameter(buffer: Buffer) -> str:
    """The annotation of an array. Strides that only the array has cannot be written."""
    own, kind = shape(buffer.shape), f'"{buffer.dtype}"'
    if not buffer.strides:
        return f"{MODULE}.Tensor({own}, {kind})"
    if any(stride == Const(0, stride.dtype) for stride in buffer.strides):
        raise InexpressibleError(f"strides of {buffer.name} that its shape does not give")
    return f"{MODULE}.StridedTensor({own}, {shape(buffer.strides)}, {kind})"
