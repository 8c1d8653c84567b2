"""Lowers TileLang's tile operations (copy, fill, gemm, reduce) to statements of the tile IR."""

from collections.abc import Callable, Sequence
from typing import Any, get_args

from tileyard.frontend.expressions import lower_expr, lower_region
from tileyard.frontend.scope import Scope
from tileyard.ir.nodes import Copy, Fill, Gemm, Reduce, ReduceKind, Stmt

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


def lower_tile_op(scope: Scope, call: Any) -> Stmt:  # noqa: ANN401 (TVM's nodes are untyped)
    """The statement that a call of a tile operation stands for; raises UnsupportedError."""
    name = str(call.op.name)
    rule = _RULES.get(name)
    if rule is None:
        return scope.refuse(name.removeprefix("tl.tileop."))
    return rule(scope, call)


def is_tile_op(call: Any) -> bool:  # noqa: ANN401
    """Whether ``call`` is one of TileLang's tile operations, covered or not."""
    return str(getattr(call.op, "name", "")).startswith("tl.tileop.")


def _check_annotations(scope: Scope, name: str, call: Any, harmless: frozenset[str]) -> None:  # noqa: ANN401
    unknown = [str(key) for key in call.annotations if str(key) not in harmless]
    if unknown:
        scope.refuse(f"{name} with {', '.join(unknown)}")


def _copy(scope: Scope, call: Any) -> Stmt:  # noqa: ANN401
    _check_annotations(scope, "copy", call, _COPY_HINTS)
    return Copy(lower_region(scope, call.args[0]), lower_region(scope, call.args[1]))


def _fill(scope: Scope, call: Any) -> Stmt:  # noqa: ANN401
    _check_annotations(scope, "fill", call, frozenset({"tl.ws_op_id"}))
    return Fill(lower_region(scope, call.args[0]), lower_expr(scope, call.args[1]))


def _flag(scope: Scope, name: str, value: Any) -> bool:  # noqa: ANN401
    if type(value).__name__ != "IntImm":
        scope.refuse(f"{name} that is not a constant")
    return bool(int(value.value))


def _gemm(scope: Scope, call: Any) -> Stmt:  # noqa: ANN401
    """``gemm``'s arguments: a, b, c, two transposes, m, n, k, policy, clear, barrier, coordinates."""
    _check_annotations(scope, "gemm", call, frozenset({"tl.ws_op_id", "k_pack"}))
    args: Sequence[Any] = list(call.args)
    if len(args) != 13:
        scope.refuse(f"gemm with {len(args)} arguments")
    if type(args[10]).__name__ != "IntImm":
        scope.refuse("gemm with a barrier")
    return Gemm(
        lower_region(scope, args[0]),
        lower_region(scope, args[1]),
        lower_region(scope, args[2]),
        transpose_a=_flag(scope, "gemm's transpose_A", args[3]),
        transpose_b=_flag(scope, "gemm's transpose_B", args[4]),
        clear=_flag(scope, "gemm's clear_accum", args[9]),
    )


def _reduce(scope: Scope, call: Any) -> Stmt:  # noqa: ANN401
    """``reduce``'s arguments: source, destination, kind, axis, clear."""
    _check_annotations(scope, "reduce", call, frozenset({"tl.ws_op_id", "batch", "enable_fadd2"}))
    args = list(call.args)
    kind = str(args[2].value)
    if len(args) != 5 or kind not in get_args(ReduceKind):
        scope.refuse(f"reduce {kind} with {len(args)} arguments")
    return Reduce(
        lower_region(scope, args[0]),
        lower_region(scope, args[1]),
        kind=kind,  # type: ignore[arg-type]
        axis=int(args[3].value),
        clear=_flag(scope, "reduce's clear", args[4]),
    )


_RULES: dict[str, Callable[[Scope, Any], Stmt]] = {
    "tl.tileop.copy": _copy,
    "tl.tileop.fill": _fill,
    "tl.tileop.gemm": _gemm,
    "tl.tileop.reduce": _reduce,
}
