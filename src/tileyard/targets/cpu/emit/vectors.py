"""Writes values of whole vectors in C: expressions over contiguous elements, with conversions.
Compilers vectorize most code; vectors of narrow numbers are written out here, and a loop over a few
elements of memory does the rest, such as integer arithmetic. Values that along a row depend only on
four bits of an element come from a table of sixteen, computed before the row.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tileyard.ir.dtypes import is_integer
from tileyard.ir.nodes import Cast, Const, Expr, For, Load, Op, Store, Var
from tileyard.ir.ranges import Interval
from tileyard.ir.walk import children, replace_parts, walk_expr
from tileyard.targets.cpu.emit.context import Context
from tileyard.targets.cpu.emit.copies import write_row
from tileyard.targets.cpu.emit.exprs import (
    can_fail,
    index,
    place,
    to_memory,
    unrounded,
    value,
)
from tileyard.targets.cpu.emit.loops import (
    Fold,
    Together,
    count_at_once,
    has_gain,
    is_along,
    is_narrow_row,
    is_row,
    is_row_function,
    plain_stores,
    rounds,
)
from tileyard.targets.cpu.emit.nests import FLOATS, Nest, innermost, loads
from tileyard.targets.cpu.emit.scalars import BINARY, SCALARS, literal, unrounded_cast
from tileyard.targets.cpu.emit.tiles import add, find_number, reads

_BYTES = {"int8": "i8", "uint8": "u8"}
"""Integers that tile.h reads as vectors of floats."""
_UNARY = frozenset({"neg", "abs", "sqrt", "rsqrt", "exp", "exp2"})
AT_ONCE = 32
"""Number of elements of four vectors."""
_LENGTH = 512
"""Number of elements of a row: a few rows fit in the L1 cache."""
_LEAST_EXTENT = 16
"""Least number of iterations for which rows pay for their calls."""


# ---- simple values --------------------------------------------------------------------------------


ROUNDED = frozenset({"f16", "bf16"})
"""Narrow types that tile.h reads, rounds and writes as vectors."""


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
_ROUNDING = _BINARY - {"min", "max"} | _UNARY - {"neg", "abs"}
"""Operations whose result may not be in the narrow type of their arguments."""

QUAD, ONE, LACED = "quad", "one", "laced"
LENGTHS = {QUAD: "TY_QUAD", ONE: "TY_LANES"}
"""Number of elements of each form, in C."""


def is_laced(ctx: Context, nest: Nest, unwritten: frozenset[str]) -> bool:
    """Whether quads are laced: two vectors then become one of bfloat16 in order, without a
    permutation, but rows of other floats, most of all float16, cost more.
    """

    def memory(name: str) -> str:
        return ctx.dtype(name) if ctx.is_memory(name) else "float32"

    written = {step.buffer for step in nest.steps if isinstance(step, Store)} - unwritten
    rows = (x for step in nest.steps for x in loads(step) if is_along(x.indices, nest.along))
    read = {x.buffer for x in rows if x.dtype in FLOATS} - unwritten
    kinds = [memory(name) for name in (*written, *read)]
    return (
        "bfloat16" in map(memory, written)
        and "float16" not in kinds
        and kinds.count("bfloat16") > kinds.count("float32")
    )


def narrow_rows(ctx: Context, nest: Nest) -> dict[int, Load]:
    """The narrow rows whose bits suffice for a fold of a nest, by the numbers of the folds' steps."""
    rows = {}
    written = {ctx.storage(step.buffer) for step in nest.steps if isinstance(step, Store)}
    for i, step in enumerate(nest.steps):
        row = step.value
        if isinstance(row, Cast) and row.dtype == "float32":
            row = row.value
        if (
            isinstance(step, Fold)
            and isinstance(row, Load)
            and step.kind in ("max", "min", "absmax")
            and row.buffer in ctx.arrays
            and ctx.storage(row.buffer) not in written
            and SCALARS[row.dtype].narrow in ROUNDED
            and is_along(row.indices, nest.along)
            and not nest.columns % AT_ONCE
        ):
            rows[i] = row
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

    def is_early(self, expr: Expr, written: set[str]) -> bool:
        """Whether vectors of ``expr`` can be computed a turn early, from what steps before it have not
        ``written``.
        """
        match expr:
            case Load() if expr not in self.same:
                is_read = is_along(expr.indices, self._at) and expr.buffer not in written
                return is_read and expr.dtype in FLOATS and not self._ctx.is_aliased(expr.buffer)
            case Op() if expr not in self.same:
                is_known = expr.dtype in FLOATS and expr.name in _BINARY | _UNARY - {"exp", "exp2"}
                return is_known and all(self.is_early(arg, written) for arg in expr.args)
            case Cast() if expr not in self.same:
                is_float = expr.dtype in FLOATS and expr.value.dtype in FLOATS
                return is_float and self.is_early(expr.value, written)
        return expr in self.same or isinstance(expr, Const)

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


def emit_rows(ctx: Context, stmt: For) -> bool:
    """Write an independent innermost loop, its variable in range, by rows if faster; returns whether."""
    stores, extent = plain_stores(stmt), find_number(stmt.extent)
    if (
        stores is None
        or not all(is_row(ctx, store, stmt.var) for store in stores)
        or (extent is not None and extent < _LEAST_EXTENT)
        or any(can_fail(ctx, store.value) for store in stores)
        or not any(has_gain(ctx, store, stmt) for store in stores)
    ):
        return False
    _Rows(ctx, stmt).write(stores)
    return True


# ---- writing --------------------------------------------------------------------------------------


class _Rows:
    """One loop while it is written: ``at_`` is the first element of a row, ``n_`` counts within it."""

    def __init__(self, ctx: Context, stmt: For) -> None:
        self._ctx = ctx
        self._stmt = stmt
        self._kind = SCALARS[stmt.var.dtype].value
        self._name = ctx.names[stmt.var.name]
        self._count = 0

    def write(self, stores: list[Store]) -> None:
        out, kind, stmt = self._ctx.out, self._kind, self._stmt
        start = index(self._ctx, stmt.start)
        extent = find_number(stmt.extent) or 0
        with out.block(""):
            if 0 < extent <= _LENGTH:
                out.line(f"const {kind} at_ = {start}, count_ = {extent};")
                self._each(stores)
                return
            out.line(f"const {kind} end_ = {index(self._ctx, add(stmt.start, stmt.extent))};")
            with out.block(f"for ({kind} at_ = {start}; at_ < end_; at_ += {_LENGTH})"):
                count = f"end_ - at_ < {_LENGTH} ? end_ - at_ : {_LENGTH}"
                whole = extent and extent % _LENGTH == 0
                out.line(f"const {kind} count_ = {_LENGTH if whole else count};")
                self._each(stores)

    def _each(self, stores: list[Store]) -> None:
        ctx = self._ctx
        for store in stores:
            self._count = 0
            with ctx.out.block(""):
                self._store(store)
            ctx.known.clear()

    def _store(self, store: Store) -> None:
        ctx, buffer, expr = self._ctx, store.buffer, store.value
        if self._store_vectors(store):
            return
        is_large = buffer in ctx.large
        if is_row_function(expr) and ctx.element_type(buffer) == "float" and not is_large:
            self._store_function(store, expr)
            return
        is_rounded = rounds(ctx, expr)
        for part in children(expr) if is_rounded else (expr,):
            self._prepare(part)
        narrow = ctx.scalar(buffer).narrow
        first = self._address(store)
        if ctx.narrow(buffer):
            function = f"ty_row_{'to' if is_rounded else 'pack'}_{narrow}"
            write_row(ctx, buffer, function, first, self._as_row(expr), "count_")
            return
        if buffer in ctx.large and ctx.element_type(buffer) == "float":
            row = self._as_row(expr)
            write_row(ctx, buffer, "memcpy", first, row, "count_ * sizeof(float)")
            return
        self._loop(place(ctx, buffer, store.indices), expr)
        if is_rounded:
            ctx.out.line(f"ty_row_round_{narrow}({first}, {first}, count_);")

    def _store_vectors(self, store: Store) -> bool:
        """Write simple values by the vector; returns False, and writes nothing, if they are not simple."""
        ctx, buffer, var, out = self._ctx, store.buffer, self._stmt.var, self._ctx.out
        narrow = ctx.scalar(buffer).narrow
        element, held = ctx.element_type(buffer), ctx.narrow(buffer)
        is_float = SCALARS[store.value.dtype].value == "float"
        if not is_float or narrow not in ("", *ROUNDED) or var not in walk_expr(store.value):
            return False
        text, rounding = unrounded_vector(ctx, store.value, var)
        if not text:
            return False
        if rounding and not held:
            text = f"ty_round_row_{rounding}({text})"
        first, large = self._address(store), ctx.large.get(buffer, "")
        if large:
            out.line(f"{element} part_[{_LENGTH}] __attribute__((aligned(64)));")
        to = f"{large} ? part_ : {first}" if large else first
        out.line(f"{element} *to_ = {to};")
        out.line(f"{self._kind} n_ = 0;")
        with out.block("for (; n_ + TY_LANES <= count_; n_ += TY_LANES)"):
            out.line(f"const {self._kind} {self._name} = at_ + n_;")
            out.line(f"ty_store_{held or 'f32'}(to_ + n_, {text});")
        with out.block("for (; n_ < count_; ++n_)"):
            out.line(f"const {self._kind} {self._name} = at_ + n_;")
            out.line(f"to_[n_] = {to_memory(ctx, buffer, value(ctx, store.value))};")
        if large:
            out.line(f"if ({large}) ty_write({first}, part_, count_ * sizeof({element}), 1);")
        return True

    def _store_function(self, store: Store, expr: Op) -> None:
        """Write a row function whose last argument may be in the memory of the result."""
        ctx = self._ctx
        *others, last = expr.args
        for part in expr.args:
            self._prepare(part)
        rows = [self._as_row(part) for part in others]
        first = self._address(store)
        if last in ctx.known:
            rows.append(self._as_row(last))
        else:
            self._loop(place(ctx, store.buffer, store.indices), last)
            rows.append(first)
        self._call(expr, first, rows)

    def _call(self, expr: Op, to: str, rows: list[str]) -> None:
        self._ctx.out.line(f"ty_row_{expr.name}_f32({to}, {', '.join(rows)}, count_);")
        if SCALARS[expr.dtype].narrow:
            self._round(expr, to)

    def _round(self, expr: Expr, row: str) -> None:
        narrow = SCALARS[expr.dtype].narrow
        self._ctx.out.line(f"ty_row_round_{narrow}({row}, {row}, count_);")

    def _address(self, store: Store | Load) -> str:
        with self._ctx.names.aliased(self._stmt.var.name, "at_"):
            return f"&{place(self._ctx, store.buffer, store.indices)}"

    def _prepare(self, expr: Expr) -> None:
        """Write the rows of all parts of ``expr`` that are read from narrow memory, or rounded."""
        ctx = self._ctx
        if expr in ctx.known:
            return
        if isinstance(expr, Load):
            if not is_narrow_row(ctx, expr, self._stmt.var):
                return
            row = self._new_row()
            function = f"ty_row_from_{ctx.scalar(expr.buffer).narrow}"
            ctx.out.line(f"{function}({row}, {self._address(expr)}, count_);")
        else:
            for part in children(expr):
                self._prepare(part)
            if is_row_function(expr):
                rows = [self._as_row(part) for part in children(expr)]
                row = self._new_row()
                self._call(expr, row, rows)
            elif rounds(ctx, expr):
                row = self._as_row(expr)
                self._round(expr, row)
            else:
                return
        ctx.known[expr] = f"{row}[n_]"

    def _new_row(self) -> str:
        row = f"row{self._count}_"
        self._count += 1
        self._ctx.out.line(f"float {row}[{_LENGTH}] __attribute__((aligned(64)));")
        return row

    def _as_row(self, expr: Expr) -> str:
        """The row that holds the values of ``expr`` without the final rounding."""
        if expr in self._ctx.known:
            return self._ctx.known[expr].removesuffix("[n_]")
        row = self._new_row()
        self._loop(f"{row}[n_]", expr)
        return row

    def _loop(self, target: str, expr: Expr) -> None:
        out, kind = self._ctx.out, self._kind
        count = count_at_once(expr, self._stmt)
        out.line("TY_INDEPENDENT")
        if count == 1:
            with out.block(f"for ({kind} n_ = 0; n_ < count_; ++n_)"):
                out.line(f"const {kind} {self._name} = at_ + n_;")
                out.line(f"{target} = {self._text(expr)};")
            return
        together = Together(
            ctx=self._ctx, var=self._stmt.var, count=count, start="at_", stem=self._name
        )
        with out.block(f"for ({kind} e_ = 0; e_ < count_ / {count}; ++e_)"):
            together.write(expr, lambda x: f"{target} = {self._text(x)};")

    def _text(self, expr: Expr) -> str:
        return unrounded(self._ctx, expr)[0] if rounds(self._ctx, expr) else value(self._ctx, expr)
