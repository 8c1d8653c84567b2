"""Counts the work of a Program."""

import itertools
import math
from collections.abc import Mapping

from tileyard.errors import KernelFault
from tileyard.ir.dtypes import is_float
from tileyard.ir.nodes import Axis, Expr, For, Gemm, If, Let, Program, Stmt, Var, While
from tileyard.ir.specs import evaluate_size
from tileyard.ir.walk import walk, walk_expr

_MOST_BLOCKS = 4096
"""How many different blocks are looked at, at most, where they differ in their work."""


class _Unknown(Exception):
    """The work depends on data, or on too much else."""


def count_gemm_flops(program: Program, dims: Mapping[str, int]) -> float:
    """``2 m n k`` of every gemm, times how often it runs; 0.0 where that cannot be told.

    ``dims`` gives dimensions and scalar parameters by name. Blocks may differ in their work, as in
    causal attention; a gemm that depends on data makes the count unknown.
    """
    try:
        return float(_count_blocks(program, dict(dims)))
    except _Unknown:
        return 0.0


def _count_blocks(program: Program, numbers: dict[str, int]) -> int:
    extents = {axis.var.name: _known(axis.extent, numbers) for axis in program.grid}
    matter = _axes_that_matter(program)
    alike = math.prod(extent for name, extent in extents.items() if name not in matter)
    different = [range(extents[axis.var.name]) for axis in matter.values()]
    if math.prod(map(len, different)) > _MOST_BLOCKS:
        raise _Unknown
    total = 0
    for block in itertools.product(*different):
        total += _count(program.body, {**numbers, **dict(zip(matter, block, strict=True))})
    return alike * total


def _axes_that_matter(program: Program) -> dict[str, Axis]:
    """The dimensions of the grid on which the trips of a loop around a gemm depend."""
    used: set[str] = set()
    bound: dict[str, Expr] = {}
    for stmt in walk(program.body):
        match stmt:
            case Let():
                bound[stmt.var.name] = stmt.value
            case For() if _has_gemm(stmt):
                used |= _names(stmt.extent)
            case If() if _has_gemm(stmt):
                used |= _names(stmt.cond)
            case _:
                pass
    for name in reversed(list(bound)):
        if name in used:
            used |= _names(bound[name])
    return {axis.var.name: axis for axis in program.grid if axis.var.name in used}


def _names(expr: Expr) -> set[str]:
    return {part.name for part in walk_expr(expr) if isinstance(part, Var)}


def _has_gemm(stmt: Stmt) -> bool:
    return any(isinstance(inner, Gemm) for inner in walk((stmt,)))


def _known(expr: Expr, numbers: Mapping[str, int]) -> int:
    """The value of ``expr``; _Unknown unless it depends on ``numbers`` only."""
    try:
        return evaluate_size(expr, numbers)
    except (KernelFault, KeyError):
        raise _Unknown from None


def _count(body: tuple[Stmt, ...], numbers: dict[str, int]) -> int:
    total = 0
    for stmt in body:
        if isinstance(stmt, Let) and not is_float(stmt.var.dtype):
            try:
                numbers = {**numbers, stmt.var.name: _known(stmt.value, numbers)}
            except _Unknown:
                continue
        elif isinstance(stmt, Gemm) or _has_gemm(stmt):
            total += _count_one(stmt, numbers)
    return total


def _count_one(stmt: Stmt, numbers: dict[str, int]) -> int:
    match stmt:
        case Gemm():
            inner = stmt.a.extents[-2 if stmt.transpose_a else -1]
            m, n, k = (_known(extent, numbers) for extent in (*stmt.c.extents[-2:], inner))
            return 2 * m * n * k
        case For():
            return max(_known(stmt.extent, numbers), 0) * _count(stmt.body, numbers)
        case If():
            return _count(stmt.then if _known(stmt.cond, numbers) else stmt.orelse, numbers)
        case While():
            raise _Unknown
        case _:
            return 0
