"""The lanes of a nest: parallel loops within each other, and the statements between them."""

from dataclasses import dataclass
from typing import TypeGuard

from tileyard.ir.nodes import Atomic, For, If, Let, Load, Stmt, Store, Var
from tileyard.ir.walk import walk, walk_expr


@dataclass(frozen=True, kw_only=True, slots=True)
class NestPlan:
    """A nest, kept lest its identity is reused: its loops, outermost first, and what lanes do."""

    nest: For
    loops: tuple[For, ...]
    body: tuple[Stmt, ...]
    is_known: bool


SPREAD = ("parallel", "vectorized", "threads")
"""Kinds of loops whose iterations threads execute side by side."""


def is_spread(stmt: Stmt) -> TypeGuard[For]:
    """Whether ``stmt`` is a loop whose iterations have no order. A vectorized one with a store to
    the same element has one: TileLang does not vectorize it.
    """
    if not isinstance(stmt, For) or stmt.kind not in SPREAD:
        return False
    return stmt.kind != "vectorized" or not _stores_again(stmt)


def _stores_again(loop: For) -> bool:
    inside = list(walk(loop.body))
    varying = {loop.var.name, *(stmt.var.name for stmt in inside if isinstance(stmt, Let))}

    def varies(place: Store) -> bool:
        parts = (part for index in place.indices for part in walk_expr(index))
        return any(isinstance(part, Var) and part.name in varying for part in parts)

    return not all(varies(stmt) for stmt in inside if isinstance(stmt, Store))


def plan_nest(nest: For) -> NestPlan:
    """The plan of a loop that ``is_spread``."""
    loops, body = _collapse(nest)
    is_known = all(_is_known(stmt) for stmt in walk(nest.body))
    return NestPlan(nest=nest, loops=loops, body=body, is_known=is_known)


def _is_known(stmt: Stmt) -> bool:
    match stmt:
        case Let() | Store() | If():
            return True
        case Atomic():
            return stmt.var is None
        case For():
            return stmt.kind in ("serial", "unroll", *SPREAD)
        case _:
            return False


def _collapse(nest: For) -> tuple[tuple[For, ...], tuple[Stmt, ...]]:
    """The loops that make up the lanes, and what a lane does, bindings before an inner loop included."""
    *before, last = nest.body or (None,)
    if last is None or not is_spread(last) or not all(isinstance(stmt, Let) for stmt in before):
        return (nest,), nest.body
    loops, body = _collapse(last)
    bound = {nest.var.name, *(stmt.var.name for stmt in before if isinstance(stmt, Let))}
    for loop in loops:
        for part in (*walk_expr(loop.start), *walk_expr(loop.extent)):
            if isinstance(part, Load) or (isinstance(part, Var) and part.name in bound):
                return (nest,), nest.body
    return (nest, *loops), (*(stmt for stmt in before if stmt is not None), *body)
