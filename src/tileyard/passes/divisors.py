"""Finds a number that certainly divides an expression: this proves that addresses are aligned."""

import math
from collections.abc import Mapping

from tileyard.ir.nodes import Cast, Const, Expr, Op, Var


def find_divisor(expr: Expr, lets: Mapping[str, Expr]) -> int:
    """A number that divides ``expr``; 0 if ``expr`` is 0."""
    match expr:
        case Const(value=value):
            return abs(int(value))
        case Var(name=name) if name in lets:
            return find_divisor(lets[name], lets)
        case Cast(value=value):
            return find_divisor(value, lets)
        case Op(name="mul", args=(a, b)):
            return find_divisor(a, lets) * find_divisor(b, lets)
        case Op(name="floordiv" | "truncdiv", args=(a, Const(value=by))) if int(by) > 0:
            whole, left = divmod(find_divisor(a, lets), int(by))
            return 1 if left else whole
        case Op(name="add" | "sub" | "min" | "max", args=(a, b)):
            return math.gcd(find_divisor(a, lets), find_divisor(b, lets))
        case _:
            return 1
