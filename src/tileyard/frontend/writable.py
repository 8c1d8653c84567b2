"""Brings a Program into the form that TileLang accepts, without changing what it does. Unrolled
loops are written out for waits' counts to be numbers, names of numbers replaced, asynchronous
copies issued one by one, and no loop requests stages, which TileLang would pipeline again.
"""

from collections.abc import Iterator

import msgspec

from tileyard.ir.nodes import (
    Const,
    Expr,
    For,
    If,
    Issue,
    Let,
    LoopKind,
    Program,
    Stmt,
    Sync,
    Var,
    WaitGroup,
)
from tileyard.ir.ranges import folded
from tileyard.ir.rewrite import Copies, Names, Rewritten, rewrite, with_bodies, with_expressions
from tileyard.ir.walk import bodies, replace_parts, walk


def make_writable(program: Program) -> Rewritten:
    """``program`` in the form to be written; each of its statements is a separate object."""
    copies = Copies(Names(program))
    first = rewrite(program, lambda stmt: tuple(_unrolled(stmt, copies)), copies)
    known = dict(_numbers(first.program.body))
    second = rewrite(first.program, lambda stmt: tuple(_simple(stmt, known)))
    origins = tuple(first.origins[origin] for origin in second.origins)
    return Rewritten(program=second.program, origins=origins)


def _unrolled(stmt: Stmt, copies: Copies) -> Iterator[Stmt]:
    """Write out an unrolled loop in which a wait depends on the iteration."""
    match stmt:
        case For(kind="unroll", start=Const(value=start), extent=Const(value=extent)) if any(
            isinstance(s, WaitGroup) and not isinstance(s.count, Const) for s in walk(stmt.body)
        ):
            for number in range(int(start), int(start) + int(extent)):
                yield from copies.copy(stmt.body, {stmt.var: Const(number, stmt.var.dtype)})
        case For(kind="pipelined"):
            kind: LoopKind = "serial"
            yield msgspec.structs.replace(stmt, kind=kind, stages=0, order=(), stage=(), group=())
        case Issue():
            yield from _issued(stmt, stmt.body)
        case Sync(given=True):
            pass
        case _:
            yield stmt


def _issued(issue: Issue, body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """One issue per operation, in the branches and loops around it."""
    for stmt in body:
        is_nest = isinstance(stmt, For) and stmt.kind == "parallel"
        if bodies(stmt) and not is_nest:
            inner = tuple(tuple(_issued(issue, part)) for part in bodies(stmt))
            yield with_bodies(stmt, inner)
        else:
            yield msgspec.structs.replace(issue, body=(stmt,))


def _numbers(body: tuple[Stmt, ...]) -> Iterator[tuple[Expr, Expr]]:
    """The variables that equal a number or another variable, with their values."""
    known: dict[Expr, Expr] = {}
    for stmt in walk(body):
        if isinstance(stmt, Let):
            value = folded(replace_parts(stmt.value, known.get))
            if isinstance(value, Const | Var):
                known[stmt.var] = value
    yield from known.items()


def _simple(stmt: Stmt, known: dict[Expr, Expr]) -> Iterator[Stmt]:
    if isinstance(stmt, Let) and stmt.var in known:
        return
    new = with_expressions(stmt, lambda expr: folded(replace_parts(expr, known.get)))
    match new:
        case If(cond=Const(value=holds)):
            yield from new.then if holds else new.orelse
        case If(then=(), orelse=()):
            pass
        case _:
            yield new
