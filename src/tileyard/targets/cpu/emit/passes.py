"""Writes passes over rows in C by four vectors, one, then elements; values between them stay in registers."""

from collections.abc import Sequence
from contextlib import ExitStack

from tileyard.ir.nodes import Const, Expr, Load, Op, Store
from tileyard.ir.printer import print_statement
from tileyard.ir.walk import children, walk_expr
from tileyard.targets.cpu.emit.context import Context
from tileyard.targets.cpu.emit.exprs import declare_axes, load, place, store, to_memory, value
from tileyard.targets.cpu.emit.following import Row, declare_ahead
from tileyard.targets.cpu.emit.loops import Fold, Step, loop
from tileyard.targets.cpu.emit.nests import Pass
from tileyard.targets.cpu.emit.scalars import SCALARS, identity_literal
from tileyard.targets.cpu.emit.tiles import numbered
from tileyard.targets.cpu.emit.vectors import (
    AT_ONCE,
    LENGTHS,
    ONE,
    QUAD,
    Table,
    Vectors,
    find_table,
    is_laced,
    narrow_rows,
    write_table,
)


def emit_pass(
    ctx: Context, found: Pass, unwritten: frozenset[str], rows: Sequence[Row], share: float
) -> None:
    """Write a pass whose tests hold; nothing else reads ``unwritten`` tiles. It prefetches its
    share of ``rows``.
    """
    for number, stmt in numbered(found.statements, ctx.statement):
        said = print_statement(ctx.program, stmt).splitlines()[0].strip()
        ctx.out.line(f"/* {number}: {said} */")
    nest = found.nest
    before = dict(ctx.known)
    with ctx.assuming(ctx.assumed | set(found.tests)), ExitStack() as loops:
        loops.enter_context(ctx.out.block(""))
        blocks = ("(block - (block > first))", "(block + (block + 1 < last))")
        for axes, block in zip(found.others, blocks, strict=False):
            declare_axes(ctx, axes, block)
        for var, size in zip(nest.variables[:-1], nest.sizes[:-1], strict=True):
            loops.enter_context(ctx.out.block(loop(ctx, var, Const(size, "int32"))))
        lines = declare_ahead(ctx, found, rows, share)
        _Rows(ctx, found, unwritten).write(lines)
    ctx.known = before


class _Rows:
    """The rows of a nest while they are written; names are unique within a row."""

    def __init__(self, ctx: Context, found: Pass, unwritten: frozenset[str]) -> None:
        self._ctx = ctx
        self._nest = nest = found.nest
        self._late = found.late
        self._unwritten = unwritten
        self._at = nest.along
        self._vectors = Vectors(ctx, nest, laced=is_laced(ctx, nest, unwritten))
        self._narrow = narrow_rows(ctx, nest)
        self._places: dict[int, str] = {}
        self._tables: dict[int, tuple[Table, str]] = {}
        self._totals: dict[int, str] = {}
        self._parts: dict[tuple[str, int], str] = {}

    def write(self, beside: Sequence[str]) -> None:
        """Write one row; ``beside`` are lines of C that are added to each four vectors."""
        out, at = self._ctx.out, self._at.name
        self._begin()
        out.line(f"int32_t {at} = 0;")
        self._by_vectors(beside)
        for i, step in self._folds():
            narrow = self._ctx.scalar(step.buffer).narrow
            rounds = narrow and step.kind in ("sum", "abssum")
            total = f"ty_round_{narrow}({self._totals[i]})" if rounds else self._totals[i]
            store(self._ctx, step.buffer, step.indices, total)

    def _by_vectors(self, beside: Sequence[str]) -> None:
        """Write the elements of a row as vectors, and the rest one by one."""
        out, columns, at = self._ctx.out, self._nest.columns, self._at.name
        for form in (QUAD, ONE):
            if form == QUAD:
                self._lines(
                    "ty_quad {1} = ty_quad_begin_{3}();", "ty_tops {1} = ty_tops_begin_{3}();"
                )
            else:
                totals = "ty_unlaced({1})" if self._vectors.laced else "{1}"
                self._lines(f"ty_row {{2}} = ty_quad_join_{{3}}({totals});")
                if columns % 32 == 0:
                    break
            self._vectors.form = form
            length = LENGTHS[form]
            early = self._begin_early() if form == QUAD else {}
            turn = f"2 * {length}" if early else length
            with out.block(f"for (; {at} + {turn} <= {columns}; {at} += {length})"):
                now = self._next_early(early)
                for part in "ab" if early else "a":
                    if part == "b":
                        out.line(f"{at} += {length};")
                    for line in beside if form == QUAD else ():
                        out.line(line)
                    self._steps({i: (call, f"{name}.{part}") for i, (call, name) in now.items()})
        on_bits = "{0} = ty_tops_end_{3}_{4}({0}, {1}, &{5}, {6});"
        self._lines("{0} = ty_one_join_{3}({0}, {2});", on_bits)
        if columns % 8:
            with out.block(f"for (; {at} < {columns}; ++{at})"):
                self._single()

    def _folds(self) -> list[tuple[int, Fold]]:
        return [(i, step) for i, step in enumerate(self._nest.steps) if isinstance(step, Fold)]

    def _lines(self, text: str, on_bits: str = "") -> None:
        """Write a line for each fold: ``text``, or ``on_bits`` if it is one of the bits of narrow numbers."""
        for i, step in self._folds():
            parts = [self._totals[i], self._parts[QUAD, i], self._parts[ONE, i], step.kind]
            if row := self._narrow.get(i):
                parts += [SCALARS[row.dtype].narrow, self._first(row)]
            line = on_bits if row else text
            if line:
                self._ctx.out.line(line.format(*parts, self._nest.columns))

    # ---- before the loops -------------------------------------------------------------------------

    def _begin(self) -> None:
        """Write what all elements of a row share: numbers, totals, and the alignment of outputs."""
        ctx = self._ctx
        for i, step in enumerate(self._nest.steps):
            self._hoist(step.value)
            if isinstance(step, Fold):
                self._totals[i] = ctx.names.fresh("total")
                for form in (QUAD, ONE):
                    self._parts[form, i] = ctx.names.fresh("totals")
                start = f"({load(ctx, step.buffer, step.indices).text})"
                if step.clear:
                    start = identity_literal(step.kind, ctx.dtype(step.buffer))
                ctx.out.line(f"float {self._totals[i]} = {start};")
                continue
            if (table := find_table(ctx, self._nest, step)) and not self._is_read(i, step):
                self._tables[i] = table, write_table(ctx, table, step.buffer)
            if step.buffer in ctx.large:
                self._places[i] = ctx.names.fresh("past")
                first = self._first(step)
                ctx.out.line(
                    f"const int {self._places[i]} = TY_PLACE(&{first}, {ctx.large[step.buffer]});"
                )

    def _first(self, step: Store | Load) -> str:
        with self._ctx.names.aliased(self._at.name, "0"):
            return place(self._ctx, step.buffer, step.indices)

    def _hoist(self, expr: Expr) -> None:
        """Give names to values that do not change along the row."""
        if expr in self._vectors.same or isinstance(expr, Const):
            return
        if self._at in walk_expr(expr):
            if not isinstance(expr, Load):
                for child in children(expr):
                    self._hoist(child)
            return
        if SCALARS[expr.dtype].value == "float":
            name = self._ctx.names.fresh("same")
            self._ctx.out.line(f"const float {name} = {value(self._ctx, expr)};")
            self._vectors.same[expr] = name
            self._ctx.known[expr] = name

    # ---- single elements ----------------------------------------------------------------------------

    def _single(self) -> None:
        ctx, out = self._ctx, self._ctx.out
        self._forget()
        for i, step in enumerate(self._nest.steps):
            if isinstance(step, Fold):
                name = self._totals[i]
                out.line(f"{name} = ty_fold_{step.kind}({name}, {value(ctx, step.value)});")
                continue
            name = self._ctx.names.fresh("value")
            out.line(f"const float {name} = {value(ctx, step.value)};")
            ctx.known[self._key(step)] = name
            if step.buffer not in self._unwritten:
                target = place(ctx, step.buffer, step.indices)
                out.line(f"{target} = {to_memory(ctx, step.buffer, name)};")

    def _forget(self) -> None:
        """Forget all known values except those that are the same along the row."""
        self._vectors.spilled.clear()
        self._ctx.known = {**self._ctx.known, **self._vectors.same}
        for step in self._nest.steps:
            if isinstance(step, Store):
                self._ctx.known.pop(self._key(step), None)

    # ---- vectors ------------------------------------------------------------------------------------

    def _steps(self, early: dict[int, tuple[Op, str]]) -> None:
        """Write the steps at one place; ``early`` are calls in steps, and their values in C."""
        self._forget()
        if self._late:
            with self._ctx.out.block("if (block > first)"):
                for i, step in enumerate(self._nest.steps[: self._late]):
                    self._step(i, step, {})
            self._forget()
        for i, step in enumerate(self._nest.steps[self._late :], self._late):
            known: dict[Expr, str] = {}
            if i in early:
                call, name = early[i]
                known[call] = self._vectors.rounded(name, SCALARS[call.dtype].narrow)
            self._step(i, step, known)

    def _step(self, i: int, step: Step, early: dict[Expr, str]) -> None:
        ctx, out, form = self._ctx, self._ctx.out, self._vectors.form
        if isinstance(step, Fold):
            name = self._parts[form, i]
            if row := self._narrow.get(i):
                first = place(ctx, row.buffer, row.indices)
                call = f"ty_tops_fold_{step.kind}_{SCALARS[row.dtype].narrow}"
                out.line(f"{name} = {call}({name}, &{first});")
                return
            folded = self._vectors.rounded(*self._unrounded(step, early))
            out.line(f"{name} = ty_{form}_fold_{step.kind}({name}, {folded});")
            return
        target = f"&{place(ctx, step.buffer, step.indices)}"
        past = f", {self._places.get(i, 0)}" if form == QUAD else ""
        if form == QUAD and i in self._tables:
            table, name = self._tables[i]
            at = self._vectors.in_memory(table.place)
            out.line(f"ty_quad_look_up({target}, {at}, {name}{past});")
            return
        text, rounding = self._unrounded(step, early)
        narrow = ctx.narrow(step.buffer)
        key = self._key(step)
        is_read = self._is_read(i, step)
        self._vectors.spilled.pop(key, None)
        if is_read or not narrow:
            text = self._vectors.rounded(text, rounding)
        if is_read:
            name = self._ctx.names.fresh("value")
            out.line(f"const {'ty_quad' if form == QUAD else 'ty_row'} {name} = {text};")
            ctx.known[key] = text = name
        if step.buffer not in self._unwritten:
            call = f"ty_{self._vectors.moved}_store" if form == QUAD else "ty_store"
            out.line(f"{call}_{narrow or 'f32'}({target}, {text}{past});")

    def _unrounded(self, step: Store | Fold, early: dict[Expr, str]) -> tuple[str, str]:
        """A step's value without its final rounding; ``early`` are C names of parts of it."""
        known = self._ctx.known
        known.update(early)
        found = self._vectors.unrounded(step.value)
        for part in early:
            del known[part]
        return found

    # ---- functions that are computed early ----------------------------------------------------------

    def _begin_early(self) -> dict[int, tuple[Op, str]]:
        """The functions that are computed where a turn of two quads begins, by the numbers of their steps,
        and the names of their next arguments, which are computed a turn early; writes the first ones.
        CPUs look ahead by little more than a turn.
        """
        ctx, found = self._ctx, dict[int, tuple[Op, str]]()
        if ctx.machine.vector_bytes < 64 or self._nest.columns % (2 * AT_ONCE):
            return found
        self._forget()
        written: set[str] = set()
        for i, step in enumerate(self._nest.steps):
            parts = walk_expr(step.value)
            calls = [x for x in parts if isinstance(x, Op) and x.name in ("exp", "exp2")]
            is_here = i >= self._late and len(calls) == 1
            if is_here and self._vectors.is_early(calls[0].args[0], written):
                found[i] = calls[0], ctx.names.fresh("soon")
                ctx.out.line(f"ty_pair {found[i][1]} = {self._pair(calls[0], '0')};")
            written.add(step.buffer)
        return found

    def _pair(self, call: Op, start: str) -> str:
        """A function's argument for the two quads at ``start``."""
        quads = []
        for place_ in (start, f"({start} + TY_QUAD)"):
            with self._ctx.names.aliased(self._at.name, place_):
                quads.append(self._vectors.write(call.args[0]))
        return f"(ty_pair){{{', '.join(quads)}}}"

    def _next_early(self, early: dict[int, tuple[Op, str]]) -> dict[int, tuple[Op, str]]:
        """Write the next turn's arguments, and the functions of this turn's; returns their names."""
        ctx, out, at = self._ctx, self._ctx.out, self._at.name
        if not early:
            return {}
        self._forget()
        found, following = dict[int, tuple[Op, str]](), ctx.names.fresh("next")
        is_last = f"{at} + 4 * TY_QUAD > {self._nest.columns}"
        out.line(f"const int32_t {following} = {is_last} ? {at} : {at} + 2 * TY_QUAD;")
        for i, (call, soon) in early.items():
            found[i] = call, ctx.names.fresh("now")
            out.line(f"const ty_pair {found[i][1]} = ty_pair_{call.name}({soon});")
            out.line(f"{soon} = {self._pair(call, following)};")
        return found

    def _key(self, step: Store) -> Load:
        """The load of the element that a step writes."""
        return Load(step.buffer, step.indices, self._ctx.dtype(step.buffer))

    def _is_read(self, i: int, step: Store) -> bool:
        key = self._key(step)
        return any(key in walk_expr(later.value) for later in self._nest.steps[i + 1 :])
