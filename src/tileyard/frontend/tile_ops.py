"""Lowers calls that are statements: TileLang's tile operations. ``element_ops.py`` has those on
single elements, ``nests.py`` those that become loops. Copies by ``cp.async`` and TMA and products
by ``wgmma`` are issued.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, get_args

import msgspec
import numpy as np

from tileyard.frontend import nests
from tileyard.frontend.element_ops import lower_element_call
from tileyard.frontend.expressions import is_region, lower_expr, lower_region
from tileyard.frontend.scope import Scope
from tileyard.frontend.synchronization import lower_barrier
from tileyard.frontend.tir_queries import TILE_OPS, call_name, extern_name, is_zero
from tileyard.ir.dtypes import find_dtype, is_float
from tileyard.ir.meanings import convert_one
from tileyard.ir.nodes import (
    Arrive,
    Atomic,
    AtomicKind,
    CommitGroup,
    Const,
    Copy,
    Fill,
    For,
    Gemm,
    If,
    Issue,
    Product,
    Reduce,
    ReduceKind,
    Region,
    SparseGemm,
    Stmt,
    Var,
    WaitGroup,
    WarpPolicy,
)
from tileyard.ir.tiles import identity
from tileyard.ir.verify_exprs import without_ones
from tileyard.ir.walk import convert


def lower_call(scope: Scope, call: Any) -> tuple[Stmt, ...] | None:  # noqa: ANN401 (TVM's nodes are untyped)
    """The statements for ``call``, None for an operation of another kind; raises UnsupportedError."""
    name = extern_name(call) or call_name(call)
    if not name.startswith(TILE_OPS):
        return lower_element_call(scope, name, call)
    name = name.removeprefix(TILE_OPS)
    scope.require(name in _RULES, name)
    lower, hints = _RULES[name]
    unknown = [str(key) for key in call.annotations if str(key) not in hints | _OF_PIPELINES]
    scope.require(not unknown, f"{name} with {', '.join(unknown)}")
    for key, value in call.annotations.items():
        if str(key) in _LOST_HINTS and not is_zero(value):
            scope.lose(f"{name} with {key}")
    if name in _LOST_OPERATIONS:
        scope.lose(name)
    return lower(scope, call)


def _copy(scope: Scope, call: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
    """A copy that is over at once, or one that TileLang's pipelining commits and waits for separately."""
    if "gather4_rows" in call.annotations:
        return _copy_rows(scope, call)
    (copied,) = _copy_plainly(scope, call)
    is_issued = call.annotations.get("no_implicit_async_commit_wait")
    if is_issued is None or not int(is_issued) or not _fits_cp_async(scope, copied):
        return (copied,)
    return (Issue("cp_async", (copied,)),)


def _copy_rows(scope: Scope, call: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
    """Four rows by TMA; the kernel itself states the bytes that a barrier expects, or commits the stores."""
    src, dst = (lower_region(scope, arg) for arg in call.args[:2])
    numbers = [*call.annotations["gather4_rows"], call.annotations["gather4_col"]]
    *rows, column = (Const(n, "int32") if type(n) is int else lower_expr(scope, n) for n in numbers)
    places = [(row, column) for row in rows]
    if "barrier" not in call.annotations:
        stored = (Copy(row, there) for there, row in nests.rows(dst, src, places))
        return (Issue("tma_store", tuple(stored)),)
    loaded = (Copy(there, row) for there, row in nests.rows(src, dst, places))
    return (Issue("tma", tuple(loaded), lower_barrier(scope, call.annotations["barrier"])),)


def _fits_cp_async(scope: Scope, copied: Stmt) -> bool:
    """Whether ``cp.async`` can do it: from global to shared memory, without conversion."""
    if not isinstance(copied, Copy):
        return False
    src, dst = scope.named(copied.src.buffer), scope.named(copied.dst.buffer)
    return src.scope == "global" and dst.scope == "shared" and src.dtype == dst.dtype


def _copy_plainly(scope: Scope, call: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
    src, dst = (lower_region(scope, arg) for arg in call.args[:2])
    if scope.named(dst.buffer).scope == "global":
        return (Copy(src, _as_large(dst, src)),)
    return (Copy(_cover(src, dst) if scope.named(src.buffer).scope == "global" else src, dst),)


def _copy_asynchronously(scope: Scope, call: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
    """An asynchronous copy: TileLang commits each of these itself, and waits for none."""
    return (Issue("cp_async", _copy_plainly(scope, call)), CommitGroup("cp_async"))


def _cover(array: Region, tile: Region) -> Region:
    """The part of an array that fills a tile: it covers the whole tile, unless that is too small."""
    larger = _as_large(array, tile)
    for given, taken in zip(array.extents, larger.extents, strict=True):
        if isinstance(given, Const) and isinstance(taken, Const) and taken.value < given.value:
            return array
    return larger


def _as_large(array: Region, other: Region) -> Region:
    """A box of an array with the extents of the copy's ``other`` side; unchanged if dimensions differ."""
    extents = without_ones(other.extents)
    places = [i for i, extent in enumerate(array.extents) if without_ones((extent,))]
    if len(places) != len(extents):
        return array
    taken = dict(zip(places, extents, strict=True))
    sizes = tuple(taken.get(i, extent) for i, extent in enumerate(array.extents))
    return msgspec.structs.replace(array, extents=sizes)


def _copy_as_given(scope: Scope, call: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
    return (Copy(lower_region(scope, call.args[0]), lower_region(scope, call.args[1])),)


def _copy_by_tma(scope: Scope, call: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
    """A load, for whose bytes a barrier waits from now on; or a store, which TileLang commits itself."""
    (copied,) = _copy_as_given(scope, call)
    if not isinstance(copied, Copy):
        return (copied,)
    if scope.named(copied.dst.buffer).scope == "global":
        return (Issue("tma_store", (copied,)), CommitGroup("tma_store"))
    if "barrier" not in call.annotations:
        scope.give_up("tma_copy", "without a barrier")
    return _load_by_tma(scope, call, copied.dst, (copied,))


def _load_by_tma(
    scope: Scope,
    call: Any,  # noqa: ANN401
    to: Region,
    stmts: tuple[Stmt, ...],
) -> tuple[Stmt, ...]:
    """``stmts``, which fill a tile, as a load that ends at the barrier of ``call``; unchanged without one."""
    barrier = call.annotations.get("barrier")
    extents = [extent.value for extent in to.extents if isinstance(extent, Const)]
    if barrier is None:
        return stmts
    if len(extents) < len(to.extents):
        scope.give_up("tma_copy", "of a size that is not constant")
        return stmts
    place = lower_barrier(scope, barrier)
    size = math.prod(map(int, extents)) * find_dtype(scope.named(to.buffer).dtype).bits // 8
    loaded = (Arrive(place, 0, bytes=size), Issue("tma", stmts, place))
    emits = call.annotations.get("emit_arrive")
    return (*loaded, Arrive(place)) if emits is not None and int(emits) else loaded


def _fill(scope: Scope, call: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
    return (Fill(lower_region(scope, call.args[0]), lower_expr(scope, call.args[1])),)


def _flag(scope: Scope, name: str, value: Any) -> bool:  # noqa: ANN401
    scope.require(type(value).__name__ == "IntImm", f"{name} that is not a constant")
    return bool(int(value.value))


def _gemm(scope: Scope, call: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
    """``gemm``'s arguments: a, b, c, two transposes, m, n, k, policy, clear, barrier, coordinates."""
    args: Sequence[Any] = list(call.args)
    scope.require(len(args) == 13, f"gemm with {len(args)} arguments")
    scope.require(type(args[10]).__name__ == "IntImm", "gemm with a barrier")
    product = Gemm(
        lower_region(scope, args[0]),
        lower_region(scope, args[1]),
        lower_region(scope, args[2]),
        transpose_a=_flag(scope, "gemm's transpose_A", args[3]),
        transpose_b=_flag(scope, "gemm's transpose_B", args[4]),
        policy=_policy(scope, args[8]),
    )
    return _cleared(scope, product, args[9])


_POLICIES: tuple[WarpPolicy, ...] = get_args(WarpPolicy)
"""Policies in the order of their numbers in TileLang."""


def _policy(scope: Scope, number: Any) -> WarpPolicy:  # noqa: ANN401
    if type(number).__name__ == "IntImm" and int(number.value) < len(_POLICIES):
        return _POLICIES[int(number.value)]
    scope.lose(f"gemm with policy {number}")
    return "square"


def _cleared(scope: Scope, product: Product, clears: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
    cleared = msgspec.structs.replace(product, clear=True)
    if type(clears).__name__ != "IntImm":
        return (If(convert(lower_expr(scope, clears), "bool"), (cleared,), (product,)),)
    return (cleared if _flag(scope, "gemm's clear_accum", clears) else product,)


def _sparse_gemm(scope: Scope, call: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
    """``gemm_sp``'s arguments: a, e, b, c, three transposes, m, n, k, policy, clear."""
    args: Sequence[Any] = list(call.args)
    scope.require(len(args) == 12, f"gemm_sp with {len(args)} arguments")
    a, e, b, c = (lower_region(scope, arg) for arg in args[:4])
    of_a, of_e, of_b = (_flag(scope, "gemm_sp's transpose", arg) for arg in args[4:7])
    policy = _policy(scope, args[10])
    product = SparseGemm(
        a, e, b, c, transpose_a=of_a, transpose_e=of_e, transpose_b=of_b, policy=policy
    )
    return _cleared(scope, product, args[11])


def _product(
    make: Callable[[Scope, Any], tuple[Stmt, ...]],
    default: int,
    scope: Scope,
    call: Any,  # noqa: ANN401
) -> tuple[Stmt, ...]:
    """A product that TileLang commits if groups may be left after it (-1 for all), else over at once."""
    made, left = make(scope, call), int(call.annotations.get("wg_wait", default))
    if not left:
        return made
    wait = (WaitGroup(Const(left, "int32"), "wgmma"),) if left > 0 else ()
    return (Issue("wgmma", made), CommitGroup("wgmma"), *wait)


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
        scope.lose(f"reduce with {_NAN}")
        return nests.reduce_with_nan(scope, stmt)
    return (stmt,)


_NAN = "nan_propagate"
_ORDERS = ("max", "min", "absmax")
_HALVES = ("float16", "bfloat16")
"""Types for which ``nan_propagate`` has an effect."""


def _atomic(kind: AtomicKind, scope: Scope, call: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
    """``atomicadd`` and the like: a value or a region, and the region that is updated."""
    given, dst = list(call.args)[:2]
    source = lower_region(scope, given) if is_region(given) else lower_expr(scope, given)
    found = nests.atomic(scope, kind, source, lower_region(scope, dst))
    if not isinstance(found[0], Atomic):
        return found
    # A single element, too, is updated by the block as a whole: once, and not by every thread.
    once = Var(scope.names.take("i"), "int32")
    return (For(once, Const(0, "int32"), Const(1, "int32"), "parallel", found),)


def _scan(kind: nests.ScanKind, scope: Scope, call: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
    """``cumsum`` and ``cummax``: source, destination, axis, whether to run backwards."""
    regions = lower_region(scope, call.args[0]), lower_region(scope, call.args[1])
    is_reverse = _flag(scope, "reverse", call.args[3])
    return nests.scan(scope, kind, regions, int(call.args[2].value), is_reverse)


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
    to = lower_region(scope, columns)
    stmts = nests.im2col(scope, lower_region(scope, image), to, steps, window)
    return _load_by_tma(scope, call, to, stmts)


def _init_reducer(scope: Scope, call: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
    """``reducer_init``'s arguments: the reducer, and its start value."""
    if len(call.args) > 1:
        return _fill(scope, call)
    region = lower_region(scope, call.args[0])
    dtype = scope.named(region.buffer).dtype
    kind = _KIND_OF_REDUCER.get(scope.reducers.get(region.buffer, ""))
    if kind is None:
        return scope.refuse(f"reducer {region.buffer}")
    start = identity(kind, dtype)
    if start != start:  # the type has no infinity, so its largest number is used
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
    """A tile has a single content: there is nothing to combine."""
    lower_region(scope, call.args[0])
    return ()


_OF_PIPELINES = frozenset({"tl.pipeline_mbar_phase_expr"})
"""Notes of TileLang's pipelining for barriers that it makes later."""

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
_ROWS = frozenset({"barrier", "gather4_col", "gather4_rows", "is_gather4", "is_scatter4"})
_HINTS = frozenset({"tl.ws_op_id", "batch", "memory_order", "use_tma"})

_LOST_HINTS = frozenset(
    {
        "batch",
        "coalesced_width",
        "disable_tma",
        "enable_fadd2",
        "eviction_policy",
        "gather4_rows",
        "k_pack",
        "memory_order",
        "parallel_loop_layout",
        "prefer_instruction",
        "use_tma",
    }
)
"""Annotations on how a GPU does an operation."""

_LOST_OPERATIONS = frozenset(
    {
        "cummax",
        "cumsum",
        "finalize_reducer",
        "finalize_reducer_v2",
        "im2col",
        "reducer_init",
        "transpose",
    }
)
"""Operations that a GPU does at once, and a Program element by element."""

_RULES: dict[str, tuple[Callable[[Scope, Any], tuple[Stmt, ...]], frozenset[str]]] = {
    "copy": (_copy, _COPY_HINTS | _ROWS | {"no_implicit_async_commit_wait"}),
    "async_copy": (_copy_asynchronously, _COPY_HINTS),
    "tma_copy": (_copy_by_tma, _COPY_HINTS | {"barrier", "emit_arrive", "is_tma_copy"}),
    "fill": (_fill, frozenset({"tl.ws_op_id"})),
    "gemm": (partial(_product, _gemm, 0), frozenset({"tl.ws_op_id", "k_pack", "wg_wait"})),
    "wgmma_gemm": (partial(_product, _gemm, -1), frozenset({"tl.ws_op_id", "k_pack", "wg_wait"})),
    "gemm_sp": (partial(_product, _sparse_gemm, 0), frozenset({"tl.ws_op_id", "wg_wait"})),
    "wgmma_gemm_sp": (partial(_product, _sparse_gemm, -1), frozenset({"tl.ws_op_id", "wg_wait"})),
    "reduce": (_reduce, frozenset({"tl.ws_op_id", "batch", "enable_fadd2", _NAN})),
    "atomicadd": (partial(_atomic, "add"), _HINTS),
    "atomicmax": (partial(_atomic, "max"), _HINTS),
    "atomicmin": (partial(_atomic, "min"), _HINTS),
    "cumsum": (partial(_scan, "add"), _HINTS),
    "cummax": (partial(_scan, "max"), _HINTS),
    "finalize_reducer": (_finalize_reducer, _HINTS),
    "finalize_reducer_v2": (_copy_as_given, _HINTS),
    "reducer_init": (_init_reducer, _HINTS),
    "im2col": (_im2col, _HINTS | {"barrier", "emit_arrive", "is_tma_copy"}),
    "transpose": (_transpose, _HINTS),
}
"""The lowering of each tile operation, and its annotations that change no result."""
