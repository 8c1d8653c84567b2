"""Reads a kernel as TileLang's passes plan it for an architecture: pipelined or warp-specialized.
TileLang's own pipeline runs up to the pass that leaves the tile level; its result takes the form in
which kernels are elaborated. No GPU is needed.
"""

import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from tilelang import ir as tl_ir
from tilelang import tvm
from tilelang.cuda.pipeline import CUDAPassPipelineBodyPrologue
from tilelang.engine.semantic_check import PreLowerSemanticCheck
from tilelang.transform.pass_config import normalize_pass_configs
from tvm.ir.instrument import PassInstrument

from tileyard.base.errors import UsageError
from tileyard.base.model import Value
from tileyard.frontend.tir_queries import (
    THREAD_BINDING,
    THREAD_INDEX,
    TILE_OPS,
    annotate_block,
    attributes_of,
    bodies_of,
    call_name,
    has_threads,
    is_one,
)

FIRST_LEFT_OUT = "tl.LayoutInference"
"""TileLang's first pass that is not run: it and those after it turn tile operations into code for threads."""

MARK = "tileyard.statement"
"""An annotation of tile operations: TileLang keeps it where it drops the source line."""

_ARCHITECTURE = re.compile(r"sm_\d{2,3}[af]?")
_ROLE_MARKS = ("kCustomWarpSpecialization", "kWarpSpecializationScope")
_ROOT = "tilelang_root"
_THREADS = ("threadIdx.x", "threadIdx.y", "threadIdx.z")


class _Prefix(PassInstrument):  # type: ignore[misc] # TVM is untyped
    """Runs passes up to the first one that is left out; ``ran`` are their names."""

    __slots__ = ("__dict__",)  # TVM's objects have no room for more

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.is_over = False
        super().__init__()

    def should_run(self, _: Any, info: Any) -> bool:  # noqa: ANN401 (TVM's nodes are untyped)
        self.is_over = self.is_over or str(info.name) == FIRST_LEFT_OUT
        if not self.is_over:
            self.ran.append(str(info.name))
        return not self.is_over


def plan(func: Any, architecture: str, options: Mapping[str, Value]) -> Any:  # noqa: ANN401
    """``func`` as TileLang plans it for ``architecture``, such as ``sm_80``, under its own pass options.
    Raises UsageError for an unknown architecture, and if a pass of TileLang's refuses the kernel.
    """
    if not has_threads(func):
        raise UsageError("the target of the kernel is a CPU; only plans for CUDA can be read back")
    if not _ARCHITECTURE.fullmatch(architecture):
        raise UsageError(f"there is no architecture {architecture!r}", "as sm_80 or sm_90a")
    target = tvm.target.Target({"kind": "cuda", "arch": architecture})
    marked, lines = _mark(func)
    planned, _ = run_prefix(marked, target, options)
    known = attributes_of(func)
    for key in attributes_of(planned):
        if key not in known:
            planned = planned.without_attr(key)
    return _restore(planned, lines)


def run_prefix(func: Any, target: Any, options: Mapping[str, Value]) -> tuple[Any, list[str]]:  # noqa: ANN401
    """``func`` after the last pass at tile level, and the names of the passes that have run."""
    prefix = _Prefix()
    name = str(attributes_of(func).get("global_symbol") or "main")
    mod = tvm.IRModule({name: func})
    with warnings.catch_warnings(
        action="ignore"
    ):  # TileLang reports it when it compiles the kernel, too
        config = normalize_pass_configs(dict(options))
    try:
        with tvm.transform.PassContext(opt_level=3, config=config), target:
            PreLowerSemanticCheck(mod)
        with tvm.transform.PassContext(opt_level=3, config=config, instruments=[prefix]), target:
            mod = CUDAPassPipelineBodyPrologue(mod, target)
    except Exception as error:  # an external compiler: anything it raises is its verdict
        lines = str(error).strip().splitlines()
        said = [line for line in lines if not line.lstrip().startswith("-->")]  # a source position
        said = said or [type(error).__name__]
        raise UsageError(f"TileLang cannot plan {name}: {said[-1]}") from error
    if not prefix.is_over:
        raise UsageError(f"this TileLang has no pass {FIRST_LEFT_OUT}: its plans cannot be read")
    return mod[name], prefix.ran


# ---- source lines ------------------------------------------------------------------------------

Line = tuple[str, int]


class _Lines:
    """Positions of statements before the passes: of tile operations by their marks, of loops by
    content. ``loops`` has for each line the loops around it, innermost first; ``stores`` by buffer
    name the spans of its stores.
    """

    def __init__(self) -> None:
        self.operations: list[Any] = []
        self.loops: dict[Line, list[Any]] = defaultdict(list)
        self.stores: dict[str, dict[Line, Any]] = defaultdict(dict)

    def note_loops(self, stmt: Any, around: tuple[Any, ...] = ()) -> None:  # noqa: ANN401
        span = tl_ir.get_stmt_span(stmt)
        where = tl_ir.span_to_location(span)
        if where is not None:
            self.loops[where] += [loop for loop in around if loop not in self.loops[where]]
        if type(stmt).__name__ == "For":
            around = (stmt, *around)
        if where is not None and type(stmt).__name__ == "BufferStore":
            self.stores[str(stmt.buffer.name)][where] = span
        for body in bodies_of(stmt):
            self.note_loops(body, around)

    def span_of(self, body: Any, is_it: Callable[[Any], bool]) -> Any:  # noqa: ANN401
        """The span of the innermost such loop around the first statement of ``body`` whose line is known."""
        found: list[Any] = []

        def visit(node: Any) -> None:  # noqa: ANN401
            if not found and isinstance(node, tvm.tirx.Stmt):
                where = tl_ir.span_to_location(tl_ir.get_stmt_span(node))
                around = self.loops.get(where, []) if where is not None else []
                found.extend(filter(is_it, around))

        tvm.tirx.stmt_functor.post_order_visit(body, visit)
        return tl_ir.get_stmt_span(found[0]) if found else None


def _mark(func: Any) -> tuple[Any, _Lines]:  # noqa: ANN401
    """``func`` with numbered tile operations, and the positions of its statements."""
    lines = _Lines()
    lines.note_loops(func.body)

    def number(stmt: Any) -> Any:  # noqa: ANN401
        span = tl_ir.get_stmt_span(stmt)
        call = stmt.value
        if span is None or not call_name(call).startswith(TILE_OPS):
            return None
        marks = {**dict(call.annotations), MARK: tvm.tirx.IntImm("int32", len(lines.operations))}
        lines.operations.append(span)
        marked = tvm.tirx.Call(call.dtype, call.op, call.args, annotations=marks)
        return tvm.tirx.Evaluate(marked, span)

    return func.with_body(_transform(func.body, number, ["tirx.Evaluate"])), lines


def _transform(body: Any, change: Callable[[Any], Any], kinds: list[str]) -> Any:  # noqa: ANN401
    """``body`` with ``change`` applied to statements of these kinds, inner ones first; None keeps one."""
    return tvm.tirx.stmt_functor.ir_transform(body, lambda _: None, change, kinds)


# ---- the form in which kernels are elaborated -----------------------------------------------------


def _restore(func: Any, lines: _Lines) -> Any:  # noqa: ANN401
    extents: dict[str, Any] = {}

    def note(node: Any) -> None:  # noqa: ANN401
        tag = _tag_of(node)
        if tag:
            extents[tag] = node.value

    tvm.tirx.stmt_functor.post_order_visit(func.body, note)
    threads = [extents.get(tag, tvm.tirx.IntImm("int32", 1)) for tag in _THREADS]
    rules: dict[str, Callable[[Any], Any]] = {
        "AttrStmt": _restore_frame,
        "Evaluate": lambda stmt: _restore_operation(stmt, lines),
        "SBlockRealize": lambda stmt: _restore_block(stmt, threads),
    }

    def change(stmt: Any) -> Any:  # noqa: ANN401
        return rules[type(stmt).__name__](stmt)

    body = _transform(func.body, change, [f"tirx.{kind}" for kind in rules])
    kinds = ["tirx.For", "tirx.SBlockRealize", "tirx.BufferStore"]
    return func.with_body(_transform(body, lambda stmt: _restore_line(stmt, lines), kinds))


def _tag_of(stmt: Any) -> str:  # noqa: ANN401
    """The dimension of a launch that an attribute opens; empty for other statements."""
    is_frame = type(stmt).__name__ == "AttrStmt" and str(stmt.attr_key) == "thread_extent"
    return str(stmt.node.thread_tag) if is_frame else ""


def _restore_frame(stmt: Any) -> Any:  # noqa: ANN401
    """Turn a grid dimension into a loop, bind a thread's index, drop attributes that only announce roles."""
    tag, span = _tag_of(stmt), tl_ir.get_stmt_span(stmt)
    if tag in _THREADS:
        number = tvm.tirx.IntImm("int32", _THREADS.index(tag))
        index = tvm.tirx.call_intrin(stmt.node.var.dtype, tvm.ir.Op.get(THREAD_INDEX), number)
        return tvm.tirx.SeqStmt([tvm.tirx.Bind(stmt.node.var, index, span), stmt.body])
    if tag:
        binding = tvm.tirx.IterVar(None, stmt.node.var, THREAD_BINDING, tag)
        zero = tvm.tirx.IntImm(stmt.node.var.dtype, 0)
        return tvm.tirx.For(
            stmt.node.var, zero, stmt.value, THREAD_BINDING, stmt.body, binding, span=span
        )
    return stmt.body if str(stmt.attr_key) in _ROLE_MARKS else None


def _restore_operation(stmt: Any, lines: _Lines) -> Any:  # noqa: ANN401
    call = stmt.value
    if type(call).__name__ != "Call" or MARK not in call.annotations:
        return None
    marks = dict(call.annotations)
    span = lines.operations[int(marks.pop(MARK))]
    plain = tvm.tirx.Call(call.dtype, call.op, call.args, annotations=marks)
    return tvm.tirx.Evaluate(plain, span)


def _restore_block(stmt: Any, threads: list[Any]) -> Any:  # noqa: ANN401
    block, span = stmt.block, tl_ir.get_stmt_span(stmt)
    if block.name_hint == _ROOT:
        block = annotate_block(block, "tl.launch_threads", threads)
    plain = tvm.tirx.SBlockRealize(stmt.iter_values, tvm.tirx.const(True, "bool"), block, span)
    return (
        plain if is_one(stmt.predicate) else tvm.tirx.IfThenElse(stmt.predicate, plain, None, span)
    )


def _restore_line(stmt: Any, lines: _Lines) -> Any:  # noqa: ANN401
    """Restore the line of a loop, a block that a pipeline puts around one, or a buffer's only store."""
    if type(stmt).__name__ == "BufferStore":
        spans = list(lines.stores.get(str(stmt.buffer.name), {}).values())
        if tl_ir.get_stmt_span(stmt) is None and len(spans) == 1:
            tl_ir.set_stmt_span(stmt, spans[0])
        return None
    is_loop = type(stmt).__name__ == "For"
    body = stmt.body if is_loop else stmt.block.body
    if tl_ir.get_stmt_span(stmt if is_loop else stmt.block) is not None:
        return None

    def is_it(loop: Any) -> bool:  # noqa: ANN401
        return (
            str(loop.loop_var.name) == str(stmt.loop_var.name)
            if is_loop
            else "num_stages" in loop.annotations
        )

    span = lines.span_of(body, is_it)
    if span is not None:
        tl_ir.set_stmt_span(stmt, span)
    return None
