"""Walks over Programs: numbering of statements, parts of nodes in order, buffers that they use."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import assert_never

import msgspec

from tileyard.ir.nodes import (
    Arrive,
    Assert,
    Atomic,
    Await,
    Break,
    Cast,
    CommitGroup,
    Const,
    Expr,
    Fence,
    For,
    If,
    InitBarrier,
    Issue,
    Let,
    Load,
    Op,
    Print,
    Program,
    Region,
    Roles,
    Stmt,
    Store,
    Sync,
    Synchronization,
    TileOperation,
    Var,
    WaitBarrier,
    WaitGroup,
    While,
)


def bodies(stmt: Stmt) -> tuple[tuple[Stmt, ...], ...]:
    """The nested bodies of ``stmt`` in order; empty if it has none."""
    match stmt:
        case For() | While() | Issue():
            return (stmt.body,)
        case If():
            return (stmt.then, stmt.orelse)
        case Roles():
            return stmt.bodies
        case Let() | Store() | Atomic() | Print() | Assert() | Break() | Await():
            return ()
        case TileOperation() | Synchronization():
            return ()
        case _:
            assert_never(stmt)


def walk(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Every statement of ``body`` in pre-order: a statement first, then its nested bodies."""
    for stmt in body:
        yield stmt
        for inner in bodies(stmt):
            yield from walk(inner)


def number_statements(program: Program) -> Iterator[tuple[int, Stmt]]:
    """Each statement with its pre-order number from 0: the key of every map of source lines."""
    return enumerate(walk(program.body))


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct parts of an expression, left to right."""
    match expr:
        case Op():
            return expr.args
        case Load():
            return expr.indices
        case Cast():
            return (expr.value,)
        case Const() | Var():
            return ()
        case _:
            assert_never(expr)


def walk_expr(expr: Expr) -> Iterator[Expr]:
    """``expr`` and all its parts in pre-order."""
    yield expr
    for child in children(expr):
        yield from walk_expr(child)


def convert(expr: Expr, dtype: str) -> Expr:
    """``expr`` in ``dtype``: ``expr`` itself if that is its own dtype."""
    return expr if expr.dtype == dtype else Cast(expr, dtype)


def replace_parts(expr: Expr, known: Callable[[Expr], Expr | None]) -> Expr:
    """``expr`` with every part replaced for which ``known`` returns a replacement."""
    other = known(expr)
    if other is not None:
        return other
    match expr:
        case Op():
            return Op(expr.name, tuple(replace_parts(arg, known) for arg in expr.args), expr.dtype)
        case Load():
            return Load(
                expr.buffer, tuple(replace_parts(at, known) for at in expr.indices), expr.dtype
            )
        case Cast():
            return Cast(replace_parts(expr.value, known), expr.dtype)
        case Const() | Var():
            return expr
        case _:
            assert_never(expr)


# ---- reads and writes -----------------------------------------------------------------------------


class Effects(msgspec.Struct, frozen=True, kw_only=True):
    """Names of buffers: those whose content matters, and those that are written."""

    read: frozenset[str]
    written: frozenset[str]

    def through(self, owners: Mapping[str, str]) -> "Effects":
        """The same effects, with each view replaced by the buffer whose storage it is."""
        read, written = (
            frozenset(owners.get(name, name) for name in names)
            for names in (self.read, self.written)
        )
        return Effects(read=read, written=written)


def regions(stmt: TileOperation) -> tuple[Region, ...]:
    """The regions of a tile operation in order, the written one last."""
    return tuple([getattr(stmt, name) for name in _fields_of(type(stmt))[0]])


def scalars(stmt: TileOperation) -> tuple[Expr, ...]:
    """The expressions of a tile operation in order, without those of its regions."""
    return tuple([getattr(stmt, name) for name in _fields_of(type(stmt))[1]])


@cache
def _fields_of(kind: type[TileOperation]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of the fields of a tile operation that are regions, and of those that are expressions."""
    fields = msgspec.structs.fields(kind)
    of_regions, of_exprs = (
        tuple(field.name for field in fields if field.type == wanted) for wanted in (Region, Expr)
    )
    return of_regions, of_exprs


def read_regions(stmt: Stmt) -> tuple[Region, ...]:
    """The regions whose content ``stmt`` itself reads; not those of nested bodies."""
    if not isinstance(stmt, TileOperation):
        return ()
    found = regions(stmt)
    return found[:-1] if stmt.clear else found


def written_region(stmt: Stmt) -> Region | None:
    """The region that a tile operation writes, None for other statements."""
    return regions(stmt)[-1] if isinstance(stmt, TileOperation) else None


def expressions(stmt: Stmt) -> Iterator[Expr]:
    """The expressions that ``stmt`` itself evaluates, in order; not those of nested bodies."""
    match stmt:
        case Let():
            yield stmt.value
        case Store() | Atomic():
            yield from stmt.indices
            yield stmt.value
        case Print():
            yield from stmt.values
        case For():
            yield stmt.start
            yield stmt.extent
        case If() | While() | Assert() | Await():
            yield stmt.cond
        case TileOperation():
            yield from scalars(stmt)
            for region in dict.fromkeys(regions(stmt)):
                yield from region.starts
                yield from region.extents
        case WaitGroup():
            yield stmt.count
        case Arrive():
            yield from stmt.barrier.indices
        case WaitBarrier():
            yield from stmt.barrier.indices
            yield stmt.parity
        case Issue():
            yield from stmt.barrier.indices if stmt.barrier is not None else ()
        case Break() | Roles() | CommitGroup():
            pass
        case InitBarrier():
            yield from (*stmt.barriers.starts, *stmt.barriers.extents)
        case Sync() | Fence():
            pass
        case _:
            assert_never(stmt)


def own_effects(stmt: Stmt) -> Effects:
    """The effects of ``stmt`` itself; not those of nested bodies."""
    read = {region.buffer for region in read_regions(stmt)}
    for expr in expressions(stmt):
        read.update(part.buffer for part in walk_expr(expr) if isinstance(part, Load))
    region = written_region(stmt)
    written = set() if region is None else {region.buffer}
    if isinstance(stmt, Store | Atomic):
        written.add(stmt.buffer)
    if isinstance(stmt, Atomic):
        read.add(stmt.buffer)
    return Effects(read=frozenset(read), written=frozenset(written))


def buffer_effects(body: Iterable[Stmt]) -> Effects:
    """The effects of all statements of ``body``, nested ones included."""
    found = [own_effects(stmt) for stmt in walk(tuple(body))]
    return Effects(
        read=frozenset().union(*(effects.read for effects in found)),
        written=frozenset().union(*(effects.written for effects in found)),
    )


def has_order(program: Program) -> bool:
    """Whether a Program has roles or asynchronous operations, so that there is something to check."""
    return any(isinstance(stmt, Roles | Issue) for stmt in walk(program.body))
