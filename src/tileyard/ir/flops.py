"""Counts the work of a Program."""

from collections.abc import Mapping

from tileyard.errors import KernelFault
from tileyard.ir.evaluate import Evaluator, no_loads
from tileyard.ir.nodes import Expr, For, Gemm, If, Program, Stmt, Var, While
from tileyard.ir.specs import convert_scalar
from tileyard.ir.walk import walk, walk_expr


def count_gemm_flops(program: Program, dims: Mapping[str, int]) -> float:
    """``2 m n k`` of every gemm, times how often it runs; 0.0 where that cannot be told.

    ``dims`` gives dimensions and scalar parameters by name. A loop or branch that depends on the
    block or on data makes the count unknown, and so does a ``while`` around a gemm.
    """
    numbers = {name: int(value) for name, value in dims.items()}
    blocks = 1
    for axis in program.grid:
        extent = _known(axis.extent, numbers)
        if extent is None:
            return 0.0
        blocks *= extent
    count = _count(program.body, numbers)
    return 0.0 if count is None else float(blocks * count)


def _known(expr: Expr, numbers: Mapping[str, int]) -> int | None:
    """The value of ``expr`` where it depends on ``numbers`` only."""
    values = {}
    for part in walk_expr(expr):
        if isinstance(part, Var):
            if part.name not in numbers:
                return None
            values[part.name] = convert_scalar(numbers[part.name], part.dtype)
    try:
        return Evaluator(values, no_loads).number(expr)
    except KernelFault:
        return None


def _count(body: tuple[Stmt, ...], numbers: Mapping[str, int]) -> int | None:
    """The work of ``body``, None where it cannot be told."""
    total = 0
    for stmt in body:
        part = _count_one(stmt, numbers)
        if part is None:
            return None
        total += part
    return total


def _count_one(stmt: Stmt, numbers: Mapping[str, int]) -> int | None:
    match stmt:
        case Gemm():
            inner = stmt.a.extents[-2 if stmt.transpose_a else -1]
            sizes = [_known(e, numbers) for e in (*stmt.c.extents[-2:], inner)]
            m, n, k = sizes
            return None if m is None or n is None or k is None else 2 * m * n * k
        case For():
            each = _count(stmt.body, numbers)
            if not each:
                return each
            trips = _known(stmt.extent, numbers)
            return None if trips is None else max(trips, 0) * each
        case If() | While():
            inside = walk((stmt,))
            return None if any(isinstance(s, Gemm) for s in inside) else 0
        case _:
            return 0
