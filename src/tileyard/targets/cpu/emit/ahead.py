"""Rows that the next block reads, fetched while this one computes: processors look ahead within a page only."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from tileyard.ir.dtypes import find_dtype
from tileyard.ir.nodes import Const, Copy, Expr, For, Load, Op, Stmt, Var
from tileyard.ir.walk import replace_parts, walk_expr
from tileyard.targets.cpu.emit.context import Context, add
from tileyard.targets.cpu.emit.exprs import place
from tileyard.targets.cpu.emit.fusing import Pass, find_pass
from tileyard.targets.cpu.emit.groups import is_along
from tileyard.targets.cpu.emit.nests import Fold, Nest, as_nest, loads

_LINE = 64
_QUAD = 32
"""Elements of four vectors."""

_SLOW = frozenset({"exp", "exp2", "div", "sqrt", "rsqrt", "log", "log2", "tanh", "erf", "sigmoid"})
_MANY = 10
"""How much longer such a function takes than a sum."""

_MOST = 64 << 10
"""Bytes that are fetched ahead at most: they have to stay in the second cache until they are read."""


@dataclass(kw_only=True, slots=True)
class Row:
    """Rows of an array that a nest reads, and reads others of when ``turn`` is one more.

    ``source`` is their elements, ``bytes`` one row's size. So many bytes are ``done`` as are fetched
    already.
    """

    nest: Nest
    source: Load
    turn: Var
    bytes: int
    done: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Ahead:
    """Rows for the next turn, and how much of what is left of them one pass fetches."""

    rows: Sequence[Row]
    share: float


def rows_read(ctx: Context, stmt: Stmt, turn: Var | None) -> list[Row]:
    """The rows of arrays that a statement reads, others for each value of ``turn``."""
    nest = as_nest(ctx, stmt)
    if nest is None or turn is None:
        return []
    found: dict[Load, Row] = {}
    for source in (load for step in nest.steps for load in loads(step)):
        size = nest.columns * find_dtype(source.dtype).bits // 8
        if (
            source.buffer in ctx.arrays
            and is_along(source.indices, nest.along)
            and nest.elements // nest.columns * size <= _MOST
            and any(turn in walk_expr(at) for at in source.indices)
        ):
            found[source] = Row(nest=nest, source=source, turn=turn, bytes=size)
    return list(found.values())


def next_turn(ctx: Context, loops: Sequence[For]) -> Var | None:
    """What counts when a body is run again: the innermost loop's variable, or a thread's next block's."""
    if loops:
        return loops[-1].var
    if ctx.plan.keeping.group:
        return None
    axes = [axis for axis in ctx.program.grid if axis.extent != Const(1, axis.extent.dtype)]
    return axes[0].var if axes else None


def share(ctx: Context, found: Pass, rest: Sequence[Stmt]) -> float:
    """How much of the time up to the end of the body a pass takes, all passes together 1."""
    later = 0
    while rest:
        there = None if isinstance(rest[0], Copy) else find_pass(ctx, rest)
        later += 0 if there is None else _weight(there)
        rest = rest[1 if there is None else len(there.statements) :]
    return _weight(found) / (_weight(found) + later)


def _weight(found: Pass) -> int:
    """About how long a pass takes, for its share of what is fetched meanwhile."""
    values = (step.source if isinstance(step, Fold) else step.value for step in found.nest.steps)
    parts = [part for expr in values for part in walk_expr(expr)]
    functions = sum(isinstance(part, Op) and part.name in _SLOW for part in parts)
    return found.nest.elements * (len(parts) + _MANY * functions)


def declare_ahead(ctx: Context, nest: Nest, ahead: Ahead) -> list[str]:
    """Write where the share of what is ahead begins; gives the lines that fetch it along ``nest``.

    The rows remember how much of them is done.
    """
    lines: list[str] = []
    for row in ahead.rows:
        if row.nest.sizes[:-1] != nest.sizes[:-1]:
            continue
        first = row.done
        row.done = first + round((row.bytes - first) * ahead.share / _LINE) * _LINE
        step = (row.done - first) * _QUAD / nest.columns
        if not step:
            continue
        known: dict[Expr, Expr] = dict(
            zip(row.nest.variables[:-1], nest.variables[:-1], strict=True)
        )
        known[row.nest.along] = Const(0, "int32")
        known[row.turn] = add(row.turn, Const(1, row.turn.dtype))
        indices = tuple(replace_parts(at, known.get) for at in row.source.indices)
        name = ctx.names.fresh("ahead")
        place_ = place(ctx, row.source.buffer, indices)
        ctx.out.line(f"const char *{name} = (const char *)&{place_} + {first};")
        rate = Fraction(row.done - first, nest.columns)
        offset = f"(int64_t){nest.along.name} * {rate.numerator} / {rate.denominator}"
        lines += [
            f"__builtin_prefetch({name} + {offset} + {line * _LINE}, 0, 2);"
            for line in range(math.ceil(step / _LINE))
        ]
    return lines
