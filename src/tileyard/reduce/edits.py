"""Edits of Programs for the cuts: statements by number, expressions everywhere. Results may be invalid."""

import itertools
from collections.abc import Callable, Generator, Iterator, Mapping

import msgspec

from tileyard.ir.dtypes import find_dtype
from tileyard.ir.nodes import (
    Arrive,
    Buffer,
    Const,
    Expr,
    If,
    InitBarrier,
    Issue,
    Load,
    Op,
    Param,
    Program,
    Region,
    Roles,
    Scalar,
    Stmt,
    Tensor,
    TileOperation,
    WaitBarrier,
)
from tileyard.ir.rewrite import with_bodies, with_expressions
from tileyard.ir.walk import bodies, regions, replace_parts, walk

Search = Generator[Program, bool, None]
"""Yields one candidate after another, and receives whether each one fails in the same way."""

Known = Callable[[Expr], Expr | None]
"""Returns the replacement for an expression, or None to keep it."""


def replace_statements(program: Program, changes: Mapping[int, tuple[Stmt, ...]]) -> Program:
    """``program`` with the statements of these pre-order numbers replaced, and emptied ones dropped."""
    body = _replace(program.body, changes, itertools.count())
    return msgspec.structs.replace(program, body=body)


def _replace(
    body: tuple[Stmt, ...], changes: Mapping[int, tuple[Stmt, ...]], numbers: Iterator[int]
) -> tuple[Stmt, ...]:
    found: list[Stmt] = []
    for stmt in body:
        number = next(numbers)
        if number in changes:
            for _ in walk(tuple(itertools.chain(*bodies(stmt)))):
                next(numbers)
            found += changes[number]
            continue
        before = bodies(stmt)
        after = tuple(_replace(inner, changes, numbers) for inner in before)
        if after == before:
            found.append(stmt)
        elif any(after):
            found.append(_without_empty(with_bodies(stmt, after)))
    return tuple(found)


def _without_empty(stmt: Stmt) -> Stmt:
    """``stmt`` without empty roles, and with the non-empty branch first."""
    if isinstance(stmt, Roles):
        kept = [n for n, body in enumerate(stmt.bodies) if body]
        return keep_roles(stmt, kept)
    if isinstance(stmt, If) and not stmt.then:
        return If(Op("not", (stmt.cond,), "bool"), stmt.orelse)
    return stmt


def keep_roles(stmt: Roles, kept: list[int]) -> Roles:
    """``stmt`` with only the roles of these numbers."""
    threads = tuple(stmt.threads[n] for n in kept) if stmt.threads else ()
    registers = tuple(stmt.registers[n] for n in kept) if stmt.registers else ()
    return msgspec.structs.replace(
        stmt, bodies=tuple(stmt.bodies[n] for n in kept), threads=threads, registers=registers
    )


def replace_in_body(body: tuple[Stmt, ...], known: Known) -> tuple[Stmt, ...]:
    """``body`` with each part of its expressions replaced where ``known`` returns a replacement."""
    return tuple(
        with_expressions(
            with_bodies(stmt, tuple(replace_in_body(inner, known) for inner in bodies(stmt))),
            lambda expr: replace_parts(expr, known),
        )
        for stmt in body
    )


def replace_everywhere(program: Program, known: Known) -> Program:
    """``program`` with each part of its expressions replaced, in declarations and in statements."""

    def all_of(exprs: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(replace_parts(expr, known) for expr in exprs)

    def in_buffer(buffer: Buffer) -> Buffer:
        layout = buffer.layout
        if layout is not None:
            thread = None if layout.thread is None else replace_parts(layout.thread, known)
            layout = msgspec.structs.replace(layout, place=all_of(layout.place), thread=thread)
        return msgspec.structs.replace(
            buffer, shape=all_of(buffer.shape), strides=all_of(buffer.strides), layout=layout
        )

    def in_param(param: Param) -> Param:
        return param if isinstance(param, Scalar) else Tensor(in_buffer(param.buffer), param.role)

    return msgspec.structs.replace(
        program,
        params=tuple(map(in_param, program.params)),
        grid=tuple(
            msgspec.structs.replace(axis, extent=replace_parts(axis.extent, known))
            for axis in program.grid
        ),
        buffers=tuple(map(in_buffer, program.buffers)),
        body=replace_in_body(program.body, known),
    )


def all_buffers(program: Program) -> dict[str, Buffer]:
    """The buffers of a Program by name, parameters first."""
    arrays = (param.buffer for param in program.params if isinstance(param, Tensor))
    return {buffer.name: buffer for buffer in (*arrays, *program.buffers)}


def constant(value: int, dtype: str) -> Const:
    """A small number in a dtype."""
    kind = find_dtype(dtype)
    return Const(
        bool(value) if dtype == "bool" else float(value) if kind.is_float else value, dtype
    )


def own_expressions(stmt: Stmt) -> tuple[Expr, ...]:
    """The expressions of ``stmt`` that may be simplified, in ``with_own_expressions``' order."""
    found: list[Expr] = []

    def note(expr: Expr) -> Expr:
        found.append(expr)
        return expr

    _change_own(stmt, note)
    return tuple(found)


def with_own_expressions(stmt: Stmt, exprs: tuple[Expr, ...]) -> Stmt:
    """``stmt`` with its own expressions replaced by these."""
    left = iter(exprs)
    return _change_own(stmt, lambda _: next(left))


def _change_own(stmt: Stmt, change: Callable[[Expr], Expr]) -> Stmt:
    """``stmt`` with its expressions changed, but bound variables, regions' extents, and barriers' rows."""
    fixed: list[object] = [getattr(stmt, "var", None)]
    fixed += [extent for region in regions_of(stmt) for extent in region.extents]
    if isinstance(stmt, InitBarrier):
        return stmt

    def changed(expr: Expr) -> Expr:
        if any(expr is one for one in fixed):
            return expr
        if isinstance(expr, Load) and expr.buffer in barriers_of(stmt):
            return Load(expr.buffer, tuple(map(change, expr.indices)), expr.dtype)
        return change(expr)

    return with_expressions(stmt, changed)


def regions_of(stmt: Stmt) -> tuple[Region, ...]:
    """The regions that ``stmt`` itself reads or writes."""
    return regions(stmt) if isinstance(stmt, TileOperation) else ()


def barriers_of(stmt: Stmt) -> frozenset[str]:
    """The rows of barriers that ``stmt`` itself uses."""
    match stmt:
        case Arrive() | WaitBarrier():
            return frozenset({stmt.barrier.buffer})
        case Issue():
            return frozenset() if stmt.barrier is None else frozenset({stmt.barrier.buffer})
        case InitBarrier():
            return frozenset({stmt.barriers.buffer})
        case _:
            return frozenset()
