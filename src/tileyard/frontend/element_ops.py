"""Lowers calls on single elements: atomic updates, stores, copies by ``cp.async``, prints and assertions."""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from tileyard.frontend.expressions import lower_as, lower_expr, lower_pointer
from tileyard.frontend.scope import Scope, split_stack
from tileyard.frontend.tir_queries import POINTERS, call_name
from tileyard.ir.dtypes import is_float
from tileyard.ir.nodes import (
    Assert,
    Atomic,
    AtomicKind,
    Const,
    Expr,
    If,
    Issue,
    Load,
    Op,
    Print,
    Stmt,
    Store,
)
from tileyard.ir.walk import convert


def lower_element_call(scope: Scope, name: str, call: Any) -> tuple[Stmt, ...] | None:  # noqa: ANN401
    """The statements for ``call`` of the operation ``name``, None for an operation of another kind."""
    rule = _ELEMENT_RULES.get(name)
    if name in _LOST:
        scope.lose(name.removeprefix("tl."))
    return None if rule is None else rule(scope, call)


def _update(kind: AtomicKind, scope: Scope, call: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
    place = lower_pointer(scope, call.args[0])
    value = lower_as(scope, call.args[1], place.dtype)
    return (Atomic(place.buffer, place.indices, value, kind),)


def _updates(count: int, scope: Scope, call: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
    """Additions to ``count`` consecutive elements; both sides are pointers to the first."""
    to, source = (lower_pointer(scope, arg) for arg in list(call.args)[:2])
    return tuple(
        Atomic(
            to.buffer,
            element_after(to, i).indices,
            convert(element_after(source, i), to.dtype),
            "add",
        )
        for i in range(count)
    )


def element_after(first: Load, steps: int) -> Load:
    """The element ``steps`` after ``first`` in its row."""
    if not steps:
        return first
    *leading, last = first.indices
    moved: Expr = Op("add", (last, Const(steps, last.dtype)), last.dtype)
    if isinstance(last, Const):
        moved = Const(int(last.value) + steps, last.dtype)
    return Load(first.buffer, (*leading, moved), first.dtype)


def _dot(scope: Scope, call: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
    """The sum of four products of bytes, added to a 32-bit number."""
    left, right, total = (lower_pointer(scope, arg) for arg in list(call.args)[1:])
    result: Expr = total
    for i in range(4):
        parts = (convert(element_after(side, i), total.dtype) for side in (left, right))
        product = Op("mul", tuple(parts), total.dtype)
        result = Op("add", (result, product), total.dtype)
    return (Store(total.buffer, total.indices, result),)


def _print(scope: Scope, call: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
    """A print on a GPU, without the thread: all threads of a block together print once."""
    function, message, *rest = list(call.args)
    # A pair of braces would be a placeholder for a value.
    text = f"msg='{str(message.value).replace('{}', '{ }')}' BlockIdx=({{}}, {{}}, {{}})"
    if str(function.value) == "debug_print_buffer_value":
        text += f": buffer={rest[0].value}, index={{}}, dtype={rest[-1].dtype} value={{}}"
        rest = rest[1:]
    elif rest:
        text += f": dtype={rest[-1].dtype} value={{}}"
    values = (lower_expr(scope, value) for value in rest)
    return (Print(text, (*scope.block_index(), *values)),)


def _assert(scope: Scope, call: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
    cond, *rest = list(call.args)
    message, where = split_stack(str(rest[0].value)) if rest else ("", None)
    scope.where = where or scope.where
    return (Assert(convert(lower_expr(scope, cond), "bool"), message),)


def _update_reducer(scope: Scope, call: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
    """An additional contribution to an element of a reducer, which is an ordinary tile."""
    place = lower_expr(scope, call.args[0])
    if not isinstance(place, Load) or place.buffer not in scope.reducers:
        return scope.refuse("reducer_update", "of something else than a reducer is not covered")
    value = lower_as(scope, call.args[1], place.dtype)
    name = {"sum": "add"}.get(scope.reducers[place.buffer], scope.reducers[place.buffer])
    return (Store(place.buffer, place.indices, Op(name, (place, value), place.dtype)),)


def _copy_elements(scope: Scope, call: Any) -> tuple[Stmt, ...]:  # noqa: ANN401
    """``ptx_cp_async``'s arguments: destination, source, number of elements, and a condition."""
    scope.require(
        all(call_name(arg) in POINTERS for arg in call.args[:2]),
        "ptx_cp_async",
        "of something else than elements of buffers is not covered",
    )
    to, source = (lower_pointer(scope, arg) for arg in list(call.args)[:2])
    count = call.args[2]
    scope.require(
        type(count).__name__ == "IntImm" and to.dtype == source.dtype,
        "ptx_cp_async",
        "of a number of bytes that is not seen is not covered",
    )
    copied: tuple[Stmt, ...] = tuple(
        Store(to.buffer, element_after(to, i).indices, element_after(source, i))
        for i in range(int(count.value))
    )
    if not copied:
        return ()
    if len(call.args) < 4:
        return (Issue("cp_async", copied),)
    nothing = Const(0.0 if is_float(to.dtype) else 0, to.dtype)
    cleared = tuple(msgspec.structs.replace(store, value=nothing) for store in copied)
    condition = convert(lower_expr(scope, call.args[3]), "bool")
    return (Issue("cp_async", (If(condition, copied, cleared),)),)


_ELEMENT_RULES: dict[str, Callable[[Scope, Any], tuple[Stmt, ...]]] = {
    "DP4A": _dot,  # called by TileLang's dp4a
    "debug_print_buffer_value": _print,  # called by its print
    "debug_print_msg": _print,
    "debug_print_var": _print,
    "tl.atomic_add_elem_op": partial(_update, "add"),
    "tl.atomic_add_ret_elem_op": partial(_update, "add"),
    "tl.atomic_addx2_elem_op": partial(_updates, 2),
    "tl.atomic_addx4_elem_op": partial(_updates, 4),
    "tl.atomic_max_elem_op": partial(_update, "max"),
    "tl.atomic_max_ret_elem_op": partial(_update, "max"),
    "tl.atomic_min_elem_op": partial(_update, "min"),
    "tl.atomic_min_ret_elem_op": partial(_update, "min"),
    "tl.atomic_or_elem_op": partial(_update, "or"),
    "tl.atomic_store_elem_op": partial(_update, "exchange"),
    "tl.device_assert": _assert,
    "tl.ptx_cp_async": _copy_elements,
    "tl.reducer_update": _update_reducer,
    "tl.device_assert_with_msg": _assert,
}

_LOST = frozenset(
    {"DP4A", "tl.atomic_addx2_elem_op", "tl.atomic_addx4_elem_op", "tl.reducer_update"}
)
"""Operations that a GPU does at once, and a Program element by element."""
