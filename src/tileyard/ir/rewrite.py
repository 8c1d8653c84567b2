"""The one rewriter of Programs: it follows each statement to what it becomes.

Lines of the user's files are found by a statement's pre-order number. A rewrite changes the numbers, and keeps for each
statement of its result the number of the one from which it comes. So no pass has to know of lines.
"""

from collections.abc import Callable
from typing import assert_never

import msgspec

from tileyard.ir.nodes import (
    Assert,
    Atomic,
    Await,
    Break,
    Copy,
    Fill,
    For,
    Gemm,
    If,
    Issue,
    Let,
    Print,
    Program,
    Reduce,
    Roles,
    SparseGemm,
    Stmt,
    Store,
    Synchronization,
    While,
)
from tileyard.ir.walk import bodies

Change = Callable[[Stmt], tuple[Stmt, ...]]
"""From a statement whose bodies are rewritten already to those that take its place."""


class Rewritten(msgspec.Struct, frozen=True, kw_only=True):
    """A Program, and for each of its statements in pre-order the number of the one from which it comes."""

    program: Program
    origins: tuple[int, ...]


def rewrite(program: Program, change: Change) -> Rewritten:
    """``program`` with ``change`` applied to every statement, the innermost first.

    A statement that ``change`` makes itself comes from the one that it was given.
    """
    rewriter = _Rewriter(change)
    body = rewriter.body(program.body)
    origins = tuple(rewriter.origins_of(body, -1))
    return Rewritten(program=msgspec.structs.replace(program, body=body), origins=origins)


class _Rewriter:
    """``change`` sees each statement as an object of its own, by whose identity its origin is known."""

    def __init__(self, change: Change) -> None:
        self._change = change
        self._count = 0
        self._origins: dict[int, tuple[Stmt, int]] = {}

    def body(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """A rewritten body; equal statements, even shared ones, become objects of their own."""
        return tuple(new for stmt in body for new in self._statement(stmt))

    def _statement(self, stmt: Stmt) -> tuple[Stmt, ...]:
        number, self._count = self._count, self._count + 1
        fresh = with_bodies(stmt, tuple(self.body(inner) for inner in bodies(stmt)))
        self._origins[id(fresh)] = (fresh, number)  # kept, so that its identity stays its own
        changed = self._change(fresh)
        for new in changed:
            self._origins.setdefault(id(new), (new, number))
        return changed

    def origins_of(self, body: tuple[Stmt, ...], outer: int) -> list[int]:
        """The origins of all statements of ``body`` in pre-order; ``outer`` for those of nowhere else."""
        found = []
        for stmt in body:
            origin = self._origins[id(stmt)][1] if id(stmt) in self._origins else outer
            found.append(origin)
            for inner in bodies(stmt):
                found += self.origins_of(inner, origin)
        return found


def with_bodies(stmt: Stmt, inner: tuple[tuple[Stmt, ...], ...]) -> Stmt:
    """A new ``stmt`` with other bodies, as many as ``bodies`` gives."""
    match stmt:
        case For() | While() | Issue():
            return msgspec.structs.replace(stmt, body=inner[0])
        case If():
            return msgspec.structs.replace(stmt, then=inner[0], orelse=inner[1])
        case Roles():
            return msgspec.structs.replace(stmt, bodies=inner)
        case Let() | Store() | Atomic() | Print() | Assert() | Break() | Await():
            return msgspec.structs.replace(stmt)
        case Copy() | Fill() | Gemm() | SparseGemm() | Reduce() | Synchronization():
            return msgspec.structs.replace(stmt)
        case _:
            assert_never(stmt)
