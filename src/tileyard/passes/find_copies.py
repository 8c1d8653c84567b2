"""Replaces parallel loops that fill a whole tile in shared memory with elements of an array by copies. ``for
i, j in parallel(64, 32): a[i, j] = A[y + i, x + j]`` becomes ``copy(A[y : +64, x : +32], a)``, which can be
asynchronous. Beyond the array's edge, where the loop would fail, it reads 0.
"""

from dataclasses import dataclass

from tileyard.ir.nodes import (
    Buffer,
    Const,
    Copy,
    Expr,
    For,
    Load,
    Op,
    Program,
    Region,
    Stmt,
    Store,
    Tensor,
    Var,
)
from tileyard.ir.rewrite import rewrite
from tileyard.ir.syntax import ONE
from tileyard.ir.walk import walk_expr
from tileyard.passes.base import Passed


@dataclass(frozen=True)
class FindCopies:
    """Replaces loops over elements by copies."""

    name: str = "find-copies"

    def run(self, program: Program) -> Passed:
        """Replace such loops by copies."""
        arrays = (param.buffer for param in program.params if isinstance(param, Tensor))
        buffers = {buffer.name: buffer for buffer in (*arrays, *program.buffers)}

        def change(stmt: Stmt) -> tuple[Stmt, ...]:
            copy = _find_copy(stmt, buffers)
            return (stmt,) if copy is None else (copy,)

        done = rewrite(program, change)
        return Passed(program=done.program, origins=done.origins)


def _find_copy(nest: Stmt, buffers: dict[str, Buffer]) -> Copy | None:
    loops: list[For] = []
    stmt = nest
    while isinstance(stmt, For) and stmt.kind == "parallel" and len(stmt.body) == 1:
        loops.append(stmt)
        stmt = stmt.body[0]
    if not loops or not isinstance(stmt, Store) or not isinstance(stmt.value, Load):
        return None
    src, dst = buffers[stmt.value.buffer], buffers[stmt.buffer]
    if (src.scope, dst.scope, src.dtype) != ("global", "shared", dst.dtype):
        return None
    source = _box(stmt.value.buffer, stmt.value.indices, loops)
    target = _box(stmt.buffer, stmt.indices, loops)
    if source is None or target is None or source[1] != target[1]:
        return None
    is_whole = target[0].extents == dst.shape
    is_at_zero = all(start == Const(0, start.dtype) for start in target[0].starts)
    return Copy(source[0], target[0]) if is_whole and is_at_zero else None


def _box(
    buffer: str, indices: tuple[Expr, ...], loops: list[For]
) -> tuple[Region, tuple[str, ...]] | None:
    """The elements that indices run over, and their dimensions' variables in order; None if no box."""
    starts, extents, order = list(indices), [ONE] * len(indices), [""] * len(indices)
    for loop in loops:
        places = [at for at, index in enumerate(starts) if _has(index, loop.var)]
        if len(places) != 1 or loop.start != Const(0, loop.var.dtype) or order[places[0]]:
            return None
        (at,) = places
        start = _without(starts[at], loop.var)
        if start is None or not isinstance(loop.extent, Const):
            return None
        starts[at], extents[at], order[at] = start, loop.extent, loop.var.name
    return Region(buffer, tuple(starts), tuple(extents)), tuple(filter(None, order))


def _has(expr: Expr, var: Var) -> bool:
    return any(part == var for part in walk_expr(expr))


def _without(expr: Expr, var: Var) -> Expr | None:
    """The expression to which ``expr`` adds ``var``, which occurs in it; None if ``var`` is not added."""
    match expr:
        case Var():
            return Const(0, var.dtype)
        case Op(name="add", args=(a, b)) if _has(a, var) != _has(b, var):
            inner, other = (a, b) if _has(a, var) else (b, a)
            left = _without(inner, var)
            if left is None:
                return None
            zero = Const(0, left.dtype)
            return other if left == zero else Op("add", (left, other), expr.dtype)
        case _:
            return None
