"""Bodies of loops without ``continue``: what would be left out stands under a condition."""

from typing import Any

from tilelang import ir as tl_ir
from tilelang import tvm

from tileyard.frontend.thread_queries import bodies_of, call_name
from tileyard.frontend.threads import flatten


def without_continue(body: Any) -> Any:  # noqa: ANN401 (TVM's nodes are untyped)
    """The body of a loop, to the same effect. Those of loops inside it stay as they are."""
    stmts = flatten(body)
    return _sequence(_take(stmts)) if any(map(_continues, stmts)) else body


def _take(stmts: list[Any]) -> list[Any]:
    """``stmts`` up to the first that continues; what follows that goes where nobody has continued."""
    for i, stmt in enumerate(stmts):
        if _is_continue(stmt):
            return stmts[:i]
        if type(stmt).__name__ == "IfThenElse" and _continues(stmt):
            then, orelse = flatten(stmt.then_case), []
            if stmt.else_case is not None:
                orelse = flatten(stmt.else_case)
            rest = stmts[i + 1 :]
            sides = [_sequence(_take([*side, *rest])) for side in (then, orelse)]
            chosen = tvm.tirx.IfThenElse(stmt.condition, *sides)
            span = tl_ir.get_stmt_span(stmt)
            if span is not None:
                tl_ir.set_stmt_span(chosen, span)
            return [*stmts[:i], chosen]
    return stmts


def _sequence(stmts: list[Any]) -> Any:  # noqa: ANN401
    if not stmts:
        return tvm.tirx.Evaluate(0)
    return stmts[0] if len(stmts) == 1 else tvm.tirx.SeqStmt(stmts)


def _continues(stmt: Any) -> bool:  # noqa: ANN401
    """Whether ``stmt`` may go on with the next turn of the loop around it."""
    is_loop = type(stmt).__name__ in ("For", "While")
    return _is_continue(stmt) or (not is_loop and any(map(_continues, bodies_of(stmt))))


def _is_continue(stmt: Any) -> bool:  # noqa: ANN401
    return call_name(getattr(stmt, "value", None)) == "tirx.continue_loop"
