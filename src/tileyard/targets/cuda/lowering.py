"""Lowers TIR to CUDA source with TileLang's own passes, on a machine without driver or toolkit."""

import difflib
import re
import traceback
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import msgspec
from tilelang import tvm
from tilelang.backend.module import create_backend_context
from tilelang.engine.lower import device_codegen_without_compile, lower_to_host_device_ir
from tilelang.layout import Fragment, Layout
from tilelang.transform.pass_config import normalize_pass_configs

from tileyard.base.errors import UnsupportedError, UsageError
from tileyard.base.model import Diagnostic, Elaborated, Record, SourceLine
from tileyard.frontend.blame import explain_refusal, first_line
from tileyard.frontend.scope import Scope
from tileyard.frontend.tilelang import OUTPUTS_MARK, read_interface
from tileyard.frontend.tir_queries import (
    PARALLEL,
    annotate_block,
    bodies_of,
    call_name,
    is_loop,
    nodes_of,
)
from tileyard.processes.records import tells_of_memory
from tileyard.targets.cuda.host_module import read_launch
from tileyard.targets.cuda.launching import LaunchRecord
from tileyard.targets.cuda.nvrtc import overhear

_DEVICE_ONLY = "cython"
"""TileLang's execution backend that makes neither host code nor a binary."""


_PLACE = re.compile(r"\n\s*-->\s+(?P<file>.+?):(?P<line>\d+)(?::\d+)?\s*$", re.MULTILINE)
"""The end of a message of TileLang's passes, with the line of the user's file."""


_BUFFERS = re.compile(r"conflict between (\w+) and (\w+)")
_KIND = re.compile(
    r"\b(?P<operation>gemm|reduce|cumsum)\b|T\.Parallel loop|no available layout", re.IGNORECASE
)
_OPERATION = re.compile(r"/op/(?P<operation>gemm|reduce)")
"""What a message without a line, or its traceback, says of its statement."""


class Lowered(Record):
    """CUDA source, its launch record, and TileLang's output; ``host`` is the host module as text."""

    source: str
    launch: LaunchRecord
    host: str
    log: str


class LoweringError(Exception):
    """TileLang refused a kernel, or lowered it to one that cannot be launched from data."""

    def __init__(self, diagnostic: Diagnostic, log: str) -> None:
        super().__init__(diagnostic.message)
        self.diagnostic = diagnostic
        self.log = log


def load_function(tir: str) -> Any:  # noqa: ANN401 (TVM's nodes are untyped)
    """A function from TVM's JSON, with new layouts: TileLang compares variables by identity, JSON
    renews them.
    """
    func = tvm.ir.load_json(tir)

    def renew(block: Any) -> Any:  # noqa: ANN401
        layouts = dict(block.annotations.get(_LAYOUTS, {}))
        if not layouts:
            return None
        renewed = {data: _renew(layout) for data, layout in layouts.items()}
        return annotate_block(block, _LAYOUTS, renewed)

    change = tvm.tirx.stmt_functor.ir_transform
    return func.with_body(change(func.body, lambda _: None, renew, ["tirx.SBlock"]))


_LAYOUTS = "layout_map"
"""The annotation of a block that contains the layouts of storage."""


def _renew(layout: Any) -> Any:  # noqa: ANN401
    """The same layout over new variables; JSON keeps their names."""
    shape = layout.get_input_shape()
    names = [str(var.name) for var in layout.get_forward_vars()][-len(shape) :]
    copies = int(getattr(layout, "replicate_size", 1))

    def over(expr: Any, known: Sequence[Any]) -> Any:  # noqa: ANN401
        given = dict(zip(names, known, strict=False))
        variables = [node for node in nodes_of(expr) if isinstance(node, tvm.tirx.Var)]
        # The number of a copy has another name, and is the last of ``known``.
        meant = {var: given.get(str(var.name), known[-1]) for var in variables}
        return tvm.tirx.stmt_functor.substitute(expr, meant)

    def place(*known: Any) -> list[Any]:  # noqa: ANN401
        return [over(part, known) for part in layout.get_forward_index()]

    if not isinstance(layout, Fragment):
        return Layout(shape, place)
    return Fragment(
        shape,
        forward_thread_fn=lambda *known: over(layout.thread, known),
        replicate=copies,
        forward_index_fn=lambda *known: tvm.runtime.convert(place(*known)),
    )


def lower(elaborated: Elaborated, architecture: str) -> Lowered:
    """Lower one kernel. Raises LoweringError with all output, MemoryError if memory is short."""
    kernel = elaborated.kernel
    with overhear() as said:
        try:
            func = load_function(elaborated.tir)
            signature = read_interface(func, kernel.name)
            # TileLang 0.1.14's host code would otherwise make the outputs.
            func = func.without_attr(OUTPUTS_MARK)
            context = _context_for(architecture)
            config = normalize_pass_configs(dict(kernel.pass_options))
            _require_known(config)
            with tvm.transform.PassContext(opt_level=3, config=config), context.target:
                host, device, *_ = lower_to_host_device_ir(func, context, runtime_only=True)
                code = device_codegen_without_compile(device, context)
            lowered = Lowered(
                source=str(code.inspect_source()),
                launch=read_launch(host, device, signature),
                host=str(host),
                log="",
            )
            failure: Exception | None = None
        except MemoryError:
            raise
        except UsageError as error:
            raise LoweringError(Diagnostic(message=str(error)), "") from None
        except Exception as error:  # noqa: BLE001 - a foreign compiler: anything it raises is its verdict
            failure, trace = error, traceback.format_exc()
    if failure is not None and tells_of_memory(str(failure)):
        raise MemoryError(str(failure)) from failure
    if failure is not None:
        raise LoweringError(_diagnose(failure, elaborated.tir, trace), said[0] + trace) from failure
    return msgspec.structs.replace(lowered, log=said[0])


def _require_known(options: Iterable[str]) -> None:
    """Raises UsageError for pass options that TileLang does not have; its own error lists all."""
    known = list(map(str, tvm.transform.PassContext.list_configs()))
    for option in options:
        if option not in known:
            near = difflib.get_close_matches(option, known)
            raise UsageError(
                f"TileLang has no pass option {option!r}",
                f"near to it: {', '.join(near)}" if near else "",
            )


def _diagnose(error: Exception, tir: str, trace: str) -> Diagnostic:
    """One line of TileLang's error, with the user's line if the error has it or only one can be meant."""
    message = str(error)
    found = _PLACE.search(message)
    where = SourceLine(file=found["file"], line=int(found["line"])) if found else None
    lines = [line.strip() for line in _PLACE.sub("", message).splitlines() if line.strip()]
    first = next((line for line in lines if not line.startswith("File ")), type(error).__name__)
    if isinstance(error, UnsupportedError):
        return Diagnostic(message=first, operation=error.operation, where=where)
    where = where or _find_place(tir, message, trace)
    said = explain_refusal(message, *(("", 0) if where is None else (where.file, where.line)))
    own = first_line(first)
    message = f"TileLang: {said} ({own})" if said else f"TileLang: {first}"
    return Diagnostic(message=message, where=where)


def _find_place(tir: str, message: str, trace: str) -> SourceLine | None:
    """The line of the statement that a message means: the first with both buffers, or the only one."""
    named, kind = _BUFFERS.search(message), _KIND.search(message) or _OPERATION.search(trace)
    if named is None and kind is None:
        return None
    func = load_function(tir)
    scope = Scope()
    scope.start(func)
    places: dict[SourceLine, None] = {}

    def is_meant(stmt: Any) -> bool:  # noqa: ANN401
        if named is not None:
            parts = () if bodies_of(stmt) else nodes_of(stmt)
            used = {str(node.buffer.name) for node in parts if hasattr(node, "buffer")}
            return used.issuperset(named.groups())
        if kind is not None and kind["operation"]:
            return kind["operation"].lower() in call_name(getattr(stmt, "value", None))
        return is_loop(stmt, PARALLEL)

    def visit(stmt: Any) -> None:  # noqa: ANN401
        before = scope.enter(stmt)
        if is_meant(stmt):
            places.update({} if scope.where is None else {scope.where: None})
        else:
            for part in bodies_of(stmt):
                visit(part)
        scope.where = before

    visit(func.body)
    return next(iter(places)) if len(places) == 1 or (named and places) else None


@cache
def _context_for(architecture: str) -> Any:  # noqa: ANN401 (TileLang is untyped)
    return create_backend_context(
        tvm.target.Target({"kind": "cuda", "arch": architecture}), None, _DEVICE_ONLY
    )
