"""Divisors from beyond the edge of an array: a ragged tile is filled with zeros there, and divided by all the same.

What lies beyond an edge is a number on a GPU, too, and what is made of it is not stored. So a divisor that is
0 for this reason is 1; any other 0 is the kernel's fault. What is stored into an array itself is not computed beyond
its edge.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import count

import msgspec

from tileyard.ir.effects import own_effects
from tileyard.ir.nodes import (
    Buffer,
    Cast,
    Const,
    Copy,
    Expr,
    Fill,
    For,
    If,
    Let,
    Load,
    Op,
    Program,
    Roles,
    Stmt,
    Store,
    Tensor,
    Var,
    While,
)
from tileyard.ir.ranges import Ranges
from tileyard.ir.verify_exprs import is_one
from tileyard.ir.walk import walk, walk_expr

_DIVISIONS = frozenset({"floordiv", "floormod", "truncdiv", "truncmod"})


class _Source(msgspec.Struct, frozen=True, kw_only=True):
    """The elements from which the element of a tile at ``indices`` is made."""

    indices: tuple[Var, ...]
    loads: tuple[Load, ...]


def guard_divisors(program: Program) -> Program:
    """``program`` with a condition at each divisor that may be from beyond an edge; equal statements else."""
    return msgspec.structs.replace(program, body=_Guard(program).body(program.body))


class _Guard:
    def __init__(self, program: Program) -> None:
        params = (param.buffer for param in program.params if isinstance(param, Tensor))
        self._buffers = {buffer.name: buffer for buffer in (*params, *program.buffers)}
        self._sources = _find_sources(program, self._buffers)
        self._ranges = Ranges(program)
        known = (*program.dims, *(axis.var for axis in program.grid))
        self._bound = {var.name for var in known}

    def body(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """The statements of one body; what they bind is bound in it alone."""
        outside = set(self._bound)
        found = tuple(map(self._stmt, body))
        self._bound = outside
        return found

    def _stmt(self, stmt: Stmt) -> Stmt:
        replace = msgspec.structs.replace
        match stmt:
            case Let():
                self._bound.add(stmt.var.name)
                return replace(stmt, value=self._expr(stmt.value))
            case Store() if self._buffers[stmt.buffer].scope != "global":
                return replace(stmt, value=self._expr(stmt.value))
            case For():
                self._ranges.bind_loop(stmt)
                self._bound.add(stmt.var.name)
                return replace(stmt, body=self.body(stmt.body))
            case While():
                return replace(stmt, body=self.body(stmt.body))
            case If():
                return replace(stmt, then=self.body(stmt.then), orelse=self.body(stmt.orelse))
            case Roles():
                return replace(stmt, bodies=tuple(map(self.body, stmt.bodies)))
            case _:
                return stmt

    def _expr(self, expr: Expr) -> Expr:
        match expr:
            case Cast():
                return Cast(self._expr(expr.value), expr.dtype)
            case Op():
                args = tuple(map(self._expr, expr.args))
                if expr.name in _DIVISIONS:
                    args = (args[0], self._guarded(args[1]))
                return Op(expr.name, args, expr.dtype)
            case _:
                return expr

    def _guarded(self, divisor: Expr) -> Expr:
        """``divisor``, or 1 where it is 0 and made of something beyond an edge."""
        tests = list(dict.fromkeys(self._beyond([divisor], frozenset())))
        if not tests:
            return divisor
        is_beyond = tests[0]
        for test in tests[1:]:
            is_beyond = Op("or", (is_beyond, test), "bool")
        is_zero = Op("eq", (divisor, Const(0, divisor.dtype)), "bool")
        cond = Op("and", (is_zero, is_beyond), "bool")
        return Op("select", (cond, Const(1, divisor.dtype), divisor), divisor.dtype)

    def _beyond(self, exprs: Iterable[Expr], seen: frozenset[str]) -> Iterable[Expr]:
        """Conditions of which one holds where something in ``exprs`` is, or is made of, what lies beyond an edge."""
        for load in (load for expr in exprs for load in _loads(expr)):
            buffer, source = self._buffers[load.buffer], self._sources.get(load.buffer)
            if buffer.scope == "global":
                yield from self._outside(load, buffer)
            elif source is not None and load.buffer not in seen:
                pairs = zip(source.indices, load.indices, strict=True)
                known = {var: _as(index, var.dtype) for var, index in pairs}
                inner = tuple(_substitute(part, known) for part in source.loads)
                yield from self._beyond(inner, seen | {load.buffer})

    def _outside(self, load: Load, buffer: Buffer) -> Iterable[Expr]:
        parts = [part for index in load.indices for part in walk_expr(index)]
        names = {part.name for part in parts if isinstance(part, Var)}
        if not names <= self._bound or any(map(_is_load, parts)):
            return
        for index, extent in zip(load.indices, buffer.shape, strict=True):
            if self._ranges.of(index).low < 0:
                yield Op("lt", (index, Const(0, index.dtype)), "bool")
            if not self._ranges.is_below(index, extent):
                sides = (
                    (index, extent)
                    if index.dtype == extent.dtype
                    else tuple(Cast(side, "int64") for side in (index, extent))
                )
                yield Op("ge", sides, "bool")


def _find_sources(program: Program, buffers: Mapping[str, Buffer]) -> dict[str, _Source]:
    """The tiles that one statement alone fills, clears aside, and what it fills them with."""
    shared = {buffer.view_of for buffer in program.buffers}
    found: dict[str, _Source | None] = {}
    numbers = count()
    for stmt in walk(program.body):
        if isinstance(stmt, Fill):
            continue
        for name in own_effects(stmt).written:
            found[name] = None if name in found else _source(stmt, buffers[name], numbers)
    return {
        name: source
        for name, source in found.items()
        if source is not None and name not in shared and not buffers[name].view_of
    }


def _source(stmt: Stmt, tile: Buffer, numbers: Iterator[int]) -> _Source | None:
    match stmt:
        case Store(indices=places):
            indices = tuple(place for place in places if isinstance(place, Var))
            is_each = len(set(indices)) == len(places)
            return _Source(indices=indices, loads=_loads(stmt.value)) if is_each else None
        case Copy(src=src, dst=dst) if dst.extents == tile.shape:
            if any(start != Const(0, start.dtype) for start in dst.starts):
                return None
            indices = tuple(Var(f"at {next(numbers)}", "int32") for _ in tile.shape)
            wide = [i for i, e in zip(indices, dst.extents, strict=True) if not is_one(e)]
            spread = [not is_one(extent) for extent in src.extents]
            if sum(spread) != len(wide):
                return None
            moved = iter(wide)
            starts = tuple(
                Op("add", (_as(start, "int32"), next(moved)), "int32") if is_wide else start
                for start, is_wide in zip(src.starts, spread, strict=True)
            )
            return _Source(indices=indices, loads=(Load(src.buffer, starts, tile.dtype),))
        case _:
            return None


def _is_load(expr: Expr) -> bool:
    return isinstance(expr, Load)


def _loads(expr: Expr) -> tuple[Load, ...]:
    return tuple(part for part in walk_expr(expr) if isinstance(part, Load))


def _as(expr: Expr, dtype: str) -> Expr:
    return expr if expr.dtype == dtype else Cast(expr, dtype)


def _substitute(expr: Expr, known: Mapping[Var, Expr]) -> Expr:
    match expr:
        case Var():
            return known.get(expr, expr)
        case Cast():
            return Cast(_substitute(expr.value, known), expr.dtype)
        case Load():
            indices = tuple(_substitute(index, known) for index in expr.indices)
            return Load(expr.buffer, indices, expr.dtype)
        case Op():
            return Op(expr.name, tuple(_substitute(arg, known) for arg in expr.args), expr.dtype)
        case _:
            return expr
