"""What a TIR statement asks of the threads of a block, seen by itself."""

from collections.abc import Iterator
from typing import Any

from tilelang import tvm

from tileyard.frontend.scope import key_of
from tileyard.frontend.tir_queries import PARALLEL, THREAD_BINDING

_OWN_TILE_OPS = frozenset({"tl.tileop.fill", "tl.tileop.copy"})
"""Tile operations that each thread does by itself where registers take part."""

REGISTERS = ("local", "local.var")

ALLREDUCE = "tirx.tvm_thread_allreduce"


def bodies_of(stmt: Any) -> tuple[Any, ...]:  # noqa: ANN401
    """The statements that stand in a statement."""
    match type(stmt).__name__:
        case "SeqStmt":
            return tuple(stmt.seq)
        case "SBlockRealize":
            return (stmt.block.body,)
        case "IfThenElse":
            both = (stmt.then_case, stmt.else_case)
            return tuple(body for body in both if body is not None)
        case "For" | "While" | "AttrStmt":
            return (stmt.body,)
        case _:
            return ()


def heads_of(stmt: Any) -> tuple[Any, ...]:  # noqa: ANN401
    """The expressions that decide whether and how often the bodies of a statement run."""
    match type(stmt).__name__:
        case "For":
            return (stmt.min, stmt.extent)
        case "IfThenElse" | "While":
            return (stmt.condition,)
        case _:
            return ()


def is_thread_index(expr: Any) -> bool:  # noqa: ANN401
    """Whether an expression asks for the thread's index."""
    return call_name(expr) == "tl.launch_thread_idx"


def call_name(expr: Any) -> str:  # noqa: ANN401
    """The operation that an expression calls; empty for another expression."""
    return str(getattr(getattr(expr, "op", None), "name", ""))


def dimension_of(loop: Any) -> int:  # noqa: ANN401
    """Which dimension of a block a loop over threads is."""
    return "xyz".index(str(loop.thread_binding.thread_tag)[-1])


def is_alone(stmt: Any) -> bool:  # noqa: ANN401
    """Whether a thread can do ``stmt`` by itself: nothing in it takes all threads of the block."""
    match type(stmt).__name__:
        case "For" if int(stmt.kind) in (PARALLEL, THREAD_BINDING):
            return False
        case "AttrStmt":
            return False
        case "Evaluate":
            name = call_name(stmt.value)
            if name in _OWN_TILE_OPS:
                return any(map(_is_register, list(stmt.value.args)[:2]))
            return not (name == ALLREDUCE or name.startswith("tl.tileop.") or "barrier" in name)
        case _:
            pass
    return all(map(is_alone, bodies_of(stmt)))


def leaves_loop(stmt: Any) -> bool:  # noqa: ANN401
    """Whether ``stmt`` leaves a loop that it does not hold itself."""
    kind = type(stmt).__name__
    if kind == "Evaluate":
        return call_name(stmt.value) in ("tirx.break_loop", "tl.loop_break", "tirx.continue_loop")
    return kind not in ("For", "While") and any(map(leaves_loop, bodies_of(stmt)))


def counts(stmt: Any) -> bool:  # noqa: ANN401
    """Whether it makes a difference how often ``stmt`` is done, or what it gives depends on who is first."""
    names = {call_name(node) for node in nodes_of(stmt)}
    return any(name.startswith("tl.atomic_add") or "_ret_" in name for name in names)


def used_together(body: Any) -> set[object]:  # noqa: ANN401
    """The memory that tile operations and parallel loops touch, which are for all threads together."""
    found: set[object] = set()
    parts: list[Any] = []
    for node in nodes_of(body):
        kind = type(node).__name__
        if kind == "For" and int(node.kind) == PARALLEL:
            parts.append(node)
        elif call_name(node).startswith("tl.tileop."):
            parts.append(tvm.tirx.Evaluate(node))
    for part in parts:
        touched = (node for node in nodes_of(part) if hasattr(node, "buffer"))
        found |= {key_of(node.buffer.data) for node in touched}
    return found


def pointed_of(node: Any) -> list[Any]:  # noqa: ANN401
    """The element whose place ``node`` tells to somebody who may write there; none for others."""
    is_pointer = call_name(node) in ("tl.access_ptr", "tirx.address_of", "tl.region")
    return [part for part in list(node.args)[:1] if is_load(part)] if is_pointer else []


def is_load(node: Any) -> bool:  # noqa: ANN401
    """Whether ``node`` is an element of a buffer."""
    return type(node).__name__ == "BufferLoad"


def _is_register(region: Any) -> bool:  # noqa: ANN401
    load = region.args[0] if call_name(region) == "tl.region" else region
    return is_load(load) and str(load.buffer.scope()) in REGISTERS


def is_bound_to_threads(loop: Any) -> bool:  # noqa: ANN401
    """Whether a loop's variable is the thread's index in one dimension."""
    is_bound = int(loop.kind) == THREAD_BINDING
    return is_bound and str(loop.thread_binding.thread_tag).startswith("threadIdx.")


def nodes_of(stmt: Any) -> Iterator[Any]:  # noqa: ANN401
    """Everything below a statement."""
    found: list[Any] = []
    tvm.tirx.stmt_functor.post_order_visit(stmt, found.append)
    return iter(found)
