"""Writes reductions in C: a row at a time if the axis is the last one, otherwise row after row into a row."""

from collections.abc import Callable
from typing import assert_never

from tileyard.base.errors import UnsupportedError
from tileyard.ir.dtypes import is_float
from tileyard.ir.nodes import Reduce, ReduceKind
from tileyard.targets.cpu.emit.context import Context
from tileyard.targets.cpu.emit.copies import inside_tests
from tileyard.targets.cpu.emit.exprs import (
    index_term,
    load,
    load_as,
    place,
    store,
)
from tileyard.targets.cpu.emit.loops import counter, loop
from tileyard.targets.cpu.emit.nests import FOLDS
from tileyard.targets.cpu.emit.scalars import BINARY, SCALARS, identity_literal
from tileyard.targets.cpu.emit.tiles import moved, pair_dimensions


def emit_reduce(ctx: Context, stmt: Reduce) -> None:
    """Write a reduction. Sums in narrow floats are rounded once, at the end."""
    pairs = pair_dimensions(stmt.src, stmt.dst, stmt.axis % len(stmt.src.extents))
    if pairs is None:
        raise UnsupportedError(
            f"{stmt.dst.buffer} does not have the shape of {stmt.src.buffer} without its axis",
            operation="reduce",
        )
    if ctx.storage(stmt.src.buffer) == ctx.storage(stmt.dst.buffer):
        raise UnsupportedError(f"reduce within {stmt.src.buffer}", operation="reduce")
    if stmt.kind.startswith("bit") and is_float(ctx.dtype(stmt.dst.buffer)):
        raise UnsupportedError(f"reduce {stmt.kind} of floats", operation="reduce")
    for region in (stmt.src, stmt.dst):
        if region.buffer not in ctx.arrays:
            inside_tests(ctx, region)
    _Reduction(ctx, stmt, pairs).write()


class _Reduction:
    """One reduction while it is written; each remaining dimension has a counter."""

    def __init__(self, ctx: Context, stmt: Reduce, pairs: dict[int, int]) -> None:
        self._ctx = ctx
        self._stmt = stmt
        self._kept = list(pairs.values())
        self._axis = stmt.axis % len(stmt.src.extents)
        self._counters = {i: counter(ctx, "i", stmt.src.extents[i]) for i in self._kept}
        self._row = moved(stmt.src, self._counters)
        self._target = moved(stmt.dst, {j: self._counters[i] for j, i in pairs.items()})
        self._counters[self._axis] = counter(ctx, "r", stmt.src.extents[self._axis])
        self._source = moved(stmt.src, self._counters)
        self._dtype = ctx.dtype(stmt.dst.buffer)
        is_sum = stmt.kind in ("sum", "abssum")
        self._rounding = SCALARS[self._dtype].narrow if is_sum else ""

    def write(self) -> None:
        last = self._axis > max(self._kept, default=-1)
        if last and self._is_row_of_floats():
            self._nest(self._kept, self._whole_row)
        elif last:
            self._nest(self._kept, self._one_by_one)
        else:
            if self._stmt.clear:
                self._nest(self._kept, lambda: self._store(self._start()))
            before = [i for i in self._kept if i < self._axis]
            after = [i for i in self._kept if i > self._axis]
            self._nest(
                before, lambda: self._nest([self._axis], lambda: self._nest(after, self._step_into))
            )
            if self._rounding:
                self._nest(self._kept, lambda: self._store(self._round(self._old())))

    def _nest(self, dimensions: list[int], body: Callable[[], None]) -> None:
        if not dimensions:
            body()
            return
        first, *rest = dimensions
        var = self._counters[first]
        if not rest and first != self._axis and body != self._whole_row:
            self._ctx.out.line("TY_INDEPENDENT")
        with self._ctx.out.block(loop(self._ctx, var, self._stmt.src.extents[first])):
            self._nest(rest, body)

    # ---- bodies of the loops --------------------------------------------------------------------

    def _is_row_of_floats(self) -> bool:
        """Whether tile.h has a function that folds the row in place."""
        ctx, src = self._ctx, self._stmt.src
        return (
            self._axis == len(src.extents) - 1
            and self._stmt.kind in FOLDS
            and ctx.element_type(src.buffer) == SCALARS[self._dtype].value == "float"
            and not (src.buffer in ctx.arrays and inside_tests(ctx, src))
            and self._dtype in ("float32", ctx.dtype(src.buffer))
        )

    def _whole_row(self) -> None:
        row = place(self._ctx, self._stmt.src.buffer, self._row)
        count = index_term(self._ctx, self._stmt.src.extents[self._axis])
        folded = f"ty_row_{self._stmt.kind}({self._start()}, &{row}, {count})"
        self._store(self._round(folded))

    def _one_by_one(self) -> None:
        out = self._ctx.out
        out.line(f"{SCALARS[self._dtype].value} total_ = {self._start()};")
        self._nest(
            [self._axis],
            lambda: out.line(f"total_ = {self._step(self._stmt.kind, 'total_', self._part())};"),
        )
        self._store(self._round("total_"))

    def _step_into(self) -> None:
        total = self._step(self._stmt.kind, f"({self._old()})", self._part())
        is_array = self._stmt.dst.buffer in self._ctx.arrays
        self._store(self._round(total) if is_array else total)

    def _store(self, text: str) -> None:
        store(self._ctx, self._stmt.dst.buffer, self._target, text)

    # ---- values ---------------------------------------------------------------------------------

    def _old(self) -> str:
        return load(self._ctx, self._stmt.dst.buffer, self._target).text

    def _start(self) -> str:
        is_clear = self._stmt.clear
        return identity_literal(self._stmt.kind, self._dtype) if is_clear else f"({self._old()})"

    def _part(self) -> str:
        return load_as(self._ctx, self._stmt.src.buffer, self._source, self._dtype)

    def _round(self, text: str) -> str:
        return f"ty_round_{self._rounding}({text})" if self._rounding else text

    def _step(self, kind: ReduceKind, total: str, part: str) -> str:
        scalar = SCALARS[self._dtype]
        match kind:
            case "sum":
                if is_float(self._dtype):
                    return f"{total} + {part}"
                return f"ty_add_{scalar.suffix}({total}, {part})"
            case "max" | "min":
                return f"ty_{kind}_{scalar.suffix}({total}, {part})"
            case "abssum":
                return self._step("sum", total, f"ty_abs_{scalar.suffix}({part})")
            case "absmax":
                return self._step("max", total, f"ty_abs_{scalar.suffix}({part})")
            case "bitand" | "bitor" | "bitxor":
                return f"({scalar.value})({total} {BINARY[kind][0]} {part})"
            case _:
                assert_never(kind)
