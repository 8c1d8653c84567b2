"""Lowers TileLang's tile operations to statements of the tile IR.

Copy, fill, gemm and reduce have statements of their own; ``nests.py`` makes loops of the others. A
copy that may end later ends at once, which is one of the times when it may.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, get_args

import msgspec
import numpy as np

from tileyard.frontend import nests
from tileyard.frontend.expressions import is_region, lower_expr, lower_region
from tileyard.frontend.scope import Scope
from tileyard.frontend.tir_queries import TILE_OPS, call_name
from tileyard.ir.dtypes import is_float
from tileyard.ir.meanings import convert_one
from tileyard.ir.nodes import (
    Atomic,
    AtomicKind,
    Const,
    Copy,
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
from tileyard.ir.walk import convert


def lower_tile_op(scope: Scope, call: Any) -> tuple[Stmt, ...]:  # noqa: ANN401 (TVM's nodes are untyped)
    """The statements that a call of a tile operation stands for; raises UnsupportedError."""
    short = str(call.op.name).removeprefix(TILE_OPS)
    name = _SYNONYMS.get(short, short)
    if name not in _RULES:
        return scope.refuse(name)
    lower, hints = _RULES[name]
    unknown = [str(key) for key in call.annotations if str(key) not in hints]
    scope.require(not unknown, f"{name} with {', '.join(unknown)}")
    return lower(scope, call)


def is_tile_op(call: Any) -> bool:  # noqa: ANN401
    """Whether ``call`` is one of TileLang's tile operations, covered or not."""
    return call_name(call).startswith(TILE_OPS)


def _copy(scope: Scope, call: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
    src, dst = (lower_region(scope, arg) for arg in call.args[:2])
    if scope.named(dst.buffer).scope == "global":
        return (Copy(src, _as_large(dst, src)),)
    return (Copy(_cover(src, dst) if scope.named(src.buffer).scope == "global" else src, dst),)


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


def _copy_as_given(scope: Scope, call: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
    """As ``copy``: it is over before anybody arrives at its barrier."""
    return (Copy(lower_region(scope, call.args[0]), lower_region(scope, call.args[1])),)


def _fill(scope: Scope, call: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
    return (Fill(lower_region(scope, call.args[0]), lower_expr(scope, call.args[1])),)


def _flag(scope: Scope, name: str, value: Any) -> bool:  # noqa: ANN401
    scope.require(type(value).__name__ == "IntImm", f"{name} that is not a constant")
    return bool(int(value.value))


def _gemm(scope: Scope, call: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
    """``gemm``'s arguments: a, b, c, two transposes, m, n, k, policy, clear, barrier, coordinates.

    One that may end later ends at once.
    """
    args: Sequence[Any] = list(call.args)
    scope.require(len(args) == 13, f"gemm with {len(args)} arguments")
    scope.require(type(args[10]).__name__ == "IntImm", "gemm with a barrier")
    product = Gemm(
        lower_region(scope, args[0]),
        lower_region(scope, args[1]),
        lower_region(scope, args[2]),
        transpose_a=_flag(scope, "gemm's transpose_A", args[3]),
        transpose_b=_flag(scope, "gemm's transpose_B", args[4]),
    )
    cleared = msgspec.structs.replace(product, clear=True)
    if type(args[9]).__name__ != "IntImm":
        return (If(convert(lower_expr(scope, args[9]), "bool"), (cleared,), (product,)),)
    return (cleared if _flag(scope, "gemm's clear_accum", args[9]) else product,)


def _reduce(scope: Scope, call: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
    """``reduce``'s arguments: source, destination, kind, axis, clear."""
    args = list(call.args)
    kind = str(args[2].value)
    scope.require(
        len(args) == 5 and kind in get_args(ReduceKind), f"reduce {kind} with {len(args)} arguments"
    )
    stmt = Reduce(
        lower_region(scope, args[0]),
        lower_region(scope, args[1]),
        kind=kind,  # type: ignore[arg-type]
        axis=int(args[3].value),
        clear=_flag(scope, "reduce's clear", args[4]),
    )
    is_half = scope.named(stmt.dst.buffer).dtype in _HALVES
    if call.annotations.get(_NAN) and kind in _ORDERS and is_half:
        return nests.reduce_with_nan(scope, stmt)
    return (stmt,)


_NAN = "nan_propagate"
_ORDERS = ("max", "min", "absmax")
_HALVES = ("float16", "bfloat16")
"""Types for which ``nan_propagate`` counts."""


def _atomic(kind: AtomicKind, scope: Scope, call: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
    """``atomicadd`` and the like: a value or a region, and the region that is updated."""
    given, dst = list(call.args)[:2]
    source = lower_region(scope, given) if is_region(given) else lower_expr(scope, given)
    found = nests.atomic(scope, kind, source, lower_region(scope, dst))
    if not isinstance(found[0], Atomic):
        return found
    # A single element, too, is for a block as a whole: it is updated once and not by every thread.
    once = Var(scope.names.take("i"), "int32")
    return (For(once, Const(0, "int32"), Const(1, "int32"), "parallel", found),)


def _scan(kind: nests.ScanKind, scope: Scope, call: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
    """``cumsum`` and ``cummax``: source, destination, axis, whether it runs backwards."""
    src, dst = lower_region(scope, call.args[0]), lower_region(scope, call.args[1])
    axis = int(call.args[2].value)
    is_reverse = _flag(scope, "reverse", call.args[3])
    return nests.scan(scope, nests.Scan(kind=kind, axis=axis, is_reverse=is_reverse), src, dst)


def _transpose(scope: Scope, call: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
    return nests.transpose(
        scope, lower_region(scope, call.args[0]), lower_region(scope, call.args[1])
    )


def _im2col(scope: Scope, call: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
    """``im2col``'s arguments: image, columns, two steps, kernel, stride, dilation, padding, hint."""
    image, columns, nhw_step, c_step, *numbers = list(call.args)
    scope.require(
        all(type(number).__name__ == "IntImm" for number in numbers),
        "im2col with sizes that are not constant",
    )
    kernel, stride, dilation, padding = (int(number.value) for number in numbers[:4])
    steps = (lower_expr(scope, nhw_step), lower_expr(scope, c_step))
    window = nests.Window(kernel=kernel, stride=stride, dilation=dilation, padding=padding)
    return nests.im2col(
        scope, lower_region(scope, image), lower_region(scope, columns), steps, window
    )


def _init_reducer(scope: Scope, call: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
    """``reducer_init``'s arguments: the reducer, and what it starts from."""
    if len(call.args) > 1:
        return _fill(scope, call)
    region = lower_region(scope, call.args[0])
    dtype = scope.named(region.buffer).dtype
    kind = _KIND_OF_REDUCER.get(scope.reducers.get(region.buffer, ""))
    if kind is None:
        return scope.refuse(f"reducer {region.buffer}")
    start = identity(kind, dtype)
    if start != start:  # the type has no infinity, and its largest number takes the place
        start = convert_one(np.float64(np.inf if kind == "min" else -np.inf), dtype)
    value = float(start) if is_float(dtype) else bool(start) if dtype == "bool" else int(start)
    return (Fill(region, Const(value, dtype)),)


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
_HINTS = frozenset({"tl.ws_op_id", "batch", "memory_order", "use_tma"})

_SYNONYMS = {"async_copy": "copy", "wgmma_gemm": "gemm"}

_RULES: dict[str, tuple[Callable[[Scope, Any], tuple[Stmt, ...]], frozenset[str]]] = {
    "copy": (_copy, _COPY_HINTS),
    "tma_copy": (_copy_as_given, _COPY_HINTS | {"barrier"}),
    "fill": (_fill, frozenset({"tl.ws_op_id"})),
    "gemm": (_gemm, frozenset({"tl.ws_op_id", "k_pack", "wg_wait"})),
    "reduce": (_reduce, frozenset({"tl.ws_op_id", "batch", "enable_fadd2", _NAN})),
    "atomicadd": (partial(_atomic, "add"), _HINTS),
    "atomicmax": (partial(_atomic, "max"), _HINTS),
    "atomicmin": (partial(_atomic, "min"), _HINTS),
    "cumsum": (partial(_scan, "add"), _HINTS),
    "cummax": (partial(_scan, "max"), _HINTS),
    "finalize_reducer": (_finalize_reducer, _HINTS),
    "finalize_reducer_v2": (_copy_as_given, _HINTS),
    "reducer_init": (_init_reducer, _HINTS),
    "im2col": (_im2col, _HINTS),
    "transpose": (_transpose, _HINTS),
}
"""How each tile operation is lowered, and its annotations that change no result."""
