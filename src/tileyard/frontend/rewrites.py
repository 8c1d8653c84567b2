"""Rewrites TIR before it is lowered: narrow integers as C computes them, and bodies without early exits.

C computes integers of 8 and 16 bits in 32 bits until one is stored, bound or cast. TIR types ``(a << 16) +
b`` of two uint16 as uint16, but GPU code contains it unchanged and truncates no part of it: code that widens
what it computes relies on that. In vectorized loops each step does truncate, so code that depends on 32 bits
is right there by luck. Statements that ``continue`` or ``thread_return`` would skip are put under a
condition.
"""

from typing import Any

from tilelang import ir as tl_ir
from tilelang import tvm
from tilelang.transform import LegalizeNegativeIndex

from tileyard.frontend.tir_queries import bodies_of, call_name

_NARROW = {"int8": 8, "uint8": 8, "int16": 16, "uint16": 16}
_WORD = "int32"

_COMPARISONS = {"EQ", "NE", "LT", "LE", "GT", "GE"}
_CUT_LATER = {"Add", "Sub", "Mul"}
"""Operations for which C may compute a value outside their type; the last bits are the same."""
_WHOLE = {"FloorDiv", "FloorMod", "Div", "Mod", "Min", "Max"}
"""Operations that use all bits of their operands."""
_IN_C = {"FloorDiv": "Div", "FloorMod": "Mod"}
"""Replacements for divisions of unsigned integers."""
_BITWISE = ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not")
_CALLS = ("shift_left", "shift_right", *_BITWISE, "if_then_else", "abs")


def promoted(expr: Any) -> Any:  # noqa: ANN401 (TVM's nodes are untyped)
    """``expr`` with all that C does not truncate in 32 bits; ``expr`` itself if that changes nothing."""
    kind = type(expr).__name__
    if kind == "Cast":
        value = expr.value  # TVM returns another object for it each time
        wide = widened(value, expr.dtype)
        return expr if wide is value else tvm.tirx.Cast(expr.dtype, wide)
    if kind in _COMPARISONS:
        if expr.a.dtype not in _NARROW or not (_grows(expr.a) or _grows(expr.b)):
            return expr
        return getattr(tvm.tirx, kind)(_in_words(expr.a), _in_words(expr.b))
    if str(getattr(expr, "dtype", "")) not in _NARROW:
        return expr
    name = _name(expr)
    if name in ("shift_left", "shift_right"):
        needed = _may_exceed(expr) or (name == "shift_right" and _grows(expr.args[0]))
    else:
        needed = (kind in _WHOLE or name == "abs") and any(map(_grows, _operands(expr)))
    return tvm.tirx.Cast(expr.dtype, _in_words(expr)) if needed else expr


def widened(expr: Any, dtype: str) -> Any:  # noqa: ANN401
    """``expr`` in 32 bits if ``dtype`` holds more of it than its own type; otherwise ``expr`` itself."""
    bits = _NARROW.get(expr.dtype, 32)
    return _in_words(expr) if bits < _NARROW.get(dtype, 32) and _grows(expr) else expr


def _operands(expr: Any) -> list[Any]:  # noqa: ANN401
    """The operands that ``expr`` computes with in C's type for it; none if it is not arithmetic."""
    match type(expr).__name__:
        case kind if kind in _CUT_LATER or kind in _WHOLE:
            return [expr.a, expr.b]
        case "Select":
            return [expr.true_value, expr.false_value]
        case "Call" if _name(expr) == "if_then_else":
            return list(expr.args)[1:]
        case "Call" if _name(expr):
            return list(expr.args)
        case _:
            return []


def _name(expr: Any) -> str:  # noqa: ANN401
    """The name of the arithmetic operation in a call; empty for any other expression."""
    name = call_name(expr).removeprefix("tirx.")
    return name if name in _CALLS else ""


def _may_exceed(shift: Any) -> bool:  # noqa: ANN401
    """Whether a shift count may exceed the width of its type."""
    count = shift.args[1]
    known = type(count).__name__ == "IntImm"
    return not (known and 0 <= int(count.value) < _NARROW[shift.dtype])


def _grows(expr: Any) -> bool:  # noqa: ANN401
    """Whether C may compute a value for ``expr`` outside its type."""
    kind = type(expr).__name__
    name = _name(expr)
    own = kind in _CUT_LATER or name in ("shift_left", "bitwise_not", "abs")
    return own or any(map(_grows, _operands(expr)))


def _in_words(expr: Any) -> Any:  # noqa: ANN401
    kind, parts = type(expr).__name__, _operands(expr)
    if kind == "IntImm":
        return tvm.tirx.IntImm(_WORD, int(expr.value))
    if not parts:
        return tvm.tirx.Cast(_WORD, expr)
    wide = [_in_words(part) for part in parts]
    if kind == "Call":
        conditions = list(expr.args)[: len(expr.args) - len(parts)]
        return tvm.tirx.Call(_WORD, expr.op, [*conditions, *wide])
    if kind == "Select":
        return tvm.tirx.Select(expr.condition, *wide)
    is_unsigned = str(expr.dtype).startswith("u")
    return getattr(tvm.tirx, _IN_C.get(kind, kind) if is_unsigned else kind)(*wide)


def without_continue(body: Any) -> Any:  # noqa: ANN401 (TVM's nodes are untyped)
    """A loop's body without ``continue``, with the same effect; inner loops' bodies stay as they are."""
    return _without("tirx.continue_loop", body)


def without_return(body: Any) -> Any:  # noqa: ANN401
    """The code of a block's threads without returns, with the same effect; those inside of loops stay."""
    return _without("tirx.thread_return", body)


def _without(leave: str, body: Any) -> Any:  # noqa: ANN401
    stmts = tvm.tirx.stmt_list(body)
    return _sequence(_take(leave, stmts)) if any(_leaves(leave, s) for s in stmts) else body


def _take(leave: str, stmts: list[Any]) -> list[Any]:
    """``stmts`` up to the first exit; the statements after it move to the branches that have not exited."""
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
    if type(stmt).__name__ in ("For", "While"):
        return False
    return _is_leave(leave, stmt) or any(_leaves(leave, body) for body in bodies_of(stmt))


def _is_leave(leave: str, stmt: Any) -> bool:  # noqa: ANN401
    return call_name(getattr(stmt, "value", None)) == leave


def without_negative_indices(func: Any) -> Any:  # noqa: ANN401
    """Make certainly negative indices count from the end, as TileLang's pass does, which loses some
    lines. ``func`` stays as it is where TVM cannot bound unsimplified expressions.
    """
    try:
        (found,) = LegalizeNegativeIndex()(tvm.IRModule({"main": func})).functions.values()
    except tvm.error.InternalError:
        return func
    return func if tvm.ir.structural_equal(func, found, map_free_vars=True) else found
