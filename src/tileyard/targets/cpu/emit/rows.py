"""Writes innermost parallel loops a row at a time: narrow numbers are converted by the row, not
singly. Such a loop becomes several over a few hundred elements: rows of narrow arrays are read into
floats, and each rounding step is one call per row. A division of its variable by a small constant
is removed by writing that many elements at once.
"""

from tileyard.ir.nodes import Expr, For, Load, Op, Store
from tileyard.ir.walk import children, walk_expr
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
    Together,
    count_at_once,
    has_gain,
    is_narrow_row,
    is_row,
    is_row_function,
    plain_stores,
    rounds,
)
from tileyard.targets.cpu.emit.parts import add, find_number
from tileyard.targets.cpu.emit.scalars import SCALARS
from tileyard.targets.cpu.emit.vectors import ROUNDED, unrounded_vector

_LENGTH = 512
"""Number of elements of a row: a few rows fit in the L1 cache."""

_LEAST = 16
"""Least number of iterations for which rows pay for their calls."""


def emit_rows(ctx: Context, stmt: For) -> bool:
    """Write an independent innermost loop, its variable in range, by rows if faster; returns whether."""
    stores, extent = plain_stores(stmt), find_number(stmt.extent)
    if (
        stores is None
        or not all(is_row(ctx, store, stmt.var) for store in stores)
        or (extent is not None and extent < _LEAST)
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
        if narrow and buffer in ctx.arrays:
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
        element, is_array = ctx.element_type(buffer), buffer in ctx.arrays
        is_float = SCALARS[store.value.dtype].value == "float"
        if not is_float or narrow not in ("", *ROUNDED) or var not in walk_expr(store.value):
            return False
        text, rounding = unrounded_vector(ctx, store.value, var)
        if not text:
            return False
        if not (is_array and narrow) and rounding:
            text = f"ty_round_row_{rounding}({text})"
        first, large = self._address(store), ctx.large.get(buffer, "")
        if large:
            out.line(f"{element} part_[{_LENGTH}] __attribute__((aligned(64)));")
        to = f"{large} ? part_ : {first}" if large else first
        out.line(f"{element} *to_ = {to};")
        out.line(f"{self._kind} n_ = 0;")
        with out.block("for (; n_ + TY_LANES <= count_; n_ += TY_LANES)"):
            out.line(f"const {self._kind} {self._name} = at_ + n_;")
            out.line(f"ty_store_{narrow if is_array and narrow else 'f32'}(to_ + n_, {text});")
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
