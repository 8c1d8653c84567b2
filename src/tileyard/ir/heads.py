"""Finds declarations in the text of a Program: what stands before its statements."""

import ast
from collections.abc import Sequence

SCOPES = ("memory", "shared", "fragment", "local")
"""What a buffer that is no parameter is declared with."""


def is_declaration(stmt: ast.stmt) -> bool:
    """Whether ``stmt`` belongs to the head: the threads, or a name with a scope or no value."""
    if isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Call):
        return isinstance(stmt.value.func, ast.Name) and stmt.value.func.id == "threads"
    if not isinstance(stmt, ast.AnnAssign):
        return False
    return stmt.value is None or prefix_of(stmt.annotation) in SCOPES


def prefix_of(note: ast.expr) -> str:
    """The first word of a type: ``grid`` of ``grid.int64[8]``, ``shared`` of ``shared.float32[8]``."""
    match note:
        case ast.Name(id=name):
            return name
        case ast.Subscript(value=inner) | ast.Attribute(value=inner) | ast.BinOp(left=inner):
            return prefix_of(inner)
        case _:
            return ""


def annotated(head: Sequence[ast.stmt], *words: str) -> list[ast.AnnAssign]:
    """The declarations of ``head`` whose type begins with one of ``words``."""
    return [s for s in head if isinstance(s, ast.AnnAssign) and prefix_of(s.annotation) in words]
