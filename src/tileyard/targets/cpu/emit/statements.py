"""Statements in C: loops, branches, bindings and single elements; tile operations are passed on."""

from collections.abc import Iterable, Iterator
from typing import assert_never

from tileyard.errors import UnsupportedError
from tileyard.ir.effects import buffer_effects, expressions
from tileyard.ir.nodes import (
    Break,
    Const,
    Copy,
    Expr,
    Fill,
    For,
    Gemm,
    If,
    Let,
    Load,
    Op,
    Reduce,
    Stmt,
    Store,
    Var,
    While,
)
from tileyard.ir.text import print_statement
from tileyard.ir.walk import walk, walk_expr
from tileyard.model import SourceLine
from tileyard.targets.cpu.emit import clearing
from tileyard.targets.cpu.emit.context import Bound, Context, add
from tileyard.targets.cpu.emit.copies import emit_copy
from tileyard.targets.cpu.emit.exprs import condition, element, index, index_term, to_memory, value
from tileyard.targets.cpu.emit.fills import emit_fill
from tileyard.targets.cpu.emit.gemms import emit_gemm
from tileyard.targets.cpu.emit.operators import cast
from tileyard.targets.cpu.emit.reductions import emit_reduce
from tileyard.targets.cpu.emit.scalars import SCALARS


class Statements:
    """Writes bodies. ``lines`` are only for messages: no C text depends on them."""

    def __init__(self, ctx: Context, lines: dict[int, SourceLine]) -> None:
        self._ctx = ctx
        self._lines = lines
        self._parallel = False

    def body(self, body: tuple[Stmt, ...], number: int) -> None:
        """Write statements in order; ``number`` is the first one's pre-order number."""
        for stmt in body:
            try:
                self._stmt(stmt, number)
            except UnsupportedError as error:
                if not error.file and number in self._lines:
                    error.file = self._lines[number].file
                    error.line = self._lines[number].line
                raise
            number += sum(1 for _ in walk((stmt,)))

    def _stmt(self, stmt: Stmt, number: int) -> None:
        out = self._ctx.out
        if not self._parallel:
            clearing.settle(self._ctx, stmt)
        match stmt:
            case Let():
                self._let(stmt)
            case Store():
                self._store(stmt)
            case For():
                self._for(stmt, number)
            case If():
                with out.block(f"if ({value(self._ctx, stmt.cond)})"):
                    self.body(stmt.then, number + 1)
                if stmt.orelse:
                    with out.block("else"):
                        self.body(stmt.orelse, number + 1 + sum(1 for _ in walk(stmt.then)))
            case While():
                with out.block(f"while ({value(self._ctx, stmt.cond)})"):
                    self.body(stmt.body, number + 1)
            case Break():
                out.line("break;")
            case Copy() | Fill() | Gemm() | Reduce():
                self._tile(stmt)
            case _:
                assert_never(stmt)

    def _tile(self, stmt: Copy | Fill | Gemm | Reduce) -> None:
        ctx = self._ctx
        ctx.out.line(f"/* {print_statement(ctx.program, stmt).strip()} */")
        with ctx.out.block(""):
            match stmt:
                case Copy():
                    self._copy(stmt)
                case Fill():
                    emit_fill(ctx, stmt)
                case Gemm():
                    emit_gemm(ctx, stmt)
                case Reduce():
                    emit_reduce(ctx, stmt)
                case _:
                    assert_never(stmt)

    def _copy(self, stmt: Copy) -> None:
        """A copy, unless an earlier block has left what it would make."""
        ctx, buffer = self._ctx, stmt.dst.buffer
        kept = ctx.plan.kept.get(buffer)
        if kept is None:
            emit_copy(ctx, stmt.src, stmt.dst)
            return
        tile, name = ctx.plan.tiles[buffer], ctx.names[buffer]
        ctx.out.line(
            f"const int64_t slot_ = {index(ctx, kept.slot)}, tag_ = {index(ctx, kept.tag)};"
        )
        ctx.out.line(
            f"{name} = (void *)(scratch + {tile.offset} + slot_ * {tile.bytes // tile.slots});"
        )
        with ctx.out.block(f"if ({ctx.kept_tags[buffer]}[slot_] != tag_)"):
            emit_copy(ctx, stmt.src, stmt.dst)
            ctx.out.line(f"{ctx.kept_tags[buffer]}[slot_] = tag_;")

    def _let(self, stmt: Let) -> None:
        ctx = self._ctx
        var = stmt.var
        text = value(ctx, stmt.value)
        if stmt.value.dtype != var.dtype:
            text = cast(f"({text})", stmt.value.dtype, var.dtype)
        if var.dtype == stmt.value.dtype and SCALARS[var.dtype].suffix[0] in "iu":
            ctx.ranges.bind(var, ctx.ranges.of(stmt.value))
        ctx.out.line(f"const {SCALARS[var.dtype].value} {ctx.names[var.name]} = {text};")

    def _store(self, stmt: Store) -> None:
        ctx = self._ctx
        text = value(ctx, stmt.value)
        dtype = ctx.dtype(stmt.buffer)
        if stmt.value.dtype != dtype:
            text = cast(f"({text})", stmt.value.dtype, dtype)
        target = element(ctx, stmt.buffer, stmt.indices)
        inside = condition(ctx, stmt.buffer, stmt.indices) if stmt.buffer in ctx.arrays else ""
        guard = f"if ({inside}) " if inside else ""
        ctx.out.line(f"{guard}{target} = {to_memory(ctx, stmt.buffer, text)};")

    # ---- loops ------------------------------------------------------------------------------

    def _for(self, stmt: For, number: int) -> None:
        ctx = self._ctx
        if stmt.kind != "parallel" or self._parallel:
            self._loop(stmt, number)
            return
        self._parallel = True
        bounds = _open_bounds(ctx, stmt)
        tests = _interior(ctx, stmt, bounds)
        if tests:
            ctx.out.line("/* all of it inside the arrays, or else element by element */")
            with ctx.out.block(f"if ({' && '.join(tests.values())})"), ctx.assuming(set(tests)):
                self._loop(stmt, number)
            with ctx.out.block("else"):
                self._loop(stmt, number)
        else:
            self._loop(stmt, number)
        self._parallel = False

    def _loop(self, stmt: For, number: int) -> None:
        ctx = self._ctx
        name, kind = ctx.names[stmt.var.name], SCALARS[stmt.var.dtype].value
        start = index(ctx, stmt.start)
        end = index_term(ctx, add(stmt.start, stmt.extent))
        ctx.ranges.bind_loop(stmt)
        if self._is_independent(stmt):
            ctx.out.line("TY_INDEPENDENT")
        with ctx.out.block(f"for ({kind} {name} = {start}; {name} < {end}; ++{name})"):
            self.body(stmt.body, number + 1)

    def _is_independent(self, stmt: For) -> bool:
        """Whether no iteration of an innermost parallel loop touches what another one writes.

        The compiler is told so only where the indices show it: each buffer that is written is
        touched in one place only, which this loop's variable alone moves.
        """
        if not self._parallel or stmt.kind not in ("parallel", "vectorized"):
            return False
        inner = tuple(walk(stmt.body))
        if not all(isinstance(part, Store | Let | If) for part in inner):
            return False
        stores = [part for part in inner if isinstance(part, Store)]
        places = {store.buffer: store.indices for store in stores}
        loads = [load for part in inner for load in _loads(expressions(part))]
        touched = [
            *((s.buffer, s.indices) for s in stores),
            *((x.buffer, x.indices) for x in loads),
        ]
        return all(
            places[buffer] == indices and _moves(indices, stmt.var)
            for buffer, indices in touched
            if buffer in places
        )


def _moves(indices: tuple[Expr, ...], var: Var) -> bool:
    """Whether different values of ``var`` certainly give different indices."""
    return any(_steps(expr, var) for expr in indices)


def _steps(expr: Expr, var: Var) -> bool:
    if expr == var:
        return True
    match expr:
        case Op(name="add" | "sub", args=(left, right)):
            sides = [side for side in (left, right) if var in walk_expr(side)]
            return len(sides) == 1 and _steps(sides[0], var)
        case _:
            return False


def _loads(exprs: Iterable[Expr]) -> Iterator[Load]:
    for expr in exprs:
        yield from (part for part in walk_expr(expr) if isinstance(part, Load))


def _open_bounds(ctx: Context, nest: For) -> list[tuple[Bound, bool, bool]]:
    """The bounds of arrays' elements in a nest that are not certain.

    The loops' variables are given their ranges on the way.
    """
    found: list[tuple[Bound, bool, bool]] = []
    for stmt in walk((nest,)):
        if isinstance(stmt, For):
            ctx.ranges.bind_loop(stmt)
        if isinstance(stmt, Let):
            continue
        for part in _loads(expressions(stmt)):
            if part.buffer in ctx.arrays:
                found += ctx.open_bounds(part.buffer, part.indices)
        if isinstance(stmt, Store) and stmt.buffer in ctx.arrays:
            found += ctx.open_bounds(stmt.buffer, stmt.indices)
    return found


def _interior(ctx: Context, nest: For, bounds: list[tuple[Bound, bool, bool]]) -> dict[Bound, str]:
    """For each bound that a test before the nest can establish, the test."""
    loops = {stmt.var: stmt for stmt in walk((nest,)) if isinstance(stmt, For)}
    changing = {stmt.var for stmt in walk((nest,)) if isinstance(stmt, Let)}
    written = buffer_effects((nest,)).written
    tests: dict[Bound, str] = {}
    for (at, extent), low, high in bounds:
        corners = _corners(at, loops)
        if corners is None or _depends(corners, loops, changing, written):
            continue
        parts = []
        if low:
            parts.append(f"{index_term(ctx, corners[0])} >= 0")
        if high:
            parts.append(f"{index_term(ctx, corners[1])} < {index_term(ctx, extent)}")
        tests[at, extent] = " && ".join(parts)
    return tests


def _depends(
    corners: tuple[Expr, Expr], loops: dict[Var, For], changing: set[Var], written: frozenset[str]
) -> bool:
    """Whether the corners cannot be computed before the nest."""
    for corner in corners:
        for part in walk_expr(corner):
            if isinstance(part, Var) and (part in loops or part in changing):
                return True
            if isinstance(part, Load) and part.buffer in written:
                return True
    return False


def _corners(expr: Expr, loops: dict[Var, For]) -> tuple[Expr, Expr] | None:
    """The least and the greatest value of ``expr`` over the loops; None where it is not monotone."""
    if isinstance(expr, Var) and expr in loops:
        loop = loops[expr]
        last = add(add(loop.start, loop.extent), Const(-1, expr.dtype))
        return loop.start, last
    if not any(part in loops for part in walk_expr(expr) if isinstance(part, Var)):
        return expr, expr
    if not isinstance(expr, Op) or len(expr.args) != 2:
        return None
    left, right = (_corners(arg, loops) for arg in expr.args)
    if left is None or right is None:
        return None
    match expr.name:
        case "add":
            return add(left[0], right[0]), add(left[1], right[1])
        case "sub":
            low, high = (left[0], right[1]), (left[1], right[0])
            return Op("sub", low, expr.dtype), Op("sub", high, expr.dtype)
        case "mul" | "floordiv" if isinstance(expr.args[1], Const) and expr.args[1].value > 0:
            return (
                Op(expr.name, (left[0], expr.args[1]), expr.dtype),
                Op(expr.name, (left[1], expr.args[1]), expr.dtype),
            )
        case _:
            return None
