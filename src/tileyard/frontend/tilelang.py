"""Lowers a TileLang ``PrimFunc``, as elaborated and before any compiler pass, to a Program, and makes the Kernel
that travels: its Program, or its TIR and why it has no Program.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from tilelang import tvm

from tileyard.artifacts.keys import digest_bytes
from tileyard.errors import InvalidProgramError, UnsupportedError
from tileyard.frontend.divisors import guard_divisors
from tileyard.frontend.params import (
    OUTPUTS_MARK,
    assign_roles,
    declare_params,
    kernel_name,
    marked_outputs,
    read_interface,
)
from tileyard.frontend.scope import Scope
from tileyard.frontend.statements import BodyLowering
from tileyard.frontend.targets import TARGET_MARK, has_threads, without_target
from tileyard.frontend.tir_queries import attributes_of
from tileyard.ir.effects import buffer_effects
from tileyard.ir.nodes import Program
from tileyard.ir.text import print_program
from tileyard.ir.verify import verify
from tileyard.ir.walk import number_statements
from tileyard.model import Diagnostic, Digest, Kernel, Record, SourceLine

_FUNCTION_HINTS = frozenset(
    {
        "global_symbol",
        "tilelang_callee_allocated_outputs",
        "tilelang_compile_flags",
        "tilelang_out_idx",
        "tilelang_pass_configs",
        TARGET_MARK,
        "tirx.noalias",
        "tirx.is_entry_func",
    }
)


class Lowered(Record):
    """A Program with the line of the user's file for each numbered statement that has one."""

    program: Program
    lines: dict[int, SourceLine]


def lower_prim_func(
    func: Any,  # noqa: ANN401 (TVM's nodes are untyped)
    out_idx: Sequence[int] | int | None = None,
    name: str | None = None,
) -> Lowered:
    """Lower ``func``; raises UnsupportedError naming the first operation that is not covered.

    ``out_idx`` are the positions of the outputs, as in ``tilelang.jit``; without it the
    function's own mark decides, then which parameters are written and never read.
    """
    scope = Scope(has_threads=has_threads(func))
    scope.start(func)
    for key in attributes_of(func):
        scope.require(str(key) in _FUNCTION_HINTS, f"attribute {key} of the function")
    storage, dims = declare_params(scope, func)
    body = BodyLowering(scope)
    stmts = body.lower_body(func.body)
    owners = {view.name: view.view_of for view in scope.buffers if view.view_of}
    effects = buffer_effects(stmts).through(owners)
    program = Program(
        name=kernel_name(scope, func, name),
        params=assign_roles(storage, effects, marked_outputs(func, out_idx)),
        dims=tuple(dims),
        grid=tuple(body.grid[tag] for tag in sorted(body.grid)),
        threads=body.threads,
        buffers=tuple(scope.buffers),
        body=stmts,
    )
    program = guard_divisors(program)
    _check(scope, program, body.lines)
    return Lowered(program=program, lines=body.lines)


def _check(scope: Scope, program: Program, lines: dict[int, SourceLine]) -> None:
    """Refuse what TileLang takes and the tile IR does not, at the statement's line."""
    try:
        verify(program)
    except InvalidProgramError as error:
        scope.where = lines.get(error.statement, scope.where)
        numbered = dict(number_statements(program))
        culprit = numbered.get(error.statement)
        operation = "kernel" if culprit is None else str(culprit.__struct_config__.tag)
        scope.refuse(operation, f"is not covered: {error.message}")


@dataclass(frozen=True, kw_only=True)
class MadeKernel:
    """A Kernel beside what is no part of it.

    ``signature`` is its Program, or one with its parameters and no body. ``tir`` is TVM's JSON with
    source lines, empty where nobody asked for it.
    """

    kernel: Kernel
    signature: Program
    lines: dict[int, SourceLine]
    tir: str = ""


def make_kernel(
    func: Any,  # noqa: ANN401 (TVM's nodes are untyped)
    out_idx: Sequence[int] | None = None,
    name: str | None = None,
    *,
    with_tir: bool = False,
) -> MadeKernel:
    """The Kernel of one elaborated PrimFunc; with its TIR, for the target that TIR is lowered for.

    Raises UnsupportedError and InvalidProgramError for what the tile IR does not cover; with
    ``with_tir`` that is the Kernel's refusal instead, and its TIR says all.
    """
    tir, digest = "", ""
    if with_tir:
        func = without_target(func)
        # TileLang's own mark: whoever reads the TIR finds the outputs as they were given here.
        func = func if out_idx is None else func.with_attr(OUTPUTS_MARK, list(out_idx))
        tir, digest = save_tir(func)
    try:
        lowered = lower_prim_func(func, out_idx, name)
    except (UnsupportedError, InvalidProgramError) as error:
        if not with_tir:
            raise
        signature = read_interface(func, name)
        kernel = Kernel(
            name=name or signature.name,
            refusal=_describe(error),
            tir=digest,
        )
        return MadeKernel(kernel=kernel, signature=signature, lines={}, tir=tir)
    kernel = Kernel(
        name=name or lowered.program.name,
        program=print_program(lowered.program),
        tir=digest,
    )
    return MadeKernel(kernel=kernel, signature=lowered.program, lines=lowered.lines, tir=tir)


def _describe(error: UnsupportedError | InvalidProgramError) -> Diagnostic:
    if isinstance(error, InvalidProgramError):
        return Diagnostic(message=str(error))
    where = SourceLine(file=error.file, line=error.line) if error.file else None
    return Diagnostic(message=str(error), operation=error.operation, where=where)


_PLACES = frozenset({"ir.Span", "ir.SourceName"})
"""Nodes of TVM's JSON that say where something stands in the user's file, and nothing else."""


def save_tir(func: Any) -> tuple[str, Digest]:  # noqa: ANN401 (TVM's nodes are untyped)
    """A PrimFunc as JSON with its source lines, and the digest of what it says without them.

    TVM numbers the nodes in the order in which they are reached, and source lines are nodes of
    their own: with their content left out, equal kernels give equal text wherever they stand.
    """
    text = str(tvm.ir.save_json(func))
    graph = msgspec.json.decode(text)
    for node in graph["nodes"]:
        if node["type"] in _PLACES:
            node["data"] = None
    return text, digest_bytes(msgspec.json.encode(graph, order="sorted"))
