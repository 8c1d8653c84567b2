"""Turns a kernel after a pipeline of Tileyard's into TIR again: written, elaborated, read back."""

import itertools
import linecache
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import tilelang.language
from tilelang import ir as tl_ir
from tilelang import tvm

from tileyard.artifacts.objects import digest_bytes
from tileyard.base.errors import UnsupportedError
from tileyard.base.model import Record, SourceLine, Value
from tileyard.frontend import tilelang_exprs as spell
from tileyard.frontend.blame import blame_user
from tileyard.frontend.no_device import assume_target
from tileyard.frontend.pipelined import plan
from tileyard.frontend.tilelang import Lowered, MadeKernel, lower_prim_func, make_kernel
from tileyard.frontend.tir_queries import nodes_of
from tileyard.frontend.to_tilelang import Written, write_program
from tileyard.frontend.writable import make_writable
from tileyard.ir.nodes import Expr, For, Load, Program, Region, Stmt, Tensor, Var
from tileyard.ir.printer import print_program, print_statement
from tileyard.ir.rewrite import with_bodies
from tileyard.ir.walk import bodies, replace_parts, walk
from tileyard.passes.pipeline import run_pipeline

NO_ROLES = "tl.disable_warp_specialized"
"""The option that stops TileLang from splitting blocks into roles itself."""


class Again(Record):
    """A pipeline's result: its source, its function with the user's lines, and TileLang's options."""

    written: Written
    func: Any
    options: dict[str, Value]


def write_again(
    func: Any,  # noqa: ANN401 (TVM's nodes are untyped)
    pipeline: str,
    out_idx: Sequence[int] | None,
    name: str,
    options: Mapping[str, Value],
) -> Again:
    """``func`` after the passes of ``pipeline``; ``options`` are those of TileLang's passes. Raises
    UnsupportedError for what its Program lacks or TileLang cannot express, UsageError for an
    unknown pipeline.
    """
    lowered = lower_prim_func(func, out_idx, name)
    _require_whole(lowered)
    last = run_pipeline(lowered.written, pipeline, lowered.written_lines)[-1]
    ready = make_writable(last.program)
    lines = {n: last.lines[old] for n, old in enumerate(ready.origins) if old in last.lines}
    options = {**options, NO_ROLES: True}  # whatever the kernel requests: its roles are written out
    written = write_program(ready.program, options, lines, swizzle=lowered.swizzle)
    again = elaborate(written)
    found = lower_prim_func(again, out_idx, name)
    _require_whole(found)
    require_same(ready.program, found.written, lines)
    _restore_lines(again, written, lines)
    return Again(written=written, func=again, options=options)


def read_again(
    program: Program,
    options: Mapping[str, Value],
    *,
    architecture: str = "",
    with_tir: bool = False,
) -> MadeKernel:
    """The Kernel of a Program that is complete as source; with an ``architecture`` as TileLang
    plans it for that. Raises UnsupportedError and InvalidProgramError for what either side does not
    cover, UserCodeError for what TileLang refuses.
    """
    try:
        written = write_program(program, options)
    except UnsupportedError:
        written = write_program(make_writable(program).program, options)
    outs = [n for n, p in enumerate(program.params) if isinstance(p, Tensor) and p.role == "out"]
    with blame_user("the written kernel"):
        func = elaborate(written)
    if architecture:
        func = plan(func, architecture, options)
    made = make_kernel(func, outs, program.name, with_tir=with_tir)
    return replace(made, source=written.source)


def _require_whole(lowered: Lowered) -> None:
    """Raise UnsupportedError for the first thing that the kernel contains and its Program does not."""
    for lost in (*lowered.given_up, *lowered.lost):
        where = lost.where
        place = f" at {where.file}:{where.line}" if where is not None else ""
        file, line = (where.file, where.line) if where is not None else ("", 0)
        message = f"{lost.message}{place}, so no pipeline of ours keeps it"
        raise UnsupportedError(message, "", lost.operation, file, line)


def elaborate(written: Written) -> Any:  # noqa: ANN401
    """The function that the source of a kernel defines."""
    source = written.source
    file = _file_of(written)
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    names: dict[str, Any] = {"__name__": file.strip("<>")}
    with assume_target():
        exec(compile(source, file, "exec"), names)
        return names[written.function]


def _file_of(written: Written) -> str:
    return f"/<tileyard {written.name} {digest_bytes(written.source.encode())[:12]}>"


# ---- comparison --------------------------------------------------------------------------------


def require_same(
    program: Program, found: Program, lines: Mapping[int, SourceLine] | None = None
) -> None:
    """Raise UnsupportedError for the first statement read back as another, but for provably equal extents."""
    mine, theirs = _plain(program), _plain(found)
    if mine == theirs:
        return
    one, other = (print_program(msgspec.structs.replace(p, body=())) for p in (mine, theirs))
    number, texts = -1, _first_difference(one.splitlines(), other.splitlines())
    if texts is None:
        pairs = enumerate(itertools.zip_longest(walk(mine.body), walk(theirs.body)))
        differing = next((one for one in pairs if not _are_same(*one[1])), None)
        if differing is None:
            return
        number, (first, second) = differing
        texts = (_describe(mine, first), _describe(theirs, second))
    where = (lines or {}).get(number)
    place = f" at {where.file}:{where.line}" if where is not None else ""
    file, line = (where.file, where.line) if where is not None else ("", 0)
    message = f"{texts[0]}{place} comes back from TileLang as {texts[1]}"
    raise UnsupportedError(message, "", texts[0], file, line)


def _describe(program: Program, stmt: Stmt | None) -> str:
    return "the end" if stmt is None else f"`{print_statement(program, stmt).strip()}`"


def _first_difference(mine: list[str], theirs: list[str]) -> tuple[str, str] | None:
    pairs = itertools.zip_longest(mine, theirs, fillvalue="nothing")
    found = next(((one, other) for one, other in pairs if one != other), None)
    return None if found is None else (f"`{found[0].strip()}`", f"`{found[1].strip()}`")


def _plain(program: Program) -> Program:
    """``program`` with its buffers sorted by name, and threads without trailing dimensions of 1."""
    threads = program.threads
    while threads[1:] and threads[-1] == 1:
        threads = threads[:-1]
    buffers = tuple(sorted(program.buffers, key=lambda buffer: buffer.name))
    return msgspec.structs.replace(program, buffers=buffers, threads=threads)


def _are_same(one: Stmt | None, other: Stmt | None) -> bool:
    """Whether two statements do the same, their bodies aside."""
    if one is None or other is None:
        return False
    if [len(body) for body in bodies(one)] != [len(body) for body in bodies(other)]:
        return False
    one, other = (with_bodies(stmt, tuple(() for _ in bodies(stmt))) for stmt in (one, other))
    return one == other or (type(one) is type(other) and _with_extents_of(one, other) == other)


def _with_extents_of(one: Stmt, other: Stmt) -> Stmt:
    """``one`` with those extents of ``other`` that are provably equal to its own."""
    fields: dict[str, Any] = {}
    for name in one.__struct_fields__:
        match getattr(one, name), getattr(other, name):
            case Region() as mine, Region() as theirs:
                pairs = zip(mine.extents, theirs.extents, strict=False)
                extents = tuple(b if _are_equal(a, b) else a for a, b in pairs)
                fields[name] = msgspec.structs.replace(mine, extents=extents)
            case mine, theirs if isinstance(one, For) and name == "extent":
                fields[name] = theirs if _are_equal(mine, theirs) else mine
            case _:
                pass
    return msgspec.structs.replace(one, **fields)


def _are_equal(one: Expr, other: Expr) -> bool:
    """Whether TVM can prove that two integers are equal, whatever memory contains."""
    variables: dict[str, Any] = {spell.MODULE: tilelang.language}

    def as_variable(part: Expr) -> Expr | None:
        if isinstance(part, Load):
            part = Var(f"load_{digest_bytes(repr(part).encode())}", part.dtype)
        if not isinstance(part, Var):
            return None
        variables.setdefault(part.name, tvm.tirx.Var(part.name, part.dtype))
        return part

    texts = [spell.expr(replace_parts(expr, as_variable)) for expr in (one, other)]
    values = [eval(text, variables) for text in texts]
    return bool(tvm.arith.Analyzer().can_prove_equal(*values))


# ---- lines -------------------------------------------------------------------------------------


def _restore_lines(func: Any, written: Written, lines: Mapping[int, SourceLine]) -> None:  # noqa: ANN401
    file = _file_of(written)
    for stmt in nodes_of(func.body):
        if not isinstance(stmt, tvm.tirx.Stmt):
            continue
        place = tl_ir.span_to_location(tl_ir.get_stmt_span(stmt))
        if place is None or str(place[0]) != file:
            continue
        where = lines.get(written.statements.get(int(place[1]), -1))
        if where is not None:
            tl_ir.set_stmt_span(stmt, _span(where))


def _span(where: SourceLine) -> Any:  # noqa: ANN401
    return tvm.ir.Span(tvm.ir.SourceName(where.file), where.line, where.line, 1, 1)
