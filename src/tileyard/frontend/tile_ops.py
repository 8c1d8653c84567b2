"""Lowers TileLang's tile operations to statements of the tile IR.

Copy, fill, gemm and reduce have statements of their own; ``nests.py`` makes loops of the others. A
copy that may end later ends at once, which is one of the times when it may.
"""

from collections.abc import Callable, Sequence
from typing import Any, get_args

import msgspec
import numpy as np

from tileyard.frontend import nests
from tileyard.frontend.expressions import convert, is_region, lower_expr, lower_region
from tileyard.frontend.scope import Scope
from tileyard.ir.convert import convert_one
from tileyard.ir.dtypes import is_float
from tileyard.ir.nodes import (
    Atomic,
    Const,
    Copy,
    Expr,
    Fill,
    For,
    Gemm,
    If,
    Reduce,
    ReduceKind,
    Region,
    Stmt,
    Var,
)
from tileyard.ir.tiles import identity
from tileyard.ir.verify_exprs import without_ones

_COPY_HINTS = frozenset(
    {
        "coalesced_width",
        "disable_tma",
        "eviction_policy",
        "parallel_loop_layout",
        "prefer_instruction",
        "tl.ws_op_id",
    }
)
"""Annotations of a copy that say how it is done, and change no result."""


_HINTS = frozenset({"tl.ws_op_id", "batch", "memory_order", "use_tma"})
"""Annotations that change no result of any operation."""


def lower_tile_op(scope: Scope, call: Any) -> tuple[Stmt, ...]:  # noqa: ANN401 (TVM's nodes are untyped)
    """The statements that a call of a tile operation stands for; raises UnsupportedError."""
    name = str(call.op.name)
    if name == "tl.tileop.reduce":
        return _reduce(scope, call)
    rule = _RULES.get(name)
    if rule is not None:
        return (rule(scope, call),)
    nest = _NESTS.get(name)
    short = name.removeprefix("tl.tileop.")
    if nest is None:
        return scope.refuse(short)
    _check_annotations(scope, short, call, _HINTS)
    return nest(scope, call)


def is_tile_op(call: Any) -> bool:  # noqa: ANN401
    """Whether ``call`` is one of TileLang's tile operations, covered or not."""
    return str(getattr(call.op, "name", "")).startswith("tl.tileop.")


def _check_annotations(scope: Scope, name: str, call: Any, harmless: frozenset[str]) -> None:  # noqa: ANN401
    unknown = [str(key) for key in call.annotations if str(key) not in harmless]
    if unknown:
        scope.refuse(f"{name} with {', '.join(unknown)}")


def _copy(scope: Scope, call: Any) -> Stmt:  # noqa: ANN401
    _check_annotations(scope, "copy", call, _COPY_HINTS)
    src, dst = (lower_region(scope, arg) for arg in call.args[:2])
    if scope.is_array(dst.buffer):
        return Copy(src, _as_large(dst, src))
    return Copy(_cover(src, dst) if scope.is_array(src.buffer) else src, dst)


def _cover(array: Region, tile: Region) -> Region:
    """What is read of an array to fill a tile: it goes over the whole tile, unless that is too small."""
    larger = _as_large(array, tile)
    for given, taken in zip(array.extents, larger.extents, strict=True):
        if isinstance(given, Const) and isinstance(taken, Const) and taken.value < given.value:
            return array
    return larger


def _as_large(array: Region, other: Region) -> Region:
    """A box of an array with the extents of a tile's, over which copies go, or with those of what it becomes."""
    extents = without_ones(other.extents)
    places = [i for i, extent in enumerate(array.extents) if without_ones((extent,))]
    if len(places) != len(extents):
        return array
    taken = dict(zip(places, extents, strict=True))
    sizes = tuple(taken.get(i, extent) for i, extent in enumerate(array.extents))
    return msgspec.structs.replace(array, extents=sizes)


def _tma_copy(scope: Scope, call: Any) -> Stmt:  # noqa: ANN401
    """As ``copy``: it is over before anybody arrives at its barrier."""
    _check_annotations(scope, "tma_copy", call, _COPY_HINTS | {"barrier"})
    return Copy(lower_region(scope, call.args[0]), lower_region(scope, call.args[1]))


def _fill(scope: Scope, call: Any) -> Stmt:  # noqa: ANN401
    _check_annotations(scope, "fill", call, frozenset({"tl.ws_op_id"}))
    return Fill(lower_region(scope, call.args[0]), lower_expr(scope, call.args[1]))


def _flag(scope: Scope, name: str, value: Any) -> bool:  # noqa: ANN401
    if type(value).__name__ != "IntImm":
        scope.refuse(f"{name} that is not a constant")
    return bool(int(value.value))


def _gemm(scope: Scope, call: Any) -> Stmt:  # noqa: ANN401
    """``gemm``'s arguments: a, b, c, two transposes, m, n, k, policy, clear, barrier, coordinates.

    One that may end later ends at once.
    """
    _check_annotations(scope, "gemm", call, frozenset({"tl.ws_op_id", "k_pack", "wg_wait"}))
    args: Sequence[Any] = list(call.args)
    if len(args) != 13:
        scope.refuse(f"gemm with {len(args)} arguments")
    if type(args[10]).__name__ != "IntImm":
        scope.refuse("gemm with a barrier")
    product = Gemm(
        lower_region(scope, args[0]),
        lower_region(scope, args[1]),
        lower_region(scope, args[2]),
        transpose_a=_flag(scope, "gemm's transpose_A", args[3]),
        transpose_b=_flag(scope, "gemm's transpose_B", args[4]),
    )
    cleared = msgspec.structs.replace(product, clear=True)
    if type(args[9]).__name__ != "IntImm":
        return If(convert(lower_expr(scope, args[9]), "bool"), (cleared,), (product,))
    return cleared if _flag(scope, "gemm's clear_accum", args[9]) else product


def _reduce(scope: Scope, call: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
    """``reduce``'s arguments: source, destination, kind, axis, clear."""
    _check_annotations(scope, "reduce", call, _REDUCE_HINTS | {_NAN})
    args = list(call.args)
    kind = str(args[2].value)
    if len(args) != 5 or kind not in get_args(ReduceKind):
        scope.refuse(f"reduce {kind} with {len(args)} arguments")
    src, dst = lower_region(scope, args[0]), lower_region(scope, args[1])
    how = nests.Reduction(
        kind=kind,  # type: ignore[arg-type]
        axis=int(args[3].value),
        clear=_flag(scope, "reduce's clear", args[4]),
    )
    if call.annotations.get(_NAN) and kind in _ORDERS and scope.dtype_of(dst.buffer) in _HALVES:
        return nests.reduce_with_nan(scope, how, src, dst)
    return (Reduce(src, dst, kind=how.kind, axis=how.axis, clear=how.clear),)


_REDUCE_HINTS = frozenset({"tl.ws_op_id", "batch", "enable_fadd2"})
_NAN = "nan_propagate"
_ORDERS = ("max", "min", "absmax")
_HALVES = ("float16", "bfloat16")
"""Types for which ``nan_propagate`` counts."""


def _atomic(kind: nests.AtomicKind) -> Callable[[Scope, Any], tuple[Stmt, ...]]:
    """``atomicadd`` and the like: a value or a region, and the region that is updated."""

    def lower(scope: Scope, call: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
        source: Region | Expr
        if is_region(call.args[0]):
            source = lower_region(scope, call.args[0])
        else:
            source = lower_expr(scope, call.args[0])
        found = nests.atomic(scope, kind, source, lower_region(scope, call.args[1]))
        if not isinstance(found[0], Atomic):
            return found
        # A single element, too, is for a block as a whole: it is updated once and not by every thread.
        once = Var(scope.names.take("i"), "int32")
        return (For(once, Const(0, "int32"), Const(1, "int32"), "parallel", found),)

    return lower


def _scan(kind: nests.ScanKind) -> Callable[[Scope, Any], tuple[Stmt, ...]]:
    """``cumsum`` and ``cummax``: source, destination, axis, whether it runs backwards."""

    def lower(scope: Scope, call: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
        src, dst = lower_region(scope, call.args[0]), lower_region(scope, call.args[1])
        axis = int(call.args[2].value)
        is_reverse = _flag(scope, "reverse", call.args[3])
        return nests.scan(scope, nests.Scan(kind=kind, axis=axis, is_reverse=is_reverse), src, dst)

    return lower


def _transpose(scope: Scope, call: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
    return nests.transpose(
        scope, lower_region(scope, call.args[0]), lower_region(scope, call.args[1])
    )


def _im2col(scope: Scope, call: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
    """``im2col``'s arguments: image, columns, two steps, kernel, stride, dilation, padding, hint."""
    image, columns, nhw_step, c_step, *numbers = list(call.args)
    if any(type(number).__name__ != "IntImm" for number in numbers):
        scope.refuse("im2col with sizes that are not constant")
    kernel, stride, dilation, padding = (int(number.value) for number in numbers[:4])
    steps = (lower_expr(scope, nhw_step), lower_expr(scope, c_step))
    window = nests.Window(kernel=kernel, stride=stride, dilation=dilation, padding=padding)
    return nests.im2col(
        scope, lower_region(scope, image), lower_region(scope, columns), steps, window
    )


def _init_reducer(scope: Scope, call: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
    """``reducer_init``'s arguments: the reducer, and what it starts from."""
    region = lower_region(scope, call.args[0])
    if len(call.args) > 1:
        return (Fill(region, lower_expr(scope, call.args[1])),)
    dtype = scope.dtype_of(region.buffer)
    kind = _KIND_OF_REDUCER.get(scope.reducers.get(region.buffer, ""))
    if kind is None:
        return scope.refuse(f"reducer {region.buffer}")
    start = identity(kind, dtype)
    if start != start:  # the type has no infinity, and its largest number takes the place
        start = convert_one(np.float64(np.inf if kind == "min" else -np.inf), dtype)
    value = float(start) if is_float(dtype) else bool(start) if dtype == "bool" else int(start)
    return (Fill(region, Const(value, dtype)),)


def _close_reducer(scope: Scope, call: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
    return (Copy(lower_region(scope, call.args[0]), lower_region(scope, call.args[1])),)


_KIND_OF_REDUCER: dict[str, ReduceKind] = {
    "sum": "sum",
    "max": "max",
    "min": "min",
    "bitand": "bitand",
    "bitor": "bitor",
    "bitxor": "bitxor",
}


def _finalize_reducer(scope: Scope, call: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
    """A tile has one content: there is nothing to bring together."""
    lower_region(scope, call.args[0])
    return ()


_RULES: dict[str, Callable[[Scope, Any], Stmt]] = {
    "tl.tileop.async_copy": _copy,
    "tl.tileop.copy": _copy,
    "tl.tileop.fill": _fill,
    "tl.tileop.gemm": _gemm,
    "tl.tileop.wgmma_gemm": _gemm,
    "tl.tileop.tma_copy": _tma_copy,
}

_NESTS: dict[str, Callable[[Scope, Any], tuple[Stmt, ...]]] = {
    "tl.tileop.atomicadd": _atomic("add"),
    "tl.tileop.atomicmax": _atomic("max"),
    "tl.tileop.atomicmin": _atomic("min"),
    "tl.tileop.cumsum": _scan("add"),
    "tl.tileop.cummax": _scan("max"),
    "tl.tileop.finalize_reducer": _finalize_reducer,
    "tl.tileop.finalize_reducer_v2": _close_reducer,
    "tl.tileop.reducer_init": _init_reducer,
    "tl.tileop.im2col": _im2col,
    "tl.tileop.transpose": _transpose,
}
