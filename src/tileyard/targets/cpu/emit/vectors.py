"""Writes values of whole vectors in C: expressions over contiguous elements, with conversions.
Compilers vectorize most code; vectors of narrow numbers are written out here, and a loop over a few
elements of memory does the rest, such as integer arithmetic. Values that along a row depend only on
four bits of an element come from a table of sixteen, computed before the row.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tileyard.ir.dtypes import is_integer
from tileyard.ir.nodes import Cast, Const, Expr, Load, Op, Store, Var
from tileyard.ir.ranges import Interval
from tileyard.ir.walk import children, replace_parts, walk_expr
from tileyard.targets.cpu.emit.context import Context
from tileyard.targets.cpu.emit.exprs import can_fail, place, unrounded, value
from tileyard.targets.cpu.emit.loops import Fold, Together, count_at_once, is_along, is_row
from tileyard.targets.cpu.emit.nests import FLOATS, Nest, innermost, loads
from tileyard.targets.cpu.emit.parts import reads
from tileyard.targets.cpu.emit.scalars import BINARY, SCALARS, literal, unrounded_cast

# ---- simple values --------------------------------------------------------------------------------


ROUNDED = frozenset({"f16", "bf16"})
"""Narrow types that tile.h reads, rounds and writes as vectors."""

_BYTES = {"int8": "i8", "uint8": "u8"}
"""Integers that tile.h reads as vectors of floats."""


def vector(ctx: Context, expr: Expr, var: Var) -> str:
    """The values of ``expr`` from ``var`` on, or its only one, finally rounded; empty if not simple."""
    text, rounding = unrounded_vector(ctx, expr, var)
    return f"ty_round_row_{rounding}({text})" if text and rounding else text


def unrounded_vector(ctx: Context, expr: Expr, var: Var) -> tuple[str, str]:
    """As ``vector`` without the final rounding, and the narrow type to round to."""
    if SCALARS[expr.dtype].value != "float" or SCALARS[expr.dtype].narrow not in ("", *ROUNDED):
        return "", ""
    if var not in walk_expr(expr):
        return f"({value(ctx, expr)})", ""
    match expr:
        case Load():
            return _load(ctx, expr, var, ctx.narrow(expr.buffer) or "f32"), ""
        case Cast():
            return _cast(ctx, expr, var)
        case Op(name="add" | "sub" | "mul" | "div"):
            left, right = (vector(ctx, arg, var) for arg in expr.args)
            text = f"({left} {BINARY[expr.name][0]} {right})" if left and right else ""
            return text, SCALARS[expr.dtype].narrow
        case Op(name="neg"):
            inner = vector(ctx, expr.args[0], var)
            return (f"(-{inner})" if inner else ""), ""
        case _:
            return "", ""


def _load(ctx: Context, expr: Load, var: Var, mark: str) -> str:
    if not is_row(ctx, expr, var):
        return ""
    return f"ty_load_{mark}(&{place(ctx, expr.buffer, expr.indices)})"


def _cast(ctx: Context, expr: Cast, var: Var) -> tuple[str, str]:
    inner = expr.value
    if isinstance(inner, Load) and inner.dtype in _BYTES:
        return _load(ctx, inner, var, _BYTES[inner.dtype]), ""
    if SCALARS[inner.dtype].value != "float":
        return "", ""
    text = vector(ctx, inner, var)
    return unrounded_cast(text, inner.dtype, expr.dtype) if text else ("", "")


# ---- values of passes -----------------------------------------------------------------------------


_BINARY = frozenset({"add", "sub", "mul", "div", "min", "max"})
_UNARY = frozenset({"neg", "abs", "sqrt", "rsqrt", "exp", "exp2"})
_ROUNDING = _BINARY - {"min", "max"} | _UNARY - {"neg", "abs"}
"""Operations whose result may not be in the narrow type of their arguments."""

AT_ONCE = 32
"""Number of elements of four vectors."""

QUAD, ONE, LACED = "quad", "one", "laced"
LENGTHS = {QUAD: "TY_QUAD", ONE: "TY_LANES"}
"""Number of elements of each form, in C."""


def is_laced(ctx: Context, nest: Nest, unwritten: frozenset[str]) -> bool:
    """Whether quads are laced: two vectors then become one of bfloat16 in order, without a
    permutation, but rows of other floats, most of all float16, cost more.
    """

    def memory(name: str) -> str:
        return ctx.dtype(name) if name in ctx.arrays else "float32"

    written = {step.buffer for step in nest.steps if isinstance(step, Store)} - unwritten
    rows = (x for step in nest.steps for x in loads(step) if is_along(x.indices, nest.along))
    read = {x.buffer for x in rows if x.dtype in FLOATS} - unwritten
    kinds = [memory(name) for name in (*written, *read)]
    return (
        "bfloat16" in map(memory, written)
        and "float16" not in kinds
        and kinds.count("bfloat16") > kinds.count("float32")
    )


def narrow_rows(ctx: Context, nest: Nest) -> list[Load]:
    """The loads of a nest's folds, if they are narrow rows whose bits suffice for the result."""
    rows = []
    for step in nest.steps:
        row = step.value if isinstance(step, Fold) else None
        if isinstance(row, Cast) and row.dtype == "float32":
            row = row.value
        if (
            not isinstance(step, Fold)
            or not isinstance(row, Load)
            or step.kind not in ("max", "min", "absmax")
            or row.buffer not in ctx.arrays
            or SCALARS[row.dtype].narrow not in ROUNDED
            or not is_along(row.indices, nest.along)
            or nest.columns % AT_ONCE
        ):
            return []
        rows.append(row)
    return rows


class Vectors:
    """Writes values of the elements of a nest's rows, in the number of vectors given by ``form``.
    ``same`` has C names of values that do not change along a row, ``spilled`` the memory of those
    that surrounding statements have in vectors. Quads are ``laced`` or in order.
    """

    def __init__(self, ctx: Context, nest: Nest, *, laced: bool) -> None:
        self._ctx = ctx
        self.laced = laced
        self._at = nest.along
        self._loop = innermost(nest.loop())
        self.form = QUAD
        self.same: dict[Expr, str] = {}
        self.spilled: dict[Expr, str] = {}

    @property
    def moved(self) -> str:
        """The form's name in loads and stores."""
        return LACED if self.laced and self.form == QUAD else self.form

    def rounded(self, text: str, rounding: str) -> str:
        """Vectors rounded to a narrow type, if any."""
        return f"ty_{self.form}_round_{rounding}({text})" if rounding else text

    def write(self, expr: Expr) -> str:
        """Vectors of the values of ``expr``, a float."""
        return self.rounded(*self.unrounded(expr))

    def unrounded(self, expr: Expr) -> tuple[str, str]:
        """As ``write`` without the final rounding, and the narrow type to round to."""
        ctx, form = self._ctx, self.form
        if expr in self.same:
            return f"ty_{form}_of({self.same[expr]})", ""
        if expr in ctx.known:
            return ctx.known[expr], ""
        narrow = SCALARS[expr.dtype].narrow
        match expr:
            case Const():
                return f"ty_{form}_of({literal(expr)})", ""
            case Load() if is_along(expr.indices, self._at) and expr.dtype in FLOATS:
                mark = ctx.narrow(expr.buffer) or "f32"
                return f"ty_{self.moved}_load_{mark}(&{place(ctx, expr.buffer, expr.indices)})", ""
            case Op() if expr.dtype in FLOATS and expr.name in _BINARY | _UNARY:
                args = ", ".join(self.write(arg) for arg in expr.args)
                rounding = narrow if expr.name in _ROUNDING else ""
                return f"ty_{form}_{expr.name}({args})", rounding
            case Cast() if expr.dtype in FLOATS:
                return self._cast(expr)
        return self._by_element(expr)

    def _cast(self, expr: Cast) -> tuple[str, str]:
        inner = expr.value
        if inner.dtype in FLOATS:
            return unrounded_cast(self.write(inner), inner.dtype, expr.dtype)
        if inner.dtype not in _BYTES:
            return self._by_element(expr)
        _, rounding = unrounded(self._ctx, expr)
        mark = _BYTES[inner.dtype]
        if isinstance(inner, Load) and is_along(inner.indices, self._at):
            first = place(self._ctx, inner.buffer, inner.indices)
        else:
            first = f"{self.in_memory(inner)}[0]"
        return f"ty_{self.moved}_load_{mark}(&{first})", rounding

    # ---- by way of memory -----------------------------------------------------------------------------

    def _by_element(self, expr: Expr) -> tuple[str, str]:
        """Values that vectors cannot compute, computed into a few elements of memory."""
        rounding = unrounded(self._ctx, expr)[1]
        if rounding in ROUNDED:
            row = self.in_memory(expr, lambda ctx, x: unrounded(ctx, x)[0])
        else:
            row, rounding = self.in_memory(expr), ""
        return f"ty_{self.moved}_load_f32({row})", rounding

    def in_memory(self, expr: Expr, text: Callable[[Context, Expr], str] = value) -> str:
        """The name of an array that holds ``text`` of ``expr`` for each element of the vectors."""
        ctx, out, length = self._ctx, self._ctx.out, LENGTHS[self.form]
        for part in reads(expr):
            if part.dtype in FLOATS and part not in self.spilled:
                self._spill(part)
        row, kind = ctx.names.fresh("part"), SCALARS[expr.dtype].value
        before, ctx.known = ctx.known, {**self.same, **self.spilled}
        out.line(f"{kind} {row}[{length}] __attribute__((aligned(64)));")
        count = count_at_once(expr, self._loop) if self.form == QUAD else 1
        out.line("TY_SHORT")
        head = f"for (int32_t e_ = 0; e_ < {length} / {count}; ++e_)"
        with ctx.names.aliased(self._at.name, "at_"), out.block(head):
            if count == 1:
                out.line(f"const int32_t n_ = e_, at_ = {self._at.name} + n_;")
                out.line(f"{row}[n_] = {text(ctx, expr)};")
            else:
                at = self._at
                together = Together(ctx=ctx, var=at, count=count, start=at.name, stem=at.name)
                together.write(expr, lambda x: f"{row}[n_] = {text(ctx, x)};")
        ctx.known = before
        return row

    def _spill(self, part: Load) -> None:
        """Write values that are in vectors or narrow memory to memory that single elements are read from."""
        ctx = self._ctx
        is_narrow_row = is_along(part.indices, self._at) and ctx.scalar(part.buffer).narrow
        if part in self.same or (part not in ctx.known and not is_narrow_row):
            return
        row, text = ctx.names.fresh("part"), self.write(part)
        ctx.out.line(f"float {row}[{LENGTHS[self.form]}] __attribute__((aligned(64)));")
        if self.form == QUAD:
            ctx.out.line(f"ty_{self.moved}_store_f32({row}, {text}, 0);")
        else:
            ctx.out.line(f"ty_store_f32({row}, {text});")
        self.spilled[part] = f"{row}[n_]"


# ---- tables ---------------------------------------------------------------------------------------


ENTRIES = 16
"""Number of entries of a table, as in one vector of bytes."""

_LEAST = 8 * ENTRIES
"""Least number of elements of a row for which a table pays."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """``value`` for each number ``entry`` that ``part``, the only part that changes along a row, can be."""

    part: Expr
    entry: Var
    value: Expr
    numbers: Interval

    @property
    def place(self) -> Expr:
        """The index of an element in the table, a byte: the last four bits of ``part``."""
        byte = self.part if self.part.dtype == "uint8" else Cast(self.part, "uint8")
        if self.numbers.within(Interval(0, ENTRIES - 1)):
            return byte
        return Op("bitand", (byte, Const(ENTRIES - 1, "uint8")), "uint8")


def find_table(ctx: Context, nest: Nest, step: Store) -> Table | None:
    """The table for the values that a step stores; None if there cannot be one."""
    if ctx.narrow(step.buffer) not in ROUNDED or nest.columns < _LEAST:
        return None
    parts = _changing(ctx, step.value, nest.along)
    if len(parts) != 1 or nest.along in parts:
        return None
    (part,) = parts
    numbers = ctx.ranges.of(part)
    entry = ctx.variable("entry", part.dtype, numbers)
    value = replace_parts(step.value, {part: entry}.get)
    if can_fail(ctx, value):
        return None
    return Table(part=part, entry=entry, value=value, numbers=numbers)


def write_table(ctx: Context, table: Table, buffer: str) -> str:
    """Write the computation of the entries for ``buffer``; returns the table's name in C."""
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
    """The parts of ``expr`` that change along a row: ``along`` itself, or numbers with few values."""
    if along not in walk_expr(expr):
        return set()
    if is_integer(expr.dtype):
        numbers = ctx.ranges.of(expr)
        if numbers.high - numbers.low < ENTRIES:
            return {expr}
    if expr == along:
        return {expr}
    return set().union(*(_changing(ctx, part, along) for part in children(expr)))
