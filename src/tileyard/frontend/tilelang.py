"""Lowers an elaborated TileLang ``PrimFunc`` to a Program, and makes the Kernel that travels: its
Program, or its TIR and why it has none. Inputs and outputs must be known even then: as a Program of
parameters without a body.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
from tilelang import tvm

from tileyard.artifacts.objects import digest_bytes
from tileyard.base.errors import InvalidProgramError, OutsideTileError, UnsupportedError, UsageError
from tileyard.base.model import Diagnostic, Digest, Kernel, Record, Rule, SourceLine, Value
from tileyard.frontend.bounds import find_wrapped
from tileyard.frontend.divisors import guard_divisors
from tileyard.frontend.expressions import buffer_of, is_row_major, lower_expr
from tileyard.frontend.hints import with_layout
from tileyard.frontend.rewrites import without_negative_indices
from tileyard.frontend.scope import Scope, key_of
from tileyard.frontend.statements import BodyLowering
from tileyard.frontend.tir_queries import (
    READS,
    TARGET_MARK,
    WRITES,
    accesses_of,
    attributes_of,
    free_vars,
    has_threads,
    is_zero,
    without_target,
)
from tileyard.ir.nodes import Buffer, Const, Expr, Param, Program, Scalar, Tensor, Var
from tileyard.ir.printer import print_program
from tileyard.ir.verify import verify
from tileyard.ir.walk import Effects, buffer_effects, number_statements
from tileyard.passes.settle import settle

NO_THREAD_SYNC = "tl.disable_thread_storage_sync"
"""The option that stops TileLang from putting barriers between statements."""

OUTPUTS_MARK = "tilelang_out_idx"
"""The attribute by which TileLang marks a function's outputs."""


def kernel_name(scope: Scope, func: Any, name: str | None) -> str:  # noqa: ANN401 (TVM's nodes are untyped)
    """``name``, or the function's own, made into an identifier."""
    return scope.names.legal(name or str(attributes_of(func).get("global_symbol") or "kernel"))


def marked_outputs(func: Any, out_idx: Sequence[int] | int | None) -> frozenset[int] | None:  # noqa: ANN401
    """The positions of the outputs, as given or as the function itself marks them; None for neither."""
    marked: Any = out_idx if out_idx is not None else attributes_of(func).get(OUTPUTS_MARK)
    marked = [marked] if isinstance(marked, int) else marked
    if marked is None:
        return None
    count = len(func.params)
    for position in marked:
        if not -count <= int(position) < count:
            raise UsageError(f"out_idx names parameter {position}, but the kernel has {count}")
    return frozenset(int(position) % count for position in marked)


def declare_params(scope: Scope, func: Any) -> tuple[list[Buffer | Var], list[Var]]:  # noqa: ANN401
    """The parameters' storage in calling order, and the variables of their shapes."""
    tensors = dict(func.buffer_map.items())
    by_param = {param: tensors.get(param) for param in func.params}
    scalars = {param: scope.bind_var(param) for param, tir in by_param.items() if tir is None}
    dims: list[Var] = []
    storage: list[Buffer | Var] = []
    for param, tir in by_param.items():
        for extent in () if tir is None else tir.shape:
            dims += [scope.bind_var(var) for var in free_vars(extent) if not scope.knows_var(var)]
        storage.append(scalars[param] if tir is None else _declare_tensor(scope, tir))
    return storage, dims


def _declare_tensor(scope: Scope, tir: Any) -> Buffer:  # noqa: ANN401
    with scope.at_buffer(tir):
        scope.require(is_zero(tir.elem_offset), f"{tir.name} with an offset")
        buffer = Buffer(
            scope.names.take(str(tir.name)),
            scope.dtype(tir.dtype, str(tir.name)),
            tuple(lower_expr(scope, extent) for extent in tir.shape),
            "global",
            () if is_row_major(tir) else _lower_strides(scope, tir),
        )
    scope.bind_buffer(tir, buffer)
    return buffer


def _lower_strides(scope: Scope, tir: Any) -> tuple[Expr, ...]:  # noqa: ANN401
    """The strides, 0 for a stride that is known only when the kernel runs."""
    return tuple(
        lower_expr(scope, stride)
        if all(scope.knows_var(var) for var in free_vars(stride))
        else Const(0, "int32")
        for stride in tir.strides
    )


def assign_roles(
    storage: Sequence[Buffer | Var], effects: Effects, outputs: frozenset[int] | None
) -> tuple[Param, ...]:
    """The parameters with their ``outputs``, by default those written; one that is read as well is both."""
    params: list[Param] = []
    for position, item in enumerate(storage):
        if isinstance(item, Var):
            params.append(Scalar(item))
            continue
        role: Literal["in", "out", "inout"] = "in"
        if outputs is not None and position in outputs:
            role = "out"
        elif item.name in effects.written:
            only_written = outputs is None and item.name not in effects.read
            role = "out" if only_written else "inout"
        params.append(Tensor(item, role))
    return tuple(params)


def read_interface(
    func: Any,  # noqa: ANN401 (TVM's nodes are untyped)
    name: str | None = None,
) -> Program:
    """The parameters of ``func``, in a Program without a body. Roles come from the function's own mark, else
    from its body's accesses. Raises UnsupportedError for a parameter whose shape is not covered.
    """
    scope = Scope(any_dtype=True)
    scope.start(func)
    storage, dims = declare_params(scope, func)
    return Program(
        name=kernel_name(scope, func, name),
        params=assign_roles(storage, _find_effects(scope, func), marked_outputs(func, None)),
        dims=tuple(dims),
        grid=(),
        threads=(),
        buffers=(),
        body=(),
    )


def _find_effects(scope: Scope, func: Any) -> Effects:  # noqa: ANN401
    """The parameters that the body reads and writes; a parameter whose address is taken counts as both."""
    params = dict(func.buffer_map.items()).values()
    names = {key_of(tir.data): buffer_of(scope, tir).name for tir in params}
    known = [(names[one.key], one.mask) for one in accesses_of(func.body) if one.key in names]
    return Effects(
        read=frozenset(name for name, mask in known if mask & READS),
        written=frozenset(name for name, mask in known if mask & WRITES),
    )


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
    """A settled Program with the user's line for each numbered statement; -1 - i is the allocation
    of its buffer i.

    ``written`` is the kernel with its asynchronous operations, unless some were ``given_up``: then
    nothing can be concluded about any. ``races`` are between threads that do one statement
    together. ``lost`` is what the kernel requests of a GPU and no Program contains; ``swizzle`` its
    order of blocks, as TileLang's function and number.
    """

    program: Program
    lines: dict[int, SourceLine]
    written: Program
    written_lines: dict[int, SourceLine]
    given_up: tuple[Diagnostic, ...] = ()
    races: tuple[Diagnostic, ...] = ()
    lost: tuple[Diagnostic, ...] = ()
    swizzle: tuple[str, int] | None = None


def lower_prim_func(
    func: Any,  # noqa: ANN401 (TVM's nodes are untyped)
    out_idx: Sequence[int] | int | None = None,
    name: str | None = None,
    *,
    has_thread_sync: bool = True,
) -> Lowered:
    """Lower ``func``; raises UnsupportedError with the first operation that is not covered. ``out_idx`` are
    the outputs' positions as in ``tilelang.jit``; None: by the function's mark, else the written, never read
    parameters. ``has_thread_sync`` if TileLang puts its own barriers between statements.
    """
    func = without_negative_indices(func)
    attributes = attributes_of(func)
    options = dict(attributes.get("tilelang_pass_configs") or {})
    has_thread_sync = has_thread_sync and not options.get(NO_THREAD_SYNC)
    scope = Scope(has_threads=has_threads(func), has_thread_sync=has_thread_sync)
    scope.start(func)
    for key in attributes:
        scope.require(str(key) in _FUNCTION_HINTS, f"attribute {key} of the function")
    storage, dims = declare_params(scope, func)
    body = BodyLowering(scope)
    stmts = body.lower_body(func.body)
    storage = [one if isinstance(one, Var) else with_layout(scope, one) for one in storage]
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
    settled = settle(program)
    lines = {
        number: body.lines[origin]
        for number, origin in enumerate(settled.origins)
        if origin in body.lines
    }
    for number, buffer in enumerate(settled.program.buffers):
        if buffer.name in scope.allocated:
            lines[-1 - number] = scope.allocated[buffer.name]
    return Lowered(
        program=settled.program,
        lines=lines,
        written=program,
        written_lines=body.lines,
        given_up=tuple(scope.given_up),
        races=tuple(scope.races),
        lost=tuple(scope.lost),
        swizzle=scope.swizzle,
    )


def _check(scope: Scope, program: Program, lines: dict[int, SourceLine]) -> None:
    """Refuse what TileLang accepts and the tile IR does not, at the statement's line."""
    try:
        verify(program)
    except InvalidProgramError as error:
        scope.where = lines.get(error.statement, scope.where)
        culprit = dict(number_statements(program)).get(error.statement)
        operation = "kernel" if culprit is None else str(culprit.__struct_config__.tag)
        is_outside = isinstance(error, OutsideTileError)
        scope.refuse(operation, f"is {'' if is_outside else 'not covered: '}{error.message}")


@dataclass(frozen=True, kw_only=True)
class MadeKernel:
    """A Kernel, with data that is not part of it. ``signature`` is its Program, or one of its parameters
    without a body. ``tir`` is TVM's JSON with source lines, empty if not requested. ``numbers`` are known
    dimensions and scalars by name. ``lowered`` is None for a refused Kernel. ``source`` is the TileLang that
    a pipeline of Tileyard's makes. ``notes`` are no mistakes. ``rule`` is as in an Elaborated.
    """

    kernel: Kernel
    signature: Program
    lines: dict[int, SourceLine]
    lowered: Lowered | None = None
    tir: str = ""
    source: str = ""
    numbers: dict[str, Value] = field(default_factory=dict)
    notes: tuple[Diagnostic, ...] = ()
    rule: Rule | None = None

    @property
    def integers(self) -> dict[str, int]:
        """The numbers that a shape can depend on."""
        return {name: value for name, value in self.numbers.items() if type(value) is int}


def make_kernel(
    func: Any,  # noqa: ANN401 (TVM's nodes are untyped)
    out_idx: Sequence[int] | None = None,
    name: str | None = None,
    *,
    with_tir: bool = False,
    has_thread_sync: bool = True,
) -> MadeKernel:
    """The Kernel of an elaborated PrimFunc; with its TIR, for the target to which TIR is lowered.
    Raises UnsupportedError and InvalidProgramError for what the tile IR does not cover;
    ``with_tir`` that becomes the Kernel's refusal.
    """
    tir, digest = "", ""
    notes = find_wrapped(func)
    if with_tir:
        func = without_target(func)
        # TileLang's own mark: readers of the TIR find the given outputs here.
        func = func if out_idx is None else func.with_attr(OUTPUTS_MARK, list(out_idx))
        tir, digest = save_tir(func)
    try:
        lowered = lower_prim_func(func, out_idx, name, has_thread_sync=has_thread_sync)
    except (UnsupportedError, InvalidProgramError) as error:
        if not with_tir:
            raise
        signature = read_interface(func, name)
        kernel = Kernel(name=name or signature.name, refusal=_describe(error), tir=digest)
        return MadeKernel(kernel=kernel, signature=signature, lines={}, tir=tir, notes=notes)
    kernel = Kernel(
        name=name or lowered.program.name, program=print_program(lowered.program), tir=digest
    )
    return MadeKernel(
        kernel=kernel,
        signature=lowered.program,
        lines=lowered.lines,
        lowered=lowered,
        tir=tir,
        notes=notes,
    )


def _describe(error: UnsupportedError | InvalidProgramError) -> Diagnostic:
    if isinstance(error, InvalidProgramError):
        return Diagnostic(message=str(error))
    where = SourceLine(file=error.file, line=error.line) if error.file else None
    return Diagnostic(message=str(error), operation=error.operation, where=where)


_PLACES = frozenset({"ir.Span", "ir.SourceName"})
"""Nodes of TVM's JSON that only contain a position in the user's file."""


def save_tir(func: Any) -> tuple[str, Digest]:  # noqa: ANN401 (TVM's nodes are untyped)
    """A PrimFunc as JSON with its source lines, and the digest of its content without them. TVM numbers
    lines among the nodes, so their content is left out for equal kernels to have equal text.
    """
    text = str(tvm.ir.save_json(func))
    graph = msgspec.json.decode(text)
    for node in graph["nodes"]:
        if node["type"] in _PLACES:
            node["data"] = None
    return text, digest_bytes(msgspec.json.encode(graph, order="sorted"))
