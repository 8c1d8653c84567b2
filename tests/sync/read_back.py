"""Holds what TileLang's passes make of a kernel against the kernel as it is written."""

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tileyard.base.errors import UnsupportedError, UsageError
from tileyard.base.model import Value
from tileyard.ir.specs import scalar_params, tensor_specs
from tileyard.ir.verify import verify
from tileyard.measure.inputs import make_inputs
from tileyard.sync.blocks import check_program
from tileyard.sync.dependences import compare
from tileyard.sync.findings import Finding
from tileyard.sync.recorder import Form, Recorder
from tileyard.workers.pass_steps import with_roles

if TYPE_CHECKING:
    from tileyard.frontend.tilelang import Lowered


@dataclass(frozen=True, kw_only=True)
class ReadBack:
    """What a kernel gives as written and as planned; ``refusal`` says why one form has no Program."""

    refusal: str = ""
    are_equal: bool = True
    findings: tuple[Finding, ...] = ()
    planned: "Lowered | None" = None


@dataclass(frozen=True, kw_only=True)
class Loops:
    """Stages and iterations of all pipelined loops, None as written; with ``trips`` there is one block."""

    stages: int | None = None
    trips: int | None = None


AS_WRITTEN = Loops()


def read_back(
    kernel: Any,  # noqa: ANN401 (TileLang is untyped)
    arguments: dict[str, Value],
    architecture: str,
    numbers: dict[str, Value] | None = None,
    loops: Loops = AS_WRITTEN,
) -> ReadBack:
    """Elaborate a kernel with such pipelined ``loops``, read its plan, run both forms on the same inputs."""
    frontend = importlib.import_module("tileyard.frontend.tilelang")
    planning = importlib.import_module("tileyard.frontend.pipelined")
    queries = importlib.import_module("tileyard.frontend.tir_queries")
    function = getattr(kernel, "jit_impl", kernel)
    func = function.get_tir(**arguments)
    func = func.with_body(with_loops(func.body, loops))
    options = {
        **dict(queries.attributes_of(func).get("tilelang_pass_configs") or {}),
        **(getattr(function, "pass_configs", None) or {}),
    }
    try:
        written = frontend.lower_prim_func(func, function.out_idx)
        planned = frontend.lower_prim_func(
            planning.plan(func, architecture, options), function.out_idx
        )
    except (UnsupportedError, UsageError) as error:
        return ReadBack(refusal=str(error))
    program = written.written
    known = {**arguments, **(numbers or {})}
    sizes = {name: value for name, value in known.items() if type(value) is int}
    specs = tensor_specs(program, sizes)
    arrays = make_inputs(specs)
    scalars = [known[var.name] for var in scalar_params(program)]
    runs = []
    made = with_roles(planned.written, program)
    verify(made)
    for one, lines in ((program, written.written_lines), (made, planned.written_lines)):
        run = Recorder(Form(one, lines), arrays, scalars)
        run.grid()
        runs.append(run)
    checked = check_program(made, planned.written_lines, arrays, scalars)
    reordered = compare(*runs)
    return ReadBack(
        are_equal=all(
            np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
            for one, other in zip(runs[0].written(), runs[1].written(), strict=True)
        ),
        findings=(*checked.findings, *((reordered,) if reordered is not None else ())),
        planned=planned,
    )


def with_loops(body: Any, loops: Loops) -> Any:  # noqa: ANN401
    """``body`` with all its pipelined loops so; without stages they are plain, as TileLang has it."""
    if loops == AS_WRITTEN:
        return body
    tvm = importlib.import_module("tilelang").tvm
    ir = importlib.import_module("tilelang.ir")

    def change(loop: Any) -> Any:  # noqa: ANN401
        extent, hints = loop.extent, dict(loop.annotations)
        if "num_stages" in hints:
            extent = extent if loops.trips is None else tvm.tirx.IntImm(extent.dtype, loops.trips)
            depth = hints.pop("num_stages") if loops.stages is None else loops.stages
            hints |= {"num_stages": tvm.tirx.IntImm("int32", int(depth))} if depth else {}
        elif loops.trips is not None and loop.thread_binding is not None:
            is_grid = str(loop.thread_binding.thread_tag).startswith("blockIdx")
            extent = tvm.tirx.IntImm(extent.dtype, 1) if is_grid else extent
        return tvm.tirx.For(
            loop.loop_var,
            loop.min,
            extent,
            loop.kind,
            loop.body,
            loop.thread_binding,
            hints,
            span=ir.get_stmt_span(loop),
        )

    return tvm.tirx.stmt_functor.ir_transform(body, lambda _: None, change, ["tirx.For"])
