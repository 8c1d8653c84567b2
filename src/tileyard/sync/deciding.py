"""Finds the parameters whose whole numbers decide which statements run, and on which elements."""

from collections.abc import Iterable, Iterator

from tileyard.ir.dtypes import find_dtype
from tileyard.ir.nodes import (
    Atomic,
    Expr,
    For,
    If,
    Let,
    Load,
    Program,
    Stmt,
    Store,
    Synchronization,
    Var,
    While,
)
from tileyard.ir.specs import tensors
from tileyard.ir.walk import (
    expressions,
    own_effects,
    read_regions,
    walk,
    walk_expr,
    written_region,
)

Names = frozenset[str]


def deciding_numbers(program: Program) -> Names:
    """The passed tensors of whole numbers whose content, or what is computed from it, decides something."""
    origins: dict[str, Names] = {
        tensor.buffer.name: frozenset([tensor.buffer.name])
        for tensor in tensors(program)
        if tensor.role != "out" and not find_dtype(tensor.buffer.dtype).is_float
    }
    owners = {one.name: one.view_of for one in program.buffers if one.view_of}
    stmts = list(walk(program.body))

    def of(names: Iterable[str]) -> Names:
        return frozenset().union(*(origins.get(owners.get(one, one), Names()) for one in names))

    before: dict[str, Names] = {}
    while before != origins:
        before = dict(origins)
        for stmt in stmts:
            effects = own_effects(stmt)
            seen = of((*effects.read, *_names(expressions(stmt))))
            bound = (stmt.var.name,) if isinstance(stmt, Let | Atomic | For) and stmt.var else ()
            for name in (*effects.written, *bound) if seen else ():
                owner = owners.get(name, name)
                origins[owner] = origins.get(owner, Names()) | seen
    return of(name for stmt in stmts for name in _names(_deciding(stmt)))


def _deciding(stmt: Stmt) -> Iterator[Expr]:
    """The expressions of ``stmt`` itself that decide."""
    written = written_region(stmt)
    for region in (*read_regions(stmt), *((written,) if written else ())):
        yield from (*region.starts, *region.extents)
    match stmt:
        case For():
            yield from (stmt.start, stmt.extent)
        case If() | While():
            yield stmt.cond
        case Store() | Atomic():
            yield from stmt.indices
        case Synchronization():
            yield from expressions(stmt)
        case _:
            pass
    for expr in expressions(stmt):
        for part in walk_expr(expr):
            if isinstance(part, Load):
                yield from part.indices


def _names(exprs: Iterable[Expr]) -> Iterator[str]:
    for expr in exprs:
        for part in walk_expr(expr):
            if isinstance(part, Load):
                yield part.buffer
            elif isinstance(part, Var):
                yield part.name
