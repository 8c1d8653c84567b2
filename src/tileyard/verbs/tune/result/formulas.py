"""Evaluates formulas over a kernel's arguments, such as ``2*M*N*K``."""

import ast
import math
import operator
from collections.abc import Callable, Mapping

from tileyard.base.errors import UsageError
from tileyard.base.model import Value

_OPERATIONS: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def evaluate(formula: str, arguments: Mapping[str, Value]) -> float:
    """The number of floating-point operations by a formula; 0 for an empty one. Raises UsageError."""
    if not formula:
        return 0.0
    try:
        number = _evaluate(ast.parse(formula.strip(), mode="eval").body, arguments)
    except KeyError as error:
        known = ", ".join(key for key, value in arguments.items() if _is_number(value))
        raise UsageError(
            f"--flops {formula}: {error.args[0]} is not a number of the kernel's arguments",
            f"these are: {known or 'none'}",
        ) from None
    except (SyntaxError, ValueError, ArithmeticError, MemoryError, RecursionError):
        number = math.nan
    if not 0 < number < math.inf:
        hint = "numbers and arguments joined by + - * / // %, for example 2*M*N*K"
        raise UsageError(f"--flops {formula} gives no number above 0", hint)
    return number


def _evaluate(node: ast.expr, arguments: Mapping[str, Value]) -> float:
    """The value of a part. Raises KeyError for an unknown name, ValueError for an unsupported part."""
    match node:
        case ast.Constant(value=value) if _is_number(value):
            return float(value)  # type: ignore[arg-type]  # a number
        case ast.Name(id=name):
            if not _is_number(arguments.get(name)):
                raise KeyError(name)
            return float(arguments[name])
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluate(operand, arguments)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
            return _OPERATIONS[type(op)](_evaluate(left, arguments), _evaluate(right, arguments))
        case _:
            raise ValueError(ast.dump(node))


def _is_number(value: object) -> bool:
    return type(value) in (int, float)
