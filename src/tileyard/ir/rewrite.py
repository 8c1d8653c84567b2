"""The one rewriter of Programs: it tracks which statement each one comes from, by pre-order number.
The user's lines are found by that number, so passes need not know about lines.
"""

import itertools
import re
from collections.abc import Callable, Mapping
from typing import assert_never

import msgspec

from tileyard.ir.nodes import (
    Assert,
    Atomic,
    Await,
    Break,
    Cast,
    Const,
    Expr,
    For,
    If,
    Issue,
    Let,
    Load,
    Op,
    Print,
    Program,
    Region,
    Roles,
    Scalar,
    Stmt,
    Store,
    Synchronization,
    TileOperation,
    Var,
    While,
)
from tileyard.ir.walk import bodies, replace_parts, walk

_NUMBER = re.compile(r"_\d+$")

Change = Callable[[Stmt], tuple[Stmt, ...]]
"""Maps a statement whose bodies are already rewritten to the statements that replace it."""


class Rewritten(msgspec.Struct, frozen=True, kw_only=True):
    """A Program, and for each of its statements in pre-order the number of the one it comes from."""

    program: Program
    origins: tuple[int, ...]


class Names:
    """The names of a Program, which are ``taken``; ``fresh`` finds new ones."""

    def __init__(self, program: Program) -> None:
        params = (
            param.var.name if isinstance(param, Scalar) else param.buffer.name
            for param in program.params
        )
        variables = (var.name for var in (*program.dims, *(axis.var for axis in program.grid)))
        bound = (
            stmt.var.name
            for stmt in walk(program.body)
            if isinstance(stmt, Let | For | Atomic) and stmt.var is not None
        )
        self.taken = {*params, *variables, *bound, *(buffer.name for buffer in program.buffers)}

    def fresh(self, wanted: str) -> str:
        """``wanted`` or, if that is taken, the same with a number."""
        others = (f"{wanted}_{i}" for i in itertools.count(1))
        name = next(n for n in itertools.chain([wanted], others) if n not in self.taken)
        self.taken.add(name)
        return name

    def copy_of(self, name: str) -> str:
        """A fresh name for a copy: ``name`` with another number."""
        return self.fresh(_NUMBER.sub("", name))


class Copies:
    """Makes copies of statements, and keeps the source of each copy."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self.sources: dict[int, tuple[Stmt, Stmt]] = {}
        """By the identity of a copy: the copy, so that its identity is not reused, and its source."""

    def copy(self, body: tuple[Stmt, ...], known: Mapping[Expr, Expr]) -> tuple[Stmt, ...]:
        """``body`` with the ``known`` expressions replaced, and new names for the variables that it binds."""
        bound = [
            stmt.var
            for stmt in walk(body)
            if isinstance(stmt, Let | For | Atomic) and stmt.var is not None
        ]
        replaced = dict(known)
        replaced |= {var: Var(self._names.copy_of(var.name), var.dtype) for var in bound}
        return self.change(
            body, lambda s: with_expressions(s, lambda e: replace_parts(e, replaced.get))
        )

    def change(self, body: tuple[Stmt, ...], change: Callable[[Stmt], Stmt]) -> tuple[Stmt, ...]:
        """``body`` with ``change`` applied to the own fields of each statement in it."""
        return tuple(self._changed(stmt, change) for stmt in body)

    def derive(self, new: Stmt, source: Stmt) -> Stmt:
        """``new`` as a separate object, which comes from ``source``."""
        self.sources[id(new)] = (new, source)
        return new

    def _changed(self, stmt: Stmt, change: Callable[[Stmt], Stmt]) -> Stmt:
        inner = tuple(self.change(body, change) for body in bodies(stmt))
        return self.derive(change(with_bodies(stmt, inner)), stmt)


def rewrite(program: Program, change: Change, copies: Copies | None = None) -> Rewritten:
    """``program`` with ``change`` applied to every statement, innermost first. What ``change``
    makes comes from its argument, one of its ``copies`` from its source.
    """
    rewriter = _Rewriter(change, {} if copies is None else copies.sources)
    body = rewriter.body(program.body)
    origins = tuple(rewriter.origins_of(body, -1))
    return Rewritten(program=msgspec.structs.replace(program, body=body), origins=origins)


def rewrite_body(
    program: Program, change: Callable[[tuple[Stmt, ...]], tuple[Stmt, ...]], copies: Copies
) -> Rewritten:
    """``program`` with its body replaced by ``change`` of it, which receives each statement as a
    separate object. Others but copies come from the statement around them, -1 if there is none.
    """
    rewriter = _Rewriter(lambda stmt: (stmt,), copies.sources)
    body = change(rewriter.body(program.body))
    origins = tuple(rewriter.origins_of(body, -1))
    return Rewritten(program=msgspec.structs.replace(program, body=body), origins=origins)


class _Rewriter:
    """``change`` sees each statement as a separate object, whose identity determines its origin."""

    def __init__(self, change: Change, copies: Mapping[int, tuple[Stmt, Stmt]]) -> None:
        self._change = change
        self._copies = copies
        self._count = 0
        self._origins: dict[int, tuple[Stmt, int]] = {}

    def body(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """A rewritten body; equal statements, even shared ones, become separate objects."""
        return tuple(new for stmt in body for new in self._statement(stmt))

    def _statement(self, stmt: Stmt) -> tuple[Stmt, ...]:
        number, self._count = self._count, self._count + 1
        fresh = with_bodies(stmt, tuple(self.body(inner) for inner in bodies(stmt)))
        self._origins[id(fresh)] = (fresh, number)  # kept, so that its identity is not reused
        changed = self._change(fresh)
        for new in changed:
            if id(new) not in self._copies:
                self._origins.setdefault(id(new), (new, number))
        return changed

    def origins_of(self, body: tuple[Stmt, ...], outer: int) -> list[int]:
        """The origins of all statements of ``body`` in pre-order; ``outer`` for statements without one."""
        found = []
        for stmt in body:
            source = stmt
            while id(source) in self._copies:
                source = self._copies[id(source)][1]
            origin = self._origins[id(source)][1] if id(source) in self._origins else outer
            found.append(origin)
            for inner in bodies(stmt):
                found += self.origins_of(inner, origin)
        return found


def with_bodies(stmt: Stmt, inner: tuple[tuple[Stmt, ...], ...]) -> Stmt:
    """A new ``stmt`` with these bodies, as many as ``bodies`` returns."""
    match stmt:
        case For() | While() | Issue():
            return msgspec.structs.replace(stmt, body=inner[0])
        case If():
            return msgspec.structs.replace(stmt, then=inner[0], orelse=inner[1])
        case Roles():
            return msgspec.structs.replace(stmt, bodies=inner)
        case Let() | Store() | Atomic() | Print() | Assert() | Break() | Await():
            return msgspec.structs.replace(stmt)
        case TileOperation() | Synchronization():
            return msgspec.structs.replace(stmt)
        case _:
            assert_never(stmt)


def with_expressions(
    stmt: Stmt, change: Callable[[Expr], Expr], region: Callable[[Region], Region] | None = None
) -> Stmt:
    """``stmt`` with its own expressions changed, bound variables, too, then regions by ``region``."""

    def changed(value: object) -> object:
        match value:
            case Const() | Var() | Load() | Op() | Cast():
                return change(value)
            case Region(buffer=buffer, starts=starts, extents=extents):
                new = Region(buffer, tuple(map(change, starts)), tuple(map(change, extents)))
                return new if region is None else region(new)
            case (Const() | Var() | Load() | Op() | Cast(), *_):
                return tuple(map(changed, value))
            case _:
                return value

    fields = {name: changed(getattr(stmt, name)) for name in stmt.__struct_fields__}
    return msgspec.structs.replace(stmt, **fields)
