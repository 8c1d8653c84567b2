"""Walks over Programs: the numbering of statements, and the parts of a node in order."""

from collections.abc import Callable, Iterator

from tileyard.ir.nodes import Cast, Expr, For, If, Load, Op, Program, Roles, Stmt, While


def bodies(stmt: Stmt) -> tuple[tuple[Stmt, ...], ...]:
    """The nested bodies of ``stmt`` in order; empty for a statement that has none."""
    match stmt:
        case For() | While():
            return (stmt.body,)
        case If():
            return (stmt.then, stmt.orelse)
        case Roles():
            return stmt.bodies
        case _:
            return ()


def walk(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Every statement of ``body`` in pre-order: a statement first, then its nested bodies."""
    for stmt in body:
        yield stmt
        for inner in bodies(stmt):
            yield from walk(inner)


def number_statements(program: Program) -> Iterator[tuple[int, Stmt]]:
    """Each statement with its pre-order number from 0: the key of every map of source lines."""
    return enumerate(walk(program.body))


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct parts of an expression, left to right."""
    match expr:
        case Op():
            return expr.args
        case Load():
            return expr.indices
        case Cast():
            return (expr.value,)
        case _:
            return ()


def walk_expr(expr: Expr) -> Iterator[Expr]:
    """``expr`` and all its parts in pre-order."""
    yield expr
    for child in children(expr):
        yield from walk_expr(child)


def convert(expr: Expr, dtype: str) -> Expr:
    """``expr`` in ``dtype``: itself where that is its own."""
    return expr if expr.dtype == dtype else Cast(expr, dtype)


def replace_parts(expr: Expr, known: Callable[[Expr], Expr | None]) -> Expr:
    """``expr`` with every part for which ``known`` has something else."""
    other = known(expr)
    if other is not None:
        return other
    match expr:
        case Op():
            return Op(expr.name, tuple(replace_parts(arg, known) for arg in expr.args), expr.dtype)
        case Load():
            return Load(
                expr.buffer, tuple(replace_parts(at, known) for at in expr.indices), expr.dtype
            )
        case Cast():
            return Cast(replace_parts(expr.value, known), expr.dtype)
        case _:
            return expr
