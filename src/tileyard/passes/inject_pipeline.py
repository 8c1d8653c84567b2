"""Writes the pipelines of planned loops out: a prologue, a steady loop, and an epilogue.

With a lag of ``d`` iterations the prologue issues the first ``d``, iteration ``k`` of the steady loop issues ``k + d``, and the
epilogue does the last ``d`` that are left. The prologue commits ``d`` groups however few iterations there are, so the number of
groups behind the one that is waited for is known at each wait, and each count is exact.
"""

from dataclasses import dataclass

import msgspec

from tileyard.ir.nodes import (
    CommitGroup,
    Const,
    Expr,
    For,
    If,
    Let,
    LoopKind,
    Op,
    Program,
    Stmt,
    Var,
    WaitGroup,
)
from tileyard.ir.rewrite import Copies, Names, rewrite
from tileyard.passes.base import Passed
from tileyard.passes.schedules import is_for_roles, needed_lets, scheduled, without_lets


@dataclass(frozen=True)
class InjectPipeline:
    """Follows the schedules of planned loops, which are gone afterwards."""

    name: str = "inject-pipeline"

    def run(self, program: Program) -> Passed:
        """Write pipelines out."""
        names = Names(program)
        copies = Copies(names)

        def change(stmt: Stmt) -> tuple[Stmt, ...]:
            if isinstance(stmt, For) and scheduled(stmt) and not is_for_roles(stmt):
                return _Pipeline(stmt, names, copies).write()
            return (stmt,)

        done = rewrite(program, change, copies)
        return Passed(program=done.program, origins=done.origins)


class _Pipeline:
    """One planned loop, whose last statements are ``lag`` iterations late.

    ``ahead`` issues and commits, ``late`` is what follows the wait; each has the Lets that it needs.
    """

    def __init__(self, loop: For, names: Names, copies: Copies) -> None:
        self._loop, self._names, self._copies = loop, names, copies
        rows = scheduled(loop)
        self._lag = max(row.stage for row in rows)
        (self._wait,) = (row.stmt for row in rows if isinstance(row.stmt, WaitGroup))
        ahead = tuple(row.stmt for row in rows if row.stage < self._lag)
        first = {id(stmt) for stmt in (*ahead, self._wait)}
        late = tuple(stmt for stmt in loop.body if id(stmt) not in first)
        needed = {id(let) for let in needed_lets(loop.body, without_lets(late))}
        self._ahead = (*needed_lets(loop.body, ahead), *ahead)
        self._late = tuple(s for s in late if not isinstance(s, Let) or id(s) in needed)

    def write(self) -> tuple[Stmt, ...]:
        """The statements that take the place of the loop."""
        loop, dtype = self._loop, self._loop.var.dtype
        if not self._lag:
            return (_serial(loop, loop.start, loop.extent, loop.body),)
        lets: list[Stmt] = []
        start, extent = (
            self._fixed(name, expr, lets)
            for name, expr in (("start", loop.start), ("extent", loop.extent))
        )
        if isinstance(extent, Const):  # a plan has no larger lag
            rest: Expr = Const(int(extent.value) - self._lag, dtype)
        else:
            rest = Op("max", (_sum(extent, Const(-self._lag, dtype)), Const(0, dtype)), dtype)
        steady = self._steady(start, rest)
        return (*lets, self._prologue(start, extent), *steady, self._epilogue(start, rest, extent))

    def _fixed(self, name: str, expr: Expr, lets: list[Stmt]) -> Expr:
        """``expr``, or a variable that keeps its value, because the loop may change what it reads."""
        if isinstance(expr, Const | Var):
            return expr
        var = Var(self._names.fresh(f"{self._loop.var.name}_{name}"), expr.dtype)
        lets.append(Let(var, expr))
        return var

    def _variable(self, name: str) -> Var:
        loop = self._loop.var
        return Var(self._names.fresh(f"{loop.name}_{name}"), loop.dtype)

    def _prologue(self, start: Expr, extent: Expr) -> Stmt:
        """Issue the first iterations, and commit one group for each, even if there is no such iteration."""
        var, own = self._variable("first"), self._loop.var
        body = self._copies.copy(self._ahead, {own: _sum(var, start)})
        issues, commits = _split(body)
        return _unrolled(var, self._lag, (*_where(var, extent, issues), *commits))

    def _steady(self, start: Expr, rest: Expr) -> tuple[Stmt, ...]:
        """Wait for an iteration, issue the one that is ahead of it by the lag, and do what is late."""
        if rest == Const(0, rest.dtype):
            return ()
        own = self._loop.var
        ahead = self._copies.copy(self._ahead, {own: _sum(own, Const(self._lag, own.dtype))})
        wait = self._waiting(Const(self._lag - 1, "int32"))
        return (_serial(self._loop, start, rest, (wait, *ahead, *self._late)),)

    def _epilogue(self, start: Expr, rest: Expr, extent: Expr) -> Stmt:
        """Wait for the iterations that are left and do what is late; each wait leaves one group less than that before."""
        var, own = self._variable("last"), self._loop.var
        body = self._copies.copy(self._late, {own: _sum(_sum(start, rest), var)})
        left = Op("sub", (Const(self._lag - 1, var.dtype), var), var.dtype)
        return _unrolled(var, self._lag, _where(var, extent, (self._waiting(left), *body)))

    def _waiting(self, count: Expr) -> Stmt:
        """The wait, with a count of its own."""
        (wait,) = self._copies.change(
            (self._wait,), lambda stmt: msgspec.structs.replace(stmt, count=count)
        )
        return wait


def _serial(loop: For, start: Expr, extent: Expr, body: tuple[Stmt, ...]) -> For:
    """``loop`` as one that does an iteration after the other."""
    kind: LoopKind = "serial"
    plain = msgspec.structs.replace(loop, kind=kind, stages=0, order=(), stage=(), group=())
    return msgspec.structs.replace(plain, start=start, extent=extent, body=body)


def _unrolled(var: Var, count: int, body: tuple[Stmt, ...]) -> For:
    return For(var, Const(0, var.dtype), Const(count, var.dtype), "unroll", body)


def _where(var: Var, extent: Expr, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """``body`` where there is an iteration of this number; a constant ``extent`` is known to be enough."""
    return body if isinstance(extent, Const) else (If(Op("lt", (var, extent), "bool"), body),)


def _split(body: tuple[Stmt, ...]) -> tuple[tuple[Stmt, ...], tuple[Stmt, ...]]:
    """What issues, and what commits."""
    commits = tuple(stmt for stmt in body if isinstance(stmt, CommitGroup))
    return tuple(stmt for stmt in body if not isinstance(stmt, CommitGroup)), commits


def _sum(a: Expr, b: Expr) -> Expr:
    """``a + b``, shorter where one of them is a number."""
    if isinstance(a, Const) and isinstance(b, Const):
        return Const(int(a.value) + int(b.value), a.dtype)
    if isinstance(a, Const):
        a, b = b, a
    if not isinstance(b, Const):
        return Op("add", (a, b), a.dtype)
    if not b.value:
        return a
    name, value = ("sub", -int(b.value)) if int(b.value) < 0 else ("add", int(b.value))
    return Op(name, (a, Const(value, a.dtype)), a.dtype)
