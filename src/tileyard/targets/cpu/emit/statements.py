"""Writes statements in C: loops, branches, bindings and single elements; tile operations are passed on."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import assert_never

from tileyard.base.errors import UnsupportedError
from tileyard.base.model import SourceLine
from tileyard.ir.nodes import (
    AnyTileOperation,
    Assert,
    Atomic,
    Await,
    Break,
    Copy,
    Fill,
    For,
    Gemm,
    If,
    Issue,
    Let,
    Print,
    Reduce,
    Roles,
    Stmt,
    Store,
    Synchronization,
    TileOperation,
    While,
)
from tileyard.ir.printer import print_statement
from tileyard.ir.walk import buffer_effects
from tileyard.targets.cpu.emit.context import Context
from tileyard.targets.cpu.emit.copies import emit_copy, emit_fill, is_put, match_boxes, settle
from tileyard.targets.cpu.emit.exprs import (
    index,
    index_side,
    store,
    value,
    value_as,
)
from tileyard.targets.cpu.emit.following import (
    Row,
    find_repeat,
    find_share,
    find_unwritten,
    next_turn,
    rows_read,
)
from tileyard.targets.cpu.emit.gemms import emit_gemm
from tileyard.targets.cpu.emit.loops import interior_tests, is_independent
from tileyard.targets.cpu.emit.nests import Pass, find_pass
from tileyard.targets.cpu.emit.overlap import find_overlap
from tileyard.targets.cpu.emit.passes import emit_pass
from tileyard.targets.cpu.emit.plain_statements import (
    Role,
    emit_assert,
    emit_atomic,
    emit_print,
    emit_roles,
    emit_wait,
    refuse,
)
from tileyard.targets.cpu.emit.reductions import emit_reduce
from tileyard.targets.cpu.emit.sanitizing import noting
from tileyard.targets.cpu.emit.scalars import SCALARS
from tileyard.targets.cpu.emit.tiles import add, count_statements, numbered
from tileyard.targets.cpu.emit.vectors import emit_rows


class Statements:
    """Writes bodies. ``lines`` are only for messages: no C text depends on them."""

    def __init__(self, ctx: Context, lines: dict[int, SourceLine]) -> None:
        self._ctx = ctx
        self._lines = lines
        self._parallel = False
        self._role: Role | None = None
        self._loops: list[For] = []
        self._depth = 0
        self._overlap: dict[int, tuple[str, Pass]] = {}

    def body(self, body: tuple[Stmt, ...], number: int) -> None:
        """Write statements in order; ``number`` is the first one's pre-order number."""
        done, read = 0, list[Row]()
        repeats = dict(self._ctx.repeats)
        self._depth += 1
        if self._depth == 1 and body == self._ctx.program.body and not self._ctx.is_sanitized:
            self._overlap = find_overlap(self._ctx, body)
        while done < len(body):
            self._ctx.statement = number
            try:
                count = self._pass(body[done:], number, read)
                if not count:
                    self._stmt(body[done], number)
                    for name in buffer_effects(body[done : done + 1]).written:
                        self._ctx.repeats.pop(name, None)
            except UnsupportedError as error:
                if not error.file and number in self._lines:
                    error.file, error.line = self._lines[number].file, self._lines[number].line
                raise
            count = count or 1
            written = body[done : done + count]
            if not self._parallel:
                for stmt in written:
                    read += rows_read(self._ctx, stmt, next_turn(self._ctx, self._loops))
            number += count_statements(*written)
            done += count
        self._depth -= 1
        self._ctx.repeats = repeats

    def _pass(self, body: tuple[Stmt, ...], number: int, read: list[Row]) -> int:
        """Write the statements that ``body`` begins with in one pass; returns their number.
        ``read`` are the rows read since the last pass.
        """
        ctx = self._ctx
        if self._parallel or ctx.is_sanitized:
            return 0
        element = find_repeat(ctx, body)
        if element is not None and isinstance(body[0], Copy):
            ctx.repeats[body[0].dst.buffer] = element
            said = print_statement(ctx.program, body[0]).strip()
            ctx.out.line(f"/* {number}: {said}: read where it is */")
            return 1
        found = find_pass(ctx, body)
        if found is None:
            return 0
        for step in found.nest.steps:
            ctx.repeats.pop(step.buffer, None)
        rest = body[len(found.statements) :]
        head, found = self._overlap.get(id(body[0]), ("", found))
        read = [] if head else read
        share = find_share(ctx, found, rest, read) if read else 0.0
        unwritten = find_unwritten(ctx, found, rest, is_outermost=self._depth == 1)
        for stmt in found.statements:
            settle(ctx, stmt)

        def one_by_one() -> None:
            for at, stmt in numbered(found.statements, number):
                ctx.statement = at
                self._stmt(stmt, at)

        with ctx.out.block(head) if head else nullcontext():
            ctx.out.either(
                found.tests.values(),
                lambda: emit_pass(ctx, found, unwritten, read, share),
                one_by_one,
            )
        return len(found.statements)

    def _stmt(self, stmt: Stmt, number: int) -> None:
        out = self._ctx.out
        if not self._parallel:
            settle(self._ctx, stmt)
        match stmt:
            case Let():
                self._let(stmt)
            case Store():
                text = value_as(self._ctx, stmt.value, self._ctx.dtype(stmt.buffer))
                store(self._ctx, stmt.buffer, stmt.indices, text)
            case Atomic():
                emit_atomic(self._ctx, stmt)
            case Print():
                emit_print(self._ctx, stmt)
            case Assert():
                emit_assert(self._ctx, stmt)
            case For():
                self._for(stmt, number)
            case If():
                self._if(stmt, number)
            case While():
                self._while(stmt, number)
            case Break():
                out.line("break;")
            case Roles():
                self._roles(stmt, number)
            case Await():
                emit_wait(self._ctx, stmt, self._role)
            case TileOperation():
                self._tile(stmt)
            case Issue() | Synchronization():
                refuse(stmt)
            case _:
                assert_never(stmt)

    def _tile(self, stmt: AnyTileOperation) -> None:
        ctx = self._ctx
        match stmt:
            case Copy():
                write = partial(self._copy, stmt)
            case Fill():
                write = partial(emit_fill, ctx, stmt)
            case Gemm():
                write = partial(emit_gemm, ctx, stmt)
            case Reduce():
                write = partial(emit_reduce, ctx, stmt)
            case _:
                refuse(stmt)
        self._comment(stmt)
        noted = noting(ctx, stmt) if ctx.is_sanitized else nullcontext()
        with ctx.out.block(""), noted:
            write()

    def _comment(self, stmt: Stmt) -> None:
        """Write the statement as a comment, with its number, which leads to its line."""
        ctx = self._ctx
        text = print_statement(ctx.program, stmt).strip().removesuffix(":")
        ctx.out.line(f"/* {ctx.statement}: {text} */")

    def _copy(self, stmt: Copy) -> None:
        """Write a copy, which is skipped if another block has left its result."""
        ctx, buffer = self._ctx, stmt.dst.buffer
        if id(stmt) in ctx.plan.forwarding.copies:
            ctx.out.line(f"/* left out: gemms read {ctx.names[stmt.src.buffer]} */")
            return
        kept = ctx.plan.keeping.tiles.get(buffer)
        if kept is None:
            emit_copy(ctx, stmt.src, stmt.dst)
            return
        tile, name = ctx.plan.tiles[buffer], ctx.names[buffer]
        place = f"{'shared' if kept.is_shared else 'scratch'} + {tile.offset}"
        claim = f"&{ctx.claims[buffer]}[slot_]"
        ctx.out.line(f"const int64_t slot_ = {index(ctx, kept.slot)};")
        ctx.out.line(f"{name} = (void *)({place} + slot_ * {tile.bytes // tile.slots});")
        if kept.content is not None:
            ctx.out.line(f"const int64_t content_ = {index(ctx, kept.content)} + INT64_C(1);")
            with ctx.out.block(f"if (*{claim} != content_)"):
                emit_copy(ctx, stmt.src, stmt.dst)
                ctx.out.line(f"*{claim} = content_;")
            return
        with ctx.out.block(f"if (ty_claim({claim}))"):
            emit_copy(ctx, stmt.src, stmt.dst)
            if is_put(ctx, match_boxes(stmt.src, stmt.dst)):
                ctx.out.line("TY_SETTLE();")
            ctx.out.line(f"ty_publish({claim});")

    def _let(self, stmt: Let) -> None:
        ctx = self._ctx
        var = stmt.var
        text = value_as(ctx, stmt.value, var.dtype)
        if var.dtype == stmt.value.dtype and SCALARS[var.dtype].suffix[0] in "iu":
            ctx.ranges.bind(var, ctx.ranges.of(stmt.value))
        ctx.out.line(f"{ctx.binding(var)} = {text};")

    def _roles(self, stmt: Roles, number: int) -> None:
        def write(role: Role, place: int) -> None:
            before = (inner for body in stmt.bodies[:place] for inner in body)
            self._role = role
            self.body(stmt.bodies[place], number + 1 + count_statements(*before))

        emit_roles(self._ctx, stmt, write)
        self._role = None

    def _if(self, stmt: If, number: int) -> None:
        ctx = self._ctx
        before = set(ctx.maybe_clear)
        with ctx.out.block(f"if ({value(ctx, stmt.cond)})"):
            self.body(stmt.then, number + 1)
        after, ctx.maybe_clear = ctx.maybe_clear, before
        if stmt.orelse:
            with ctx.out.block("else"):
                self.body(stmt.orelse, number + 1 + count_statements(*stmt.then))
        ctx.maybe_clear |= after

    @contextmanager
    def _repeated(self) -> Iterator[None]:
        """Around a loop body: which tiles count as clear depends on the iteration."""
        self._ctx.maybe_clear = set(self._ctx.lazy)
        yield
        self._ctx.maybe_clear = set(self._ctx.lazy)

    # ---- loops ------------------------------------------------------------------------------

    def _while(self, stmt: While, number: int) -> None:
        out = self._ctx.out
        with self._repeated(), out.block(f"while ({value(self._ctx, stmt.cond)})"):
            if self._ctx.is_sanitized:  # poison may keep the loop going
                out.line("if (fault.site) return ty_failed(report, &fault);")
            self.body(stmt.body, number + 1)

    def _for(self, stmt: For, number: int) -> None:
        ctx = self._ctx
        if not self._parallel:
            self._comment(stmt)
        if stmt.kind != "parallel" or self._parallel:
            self._loop(stmt, number)
            return
        self._parallel = True
        tests = interior_tests(ctx, stmt)

        def inside() -> None:
            with ctx.assuming(set(tests)):
                self._loop(stmt, number)

        if tests:
            ctx.out.line("/* all of it inside the arrays, or else element by element */")
        ctx.out.either(tests.values(), inside, lambda: self._loop(stmt, number))
        self._parallel = False

    def _loop(self, stmt: For, number: int) -> None:
        ctx = self._ctx
        name, kind = ctx.names[stmt.var.name], SCALARS[stmt.var.dtype].value
        start = index(ctx, stmt.start)
        end = index_side(ctx, add(stmt.start, stmt.extent))
        ctx.ranges.bind_loop(stmt)
        if self._parallel and not ctx.is_sanitized and is_independent(ctx, stmt):
            if emit_rows(ctx, stmt):
                return
            ctx.out.line("TY_INDEPENDENT")
        first = name if stmt.var.name in ctx.outliving else f"{kind} {name}"
        head = f"for ({first} = {start}; {name} < {end}; ++{name})"
        with nullcontext() if self._parallel else self._repeated(), ctx.out.block(head):
            self._loops.append(stmt)
            self.body(stmt.body, number + 1)
            self._loops.pop()
