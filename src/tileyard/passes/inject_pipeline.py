"""Writes out the pipelines of planned loops: a prologue, a steady loop, and an epilogue. In each
step a statement of stage ``s`` does the iteration that began ``s`` steps before; the prologue's
last and the epilogue's first stage has none. Each step up to the last that issues commits one
group, so each wait's count is exact.
"""

import itertools
from collections.abc import Iterator
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
from tileyard.passes.schedules import (
    Scheduled,
    find_waiting,
    is_for_roles,
    needed_lets,
    scheduled,
    without_lets,
)


@dataclass(frozen=True)
class InjectPipeline:
    """Follows the schedules of planned loops, and removes them."""

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
    """A planned loop in steps: stage ``s`` is ``s`` steps behind the first; ``lag`` is the last stage."""

    def __init__(self, loop: For, names: Names, copies: Copies) -> None:
        self._loop, self._names, self._copies = loop, names, copies
        rows = sorted(scheduled(loop), key=lambda row: row.place)
        (self._wait,) = (row.stmt for row in rows if isinstance(row.stmt, WaitGroup))
        self._rows = [row for row in rows if row.stmt is not self._wait]
        self._lag = max(row.stage for row in rows)
        self._waits = find_waiting(loop)

    def write(self) -> tuple[Stmt, ...]:
        loop, dtype = self._loop, self._loop.var.dtype
        if not self._lag:
            return (_serial(loop, loop.start, loop.extent, loop.body),)
        lets: list[Stmt] = []
        start, extent = (
            self._fixed(name, expr, lets)
            for name, expr in (("start", loop.start), ("extent", loop.extent))
        )
        if isinstance(extent, Const):
            rest: Expr = Const(max(int(extent.value) - self._lag, 0), dtype)
        else:
            rest = Op("max", (_sum(extent, Const(-self._lag, dtype)), Const(0, dtype)), dtype)
        steady, first = self._steady(start, rest), self._prologue(start, extent)
        return (*lets, *first, *steady, *self._epilogue(start, rest, extent))

    def _fixed(self, name: str, expr: Expr, lets: list[Stmt]) -> Expr:
        """``expr``, or a variable that keeps its value, because the loop may change what it reads."""
        if isinstance(expr, Const | Var):
            return expr
        var = Var(self._names.fresh(f"{self._loop.var.name}_{name}"), expr.dtype)
        lets.append(Let(var, expr))
        return var

    def _prologue(self, start: Expr, extent: Expr) -> Iterator[Stmt]:
        """The steps without an iteration for the last stage; each commits a group, even an empty one."""
        left = Const(self._waits.lag - 1, "int32")
        for first, end, var in self._runs("first", ()):
            rows = [r for r in self._rows if r.stage <= first or isinstance(r.stmt, CommitGroup)]
            wait = self._waiting(left) if first >= self._waits.first else ()
            yield _unrolled(var, first, end, self._step(rows, wait, (var, 0, start), extent))

    def _steady(self, start: Expr, rest: Expr) -> tuple[Stmt, ...]:
        """The steps with an iteration for each stage: wait for what was issued before, issue, do the rest."""
        if rest == Const(0, rest.dtype):
            return ()
        own = self._loop.var
        parts = [*self._waiting(Const(self._waits.lag - 1, "int32"))]
        for stage, rows in itertools.groupby(self._rows, key=lambda row: row.stage):
            ahead: dict[Expr, Expr] = {own: _sum(own, Const(self._lag - stage, own.dtype))}
            body = self._body(list(rows))
            parts += body if stage == self._lag else self._copies.copy(body, ahead)
        return (_serial(self._loop, start, rest, tuple(parts)),)

    def _epilogue(self, start: Expr, rest: Expr, extent: Expr) -> Iterator[Stmt]:
        """The steps without one for the first stage. After the last group each wait leaves one fewer."""
        waits, begin = self._waits, _sum(start, rest)
        waited = waits.issued + waits.lag
        for first, end, var in self._runs("last", (waited,)):
            rows = [row for row in self._rows if row.stage > first]
            left: Expr = Const(waits.lag - 1, "int32")
            if first >= waits.issued:
                left = Op("sub", (Const(waited - 1, var.dtype), var), var.dtype)
            wait = self._waiting(left) if first < waited else ()
            yield _unrolled(
                var, first, end, self._step(rows, wait, (var, self._lag, begin), extent)
            )

    def _runs(self, name: str, points: tuple[int, ...]) -> Iterator[tuple[int, int, Var]]:
        """Ranges of equal steps: first and end step, and the variable that counts them."""
        loop = self._loop.var
        places = sorted({0, *points, *(row.stage for row in self._rows)})
        for first, end in itertools.pairwise(places):
            yield first, end, Var(self._names.fresh(f"{loop.name}_{name}"), loop.dtype)

    def _step(
        self,
        rows: list[Scheduled],
        wait: tuple[Stmt, ...],
        first: tuple[Var, int, Expr],
        extent: Expr,
    ) -> tuple[Stmt, ...]:
        """A step outside of the steady loop; ``first`` is stage 0's iteration, in two parts, and
        the start.
        """
        var, number, begin = first
        found, own = list[Stmt](), self._loop.var
        groups = [list(some) for _, some in itertools.groupby(rows, key=_condition)]
        if len(groups) != 1:
            found += wait
        for group in groups:
            at = _sum(var, Const(number - group[0].stage, var.dtype))
            body = self._copies.copy(self._body(group), {own: _sum(begin, at)})
            if len(groups) == 1:
                body = (*wait, *body)
            is_sure = isinstance(group[0].stmt, CommitGroup) or (
                isinstance(extent, Const) and int(extent.value) >= self._lag
            )
            found += body if is_sure else (If(Op("lt", (at, extent), "bool"), body),)
        return tuple(found)

    def _body(self, rows: list[Scheduled]) -> tuple[Stmt, ...]:
        """Consecutive statements with the Lets that they need, at their own places if in the text's order."""
        stmts = tuple(row.stmt for row in rows)
        chosen = {id(stmt) for stmt in (*needed_lets(self._loop.body, stmts), *stmts)}
        body = tuple(stmt for stmt in self._loop.body if id(stmt) in chosen)
        if without_lets(body) == stmts:
            return body
        return (*(stmt for stmt in body if isinstance(stmt, Let)), *stmts)

    def _waiting(self, count: Expr) -> tuple[Stmt, ...]:
        return self._copies.change(
            (self._wait,), lambda stmt: msgspec.structs.replace(stmt, count=count)
        )


def _condition(row: Scheduled) -> int:
    """A key that is equal for statements under the same condition: commits are under none."""
    return -1 if isinstance(row.stmt, CommitGroup) else row.stage


def _serial(loop: For, start: Expr, extent: Expr, body: tuple[Stmt, ...]) -> For:
    kind: LoopKind = "serial"
    plain = msgspec.structs.replace(loop, kind=kind, stages=0, order=(), stage=(), group=())
    return msgspec.structs.replace(plain, start=start, extent=extent, body=body)


def _unrolled(var: Var, first: int, end: int, body: tuple[Stmt, ...]) -> For:
    return For(var, Const(first, var.dtype), Const(end - first, var.dtype), "unroll", body)


def _sum(a: Expr, b: Expr) -> Expr:
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
