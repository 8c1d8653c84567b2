"""Holds what TileLang's passes make of a kernel against the kernel as it is written."""

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tileyard.check.blocks import check_program
from tileyard.check.dependences import compare
from tileyard.check.findings import Finding
from tileyard.check.recorder import Form, Recorder
from tileyard.errors import UnsupportedError, UsageError
from tileyard.ir.specs import scalar_params, tensor_specs
from tileyard.measure.inputs import make_inputs
from tileyard.model import Value

if TYPE_CHECKING:
    from tileyard.frontend.tilelang import Lowered


@dataclass(frozen=True, kw_only=True)
class ReadBack:
    """What one kernel gives as written and as planned; ``refusal`` says why it has no Program in one of the two forms."""

    refusal: str = ""
    are_equal: bool = True
    findings: tuple[Finding, ...] = ()
    planned: "Lowered | None" = None


def read_back(
    kernel: Any,  # noqa: ANN401 (TileLang is untyped)
    arguments: dict[str, Value],
    architecture: str,
    numbers: dict[str, Value] | None = None,
    stages: int | None = None,
) -> ReadBack:
    """Elaborate a kernel, read its plan back, and run both forms on the same inputs.

    With ``stages`` all its pipelined loops have so many.
    """
    frontend = importlib.import_module("tileyard.frontend.tilelang")
    planning = importlib.import_module("tileyard.frontend.pipelined")
    queries = importlib.import_module("tileyard.frontend.tir_queries")
    function = getattr(kernel, "jit_impl", kernel)
    func = function.get_tir(**arguments)
    if stages is not None:
        func = func.with_body(with_stages(func.body, stages))
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
    for form in (written, planned):
        run = Recorder(Form(form.written, form.written_lines), arrays, scalars)
        run.grid()
        runs.append(run)
    checked = check_program(planned.written, planned.written_lines, arrays, scalars)
    reordered = compare(*runs)
    return ReadBack(
        are_equal=all(
            np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
            for one, other in zip(runs[0].written(), runs[1].written(), strict=True)
        ),
        findings=(*checked.findings, *((reordered,) if reordered is not None else ())),
        planned=planned,
    )


def with_stages(body: Any, stages: int) -> Any:  # noqa: ANN401
    """``body`` with this depth for all its pipelined loops; for none, as TileLang has it, loops are plain."""
    tvm = importlib.import_module("tilelang").tvm
    ir = importlib.import_module("tilelang.ir")

    def change(loop: Any) -> Any:  # noqa: ANN401
        if "num_stages" not in loop.annotations:
            return None
        hints = {**dict(loop.annotations), "num_stages": tvm.tirx.IntImm("int32", stages)}
        if not stages:
            del hints["num_stages"]
        return tvm.tirx.For(
            loop.loop_var,
            loop.min,
            loop.extent,
            loop.kind,
            loop.body,
            None,
            hints,
            span=ir.get_stmt_span(loop),
        )

    return tvm.tirx.stmt_functor.ir_transform(body, lambda _: None, change, ["tirx.For"])
