"""Bodies without ``continue`` or ``thread_return``: what would be left out stands under a condition."""

from typing import Any

from tilelang import ir as tl_ir
from tilelang import tvm

from tileyard.frontend.tir_queries import bodies_of, call_name


def without_continue(body: Any) -> Any:  # noqa: ANN401 (TVM's nodes are untyped)
    """The body of a loop, to the same effect. Those of loops inside it stay as they are."""
    return _without("tirx.continue_loop", body)


def without_return(body: Any) -> Any:  # noqa: ANN401
    """What the threads of a block do, to the same effect, but for those who return inside of loops."""
    return _without("tirx.thread_return", body)


def _without(leave: str, body: Any) -> Any:  # noqa: ANN401
    stmts = tvm.tirx.stmt_list(body)
    return _sequence(_take(leave, stmts)) if any(_leaves(leave, s) for s in stmts) else body


def _take(leave: str, stmts: list[Any]) -> list[Any]:
    """``stmts`` up to the first that leaves; what follows that goes where nobody has left."""
    for i, stmt in enumerate(stmts):
        if _is_leave(leave, stmt):
            return stmts[:i]
        if type(stmt).__name__ == "IfThenElse" and _leaves(leave, stmt):
            cases = [
                [] if case is None else tvm.tirx.stmt_list(case)
                for case in (stmt.then_case, stmt.else_case)
            ]
            sides = [_sequence(_take(leave, [*case, *stmts[i + 1 :]])) for case in cases]
            chosen = tvm.tirx.IfThenElse(stmt.condition, *sides)
            span = tl_ir.get_stmt_span(stmt)
            if span is not None:
                tl_ir.set_stmt_span(chosen, span)
            return [*stmts[:i], chosen]
    return stmts


def _sequence(stmts: list[Any]) -> Any:  # noqa: ANN401
    return tvm.tirx.stmt_seq(*(stmts or [0]))


def _leaves(leave: str, stmt: Any) -> bool:  # noqa: ANN401
    """Whether ``stmt`` may leave the body around it."""
    if type(stmt).__name__ in ("For", "While"):
        return False
    return _is_leave(leave, stmt) or any(_leaves(leave, body) for body in bodies_of(stmt))


def _is_leave(leave: str, stmt: Any) -> bool:  # noqa: ANN401
    return call_name(getattr(stmt, "value", None)) == leave
