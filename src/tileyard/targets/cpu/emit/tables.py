"""Values that depend on four bits of an element and on nothing else that changes along its row.

There are sixteen of them for a row: they are computed before it, and looked up by the vector.
"""

from dataclasses import dataclass

from tileyard.ir.dtypes import is_integer
from tileyard.ir.nodes import Cast, Const, Expr, Op, Store, Var
from tileyard.ir.ranges import Interval
from tileyard.ir.walk import children, replace_parts, walk_expr
from tileyard.targets.cpu.emit.context import Context
from tileyard.targets.cpu.emit.exprs import unrounded
from tileyard.targets.cpu.emit.nests import Nest
from tileyard.targets.cpu.emit.scalars import SCALARS

ENTRIES = 16
"""Entries of a table: as many as one vector of bytes has."""

_LEAST = 8 * ENTRIES
"""Elements of a row from which on a table is worth being computed."""

_NARROW = frozenset({"float16", "bfloat16"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """``value`` for each number ``entry`` that ``part``, which is all that changes along a row, can be."""

    part: Expr
    entry: Var
    value: Expr
    numbers: Interval

    @property
    def place(self) -> Expr:
        """The place in the table of an element, a byte: the last four bits of ``part``."""
        byte = self.part if self.part.dtype == "uint8" else Cast(self.part, "uint8")
        if self.numbers.within(Interval(0, ENTRIES - 1)):
            return byte
        return Op("bitand", (byte, Const(ENTRIES - 1, "uint8")), "uint8")


def find_table(ctx: Context, nest: Nest, step: Store) -> Table | None:
    """How what a step stores can be looked up; None where it cannot."""
    is_narrow = step.buffer in ctx.arrays and ctx.dtype(step.buffer) in _NARROW
    if not is_narrow or nest.columns < _LEAST:
        return None
    parts = _changing(ctx, step.value, nest.along)
    if len(parts) != 1 or nest.along in parts:
        return None
    (part,) = parts
    numbers = ctx.ranges.of(part)
    entry = Var(ctx.names.fresh("entry"), part.dtype)
    ctx.names.bind(entry.name)
    ctx.ranges.bind(entry, numbers)
    value = replace_parts(step.value, {part: entry}.get)
    return (
        None
        if _can_fail(ctx, value)
        else Table(part=part, entry=entry, value=value, numbers=numbers)
    )


def write_table(ctx: Context, table: Table, buffer: str) -> str:
    """Write what computes the entries for ``buffer``; gives the table's name in C."""
    out, entry = ctx.out, ctx.names[table.entry.name]
    values, name = ctx.names.fresh("values"), ctx.names.fresh("table")
    kind, numbers = SCALARS[table.entry.dtype].value, table.numbers
    out.line(f"float {values}[{ENTRIES}] = {{0}};")
    out.line("TY_SHORT")
    with out.block(f"for (int32_t n_ = {numbers.low}; n_ <= {numbers.high}; ++n_)"):
        out.line(f"const {kind} {entry} = ({kind})n_;")
        out.line(f"{values}[n_ & {ENTRIES - 1}] = {unrounded(ctx, table.value)[0]};")
    out.line(f"const ty_table {name} = ty_table_{ctx.scalar(buffer).narrow}({values});")
    return name


def _changing(ctx: Context, expr: Expr, along: Var) -> set[Expr]:
    """The parts of ``expr`` that change along a row: ``along`` itself, or numbers of few values."""
    if along not in walk_expr(expr):
        return set()
    if is_integer(expr.dtype):
        numbers = ctx.ranges.of(expr)
        if numbers.high - numbers.low < ENTRIES:
            return {expr}
    if expr == along:
        return {expr}
    return set().union(*(_changing(ctx, part, along) for part in children(expr)))


def _can_fail(ctx: Context, expr: Expr) -> bool:
    """Whether an entry that no element has may have no meaning."""
    before = len(ctx.faults)
    fails = "&fault" in unrounded(ctx, expr)[0]
    del ctx.faults[before:]
    return fails
