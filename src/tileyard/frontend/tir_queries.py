"""What a TIR statement or expression is, asked before it is lowered."""

from typing import Any

from tilelang import tvm

PARALLEL = 1
"""The kind of a TIR loop whose iterations are spread over the threads."""

THREAD_BINDING = 4
"""The kind of a TIR loop that is one dimension of a launch."""


def is_one(expr: Any) -> bool:  # noqa: ANN401 (TVM's nodes are untyped)
    """Whether a TIR expression is the number 1."""
    return type(expr).__name__ == "IntImm" and int(expr.value) == 1


def is_zero(expr: Any) -> bool:  # noqa: ANN401
    """Whether a TIR expression is the number 0."""
    value = getattr(expr, "value", expr)
    return isinstance(value, int | float) and value == 0


def constant_of(condition: Any) -> bool | None:  # noqa: ANN401
    """The value of a condition that is always the same and has no effect; None for another one."""

    def visit(node: Any) -> None:  # noqa: ANN401
        calls.extend([node] if type(node).__name__ == "Call" else [])

    calls: list[Any] = []
    tvm.tirx.stmt_functor.post_order_visit(tvm.tirx.Evaluate(condition), visit)
    simple = condition if calls else tvm.arith.Analyzer().simplify(condition)
    return bool(int(simple.value)) if type(simple).__name__ == "IntImm" else None


def without_dead_branches(body: Any) -> Any:  # noqa: ANN401
    """``body`` without what stands under conditions that never hold for what it was elaborated with."""

    def choose(stmt: Any) -> Any:  # noqa: ANN401
        chosen = constant_of(stmt.condition)
        if chosen is None:
            return None
        side = stmt.then_case if chosen else stmt.else_case
        return tvm.tirx.Evaluate(0) if side is None else side

    transform = tvm.tirx.stmt_functor.ir_transform
    return transform(body, lambda _: None, choose, ["tirx.IfThenElse"])


def count_launches(stmt: Any) -> int:  # noqa: ANN401
    """How many grids a function launches."""
    found = 0

    def visit(node: Any) -> None:  # noqa: ANN401
        nonlocal found
        if type(node).__name__ == "For" and int(node.kind) == THREAD_BINDING:
            found += str(node.thread_binding.thread_tag) == "blockIdx.x"

    tvm.tirx.stmt_functor.post_order_visit(stmt, visit)
    return found
