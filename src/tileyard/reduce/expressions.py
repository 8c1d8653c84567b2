"""Cuts of expressions: replace each part by 0, by 1, or by one of its operands."""

from collections.abc import Iterator

from tileyard.ir.nodes import Cast, Expr, Load, Op, Program, Stmt
from tileyard.ir.walk import children, number_statements, walk, walk_expr
from tileyard.reduce.edits import (
    Search,
    constant,
    own_expressions,
    replace_statements,
    with_own_expressions,
)


def simplify_expressions(program: Program) -> Search:
    """Simplify the parts of each statement's own expressions, from the whole down to its operands."""
    for number in range(sum(1 for _ in walk(program.body))):
        place = 0
        while True:
            stmt = dict(number_statements(program))[number]
            part = next(iter(list(_parts(stmt))[place:]), None)
            if part is None:
                break
            for simpler in _simpler(part):
                changed = _with_part(stmt, place, simpler)
                candidate = replace_statements(program, {number: (changed,)})
                if (yield candidate):
                    program = candidate
                    break
            else:
                place += 1


def _parts(stmt: Stmt) -> Iterator[Expr]:
    """All parts of the expressions of a statement, each before its operands."""
    for expr in own_expressions(stmt):
        yield from walk_expr(expr)


def _simpler(expr: Expr) -> Iterator[Expr]:
    for value in (0, 1):
        simple = constant(value, expr.dtype)
        if expr != simple:
            yield simple
    for child in children(expr):
        if child.dtype == expr.dtype and not isinstance(expr, Load):
            yield child


def _with_part(stmt: Stmt, place: int, new: Expr) -> Stmt:
    at = 0

    def changed(expr: Expr) -> Expr:
        nonlocal at
        here, at = at, at + 1
        if here == place:
            at += sum(1 for _ in walk_expr(expr)) - 1
            return new
        match expr:
            case Op():
                return Op(expr.name, tuple(map(changed, expr.args)), expr.dtype)
            case Load():
                return Load(expr.buffer, tuple(map(changed, expr.indices)), expr.dtype)
            case Cast():
                return Cast(changed(expr.value), expr.dtype)
            case _:
                return expr

    return with_own_expressions(stmt, tuple(map(changed, own_expressions(stmt))))
