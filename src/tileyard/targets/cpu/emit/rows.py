"""Innermost parallel loops, a row at a time: narrow numbers are converted by the row, not one by one.

Such a loop becomes several over a few hundred elements: rows of narrow arrays are read into
floats, values are computed from them, and each step that rounds is one call for the whole row. A
division of the loop's variable by a small constant is resolved by writing that many elements at once.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from tileyard.ir.nodes import Const, Expr, For, Load, Op, Store, Var
from tileyard.ir.ranges import Interval
from tileyard.ir.walk import children, replace_parts, walk_expr
from tileyard.targets.cpu.emit.context import Bound, Context, add
from tileyard.targets.cpu.emit.exprs import index, place, to_memory, unrounded, value
from tileyard.targets.cpu.emit.groups import Part, count_at_once
from tileyard.targets.cpu.emit.moves import write
from tileyard.targets.cpu.emit.row_rules import (
    has_gain,
    is_narrow_row,
    is_row,
    is_row_function,
    plain_stores,
    rounds,
)
from tileyard.targets.cpu.emit.scalars import SCALARS
from tileyard.targets.cpu.emit.vectors import ROUNDED, unrounded_vector

_LENGTH = 512
"""Elements of a row: a few of them stay in the first cache."""

_LEAST = 16
"""Iterations from which on rows are worth their calls."""


def emit_rows(ctx: Context, stmt: For) -> bool:
    """Write an innermost loop whose iterations are independent, if rows are the better way.

    Returns whether it has been written. The loop's variable must have its range.
    """
    stores = plain_stores(stmt)
    if stores is None or not all(is_row(ctx, store, stmt.var) for store in stores):
        return False
    if isinstance(stmt.extent, Const) and int(stmt.extent.value) < _LEAST:
        return False
    if any("&fault" in value(ctx, store.value) for store in stores):
        return False
    if not any(has_gain(ctx, store, stmt) for store in stores):
        return False
    _Rows(ctx, stmt).write(stores)
    return True


# ---- writing --------------------------------------------------------------------------------------


class _Rows:
    """One loop while it is written: ``at_`` is the first element of a row, ``n_`` counts in it."""

    def __init__(self, ctx: Context, stmt: For) -> None:
        self._ctx = ctx
        self._stmt = stmt
        self._kind = SCALARS[stmt.var.dtype].value
        self._name = ctx.names[stmt.var.name]
        self._count = 0

    def write(self, stores: list[Store]) -> None:
        """Write all stores, one after the other for each row of the loop."""
        out, kind, stmt = self._ctx.out, self._kind, self._stmt
        start = index(self._ctx, stmt.start)
        extent = int(stmt.extent.value) if isinstance(stmt.extent, Const) else 0
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
            self._store_function(store)
            return
        is_rounded = rounds(ctx, expr)
        if is_rounded:
            self._prepare_parts(expr)
        else:
            self._prepare(expr)
        narrow = ctx.scalar(buffer).narrow
        first = self._address(store)
        if narrow and buffer in ctx.arrays:
            row = self._as_row(expr)
            function = write(ctx, buffer, f"ty_row_{'to' if is_rounded else 'pack'}_{narrow}")
            ctx.out.line(f"{function}({first}, {row}, count_{self._large(buffer)});")
            return
        if buffer in ctx.large and ctx.element_type(buffer) == "float":
            row = self._as_row(expr)
            size = f"count_ * sizeof(float){self._large(buffer)}"
            ctx.out.line(f"ty_write({first}, {row}, {size});")
            return
        self._loop(place(ctx, buffer, store.indices), expr)
        if is_rounded:
            ctx.out.line(f"ty_row_round_{narrow}({first}, {first}, count_);")

    def _store_vectors(self, store: Store) -> bool:
        """Write simple values by the vector, where they are; returns whether they are simple."""
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

    def _large(self, buffer: str) -> str:
        return f", {self._ctx.large[buffer]}" if buffer in self._ctx.large else ""

    def _store_function(self, store: Store) -> None:
        """A function of a row whose last argument can lie where the result goes."""
        ctx, expr, narrow = self._ctx, store.value, SCALARS[store.value.dtype].narrow
        *others, last = children(expr)
        for part in (*others, last):
            self._prepare(part)
        rows = [self._as_row(part) for part in others]
        first = self._address(store)
        if last in ctx.known:
            rows.append(self._as_row(last))
        else:
            self._loop(place(ctx, store.buffer, store.indices), last)
            rows.append(first)
        self._call(expr, first, rows)
        if narrow:
            ctx.out.line(f"ty_row_round_{narrow}({first}, {first}, count_);")

    def _call(self, expr: Expr, to: str, rows: list[str]) -> None:
        if not isinstance(expr, Op):
            raise AssertionError(f"{expr} is no function of rows")
        self._ctx.out.line(f"ty_row_{expr.name}_f32({to}, {', '.join(rows)}, count_);")

    def _address(self, store: Store) -> str:
        """Where the first element of the row is, in C."""
        with self._first():
            text = place(self._ctx, store.buffer, store.indices)
        return f"&{text}"

    @contextmanager
    def _first(self) -> Iterator[None]:
        """Inside, the loop's variable is the first of the row."""
        names, var = self._ctx.names, self._stmt.var.name
        names.alias(var, "at_")
        yield
        names.alias(var, self._name)

    def _prepare(self, expr: Expr) -> None:
        """Write rows for all parts of ``expr`` that are read from narrow memory, or rounded."""
        ctx = self._ctx
        if expr in ctx.known:
            return
        if isinstance(expr, Load):
            if is_narrow_row(ctx, expr, self._stmt.var):
                row = self._new_row()
                with self._first():
                    source = place(ctx, expr.buffer, expr.indices)
                ctx.out.line(
                    f"ty_row_from_{ctx.scalar(expr.buffer).narrow}({row}, &{source}, count_);"
                )
                ctx.known[expr] = f"{row}[n_]"
            return
        self._prepare_parts(expr)
        narrow = SCALARS[expr.dtype].narrow
        if is_row_function(expr):
            rows = [self._as_row(part) for part in children(expr)]
            row = self._new_row()
            self._call(expr, row, rows)
            if narrow:
                ctx.out.line(f"ty_row_round_{narrow}({row}, {row}, count_);")
            ctx.known[expr] = f"{row}[n_]"
        elif rounds(ctx, expr):
            row = self._as_row(expr)
            ctx.out.line(f"ty_row_round_{narrow}({row}, {row}, count_);")
            ctx.known[expr] = f"{row}[n_]"

    def _prepare_parts(self, expr: Expr) -> None:
        for child in children(expr):
            self._prepare(child)

    def _new_row(self) -> str:
        row = f"row{self._count}_"
        self._count += 1
        self._ctx.out.line(f"float {row}[{_LENGTH}] __attribute__((aligned(64)));")
        return row

    def _as_row(self, expr: Expr) -> str:
        """The row that holds the values of ``expr``, the last rounding left out."""
        if expr in self._ctx.known:
            return self._ctx.known[expr].removesuffix("[n_]")
        row = self._new_row()
        self._loop(f"{row}[n_]", expr)
        return row

    def _loop(self, target: str, expr: Expr) -> None:
        """Write the values of ``expr``, the last rounding left out, to ``target``."""
        ctx, out, kind = self._ctx, self._ctx.out, self._kind
        count = count_at_once(expr, self._stmt)
        out.line("TY_INDEPENDENT")
        if count == 1:
            with out.block(f"for ({kind} n_ = 0; n_ < count_; ++n_)"):
                out.line(f"const {kind} {self._name} = at_ + n_;")
                out.line(f"{target} = {self._text(expr)};")
            return
        group = self._group(count)
        with out.block(f"for ({kind} e_ = 0; e_ < count_ / {count}; ++e_)"):
            out.line(f"const {kind} {ctx.names[group.name]} = at_ / {count} + e_;")
            for rest in range(count):
                bounds: set[Bound] = set()
                part = Part(
                    ctx=ctx, var=self._stmt.var, group=group, count=count, rest=rest, bounds=bounds
                )
                resolved = replace_parts(expr, part.resolve)
                with out.block(""), ctx.assuming(ctx.assumed | bounds):
                    out.line(f"const {kind} n_ = {count} * e_ + {rest}, {self._name} = at_ + n_;")
                    out.line(f"{target} = {self._text(resolved)};")

    def _text(self, expr: Expr) -> str:
        return unrounded(self._ctx, expr)[0] if rounds(self._ctx, expr) else value(self._ctx, expr)

    def _group(self, count: int) -> Var:
        """A variable for the number of the group of elements, as the loop's variable counts them."""
        ctx, var = self._ctx, self._stmt.var
        group = Var(ctx.names.fresh(f"{self._name}_by_{count}"), var.dtype)
        ctx.names.bind(group.name)
        inside = ctx.ranges.of(var)
        ctx.ranges.bind(group, Interval(inside.low // count, inside.high // count))
        return group
