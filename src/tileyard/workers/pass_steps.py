"""Shows what each pass of a pipeline makes of an elaborated kernel, and checks it on inputs."""

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from tileyard.artifacts.objects import ObjectStore
from tileyard.base.clock import Clock
from tileyard.base.errors import BindError, InvalidProgramError, KernelFault, UsageError
from tileyard.base.model import Value
from tileyard.base.wording import count_of
from tileyard.frontend.found import TILELANGS, Found, lower_for_check
from tileyard.ir.lanes import interpret_lanes
from tileyard.ir.nodes import Program, Tensor
from tileyard.ir.printer import print_program
from tileyard.ir.specs import scalar_params, tensor_specs, tensors
from tileyard.ir.verify import verify
from tileyard.passes.base import Pass
from tileyard.passes.pipeline import TILELANG, Step, find_pipeline, read_pipeline, run_pipeline
from tileyard.sync.blocks import check_program
from tileyard.sync.dependences import find_reordered
from tileyard.sync.recorder import Form
from tileyard.targets.base import Array
from tileyard.workers.golden import GoldenMaker
from tileyard.workers.protocol import MakeGolden, PassesShown, PassStep, ShowPasses, TraceBlock
from tileyard.workers.sync_check import name_place

if TYPE_CHECKING:  # importing it takes seconds
    from tileyard.frontend.tilelang import Lowered, MadeKernel


TIMED_RUNS = 5
"""Number of runs of a pass of which the median time is reported."""


def show_passes(
    found: Found, request: ShowPasses, objects: ObjectStore, clock: Clock | None = None
) -> PassesShown:
    """Elaborate one config, and run the requested pipeline's passes. Raises as elaborating does,
    and UsageError for an unknown pipeline or a kernel that fails by itself.
    """
    is_ours = request.pipeline != TILELANG
    passes = _find_passes(request) if is_ours else ()
    made, lowered = lower_whole(found, request)
    steps = run_pipeline(lowered.written, passes, lowered.written_lines)
    took: list[float | None] = [None] * len(steps)
    if not is_ours:
        _, planned = lower_whole(found, request, request.architecture)
        last = Step(name=TILELANG, program=planned.written, lines=planned.written_lines)
        steps, took = (*steps, last), [None, None]
    elif request.is_timed:
        took[1:] = [
            _time_ms(one, step.program, clock or Clock())
            for one, step in zip(passes, steps[:-1], strict=True)
        ]
    faults = [""] * len(steps)
    if request.is_checked:
        scalars = tuple(made.numbers[var.name] for var in scalar_params(lowered.written))
        golden = MakeGolden(
            kernel=found.name,
            arguments=request.arguments,
            specs=tensor_specs(lowered.written, made.integers),
            scalars=scalars,
        )
        maker = GoldenMaker(
            found=found, function=found.recipe.reference, request=golden, objects=objects
        )
        faults = StepChecker(steps[0], maker.try_out(), scalars).check(steps)
    shown = zip(steps, faults, took, strict=True)
    return PassesShown(
        kernel=found.name,
        config=dict(request.config),
        steps=tuple(
            PassStep(
                name=step.name, text=_print(step), notes=step.notes, fault=fault, took_ms=took_ms
            )
            for step, fault, took_ms in shown
        ),
        is_checked=request.is_checked,
    )


def _find_passes(request: ShowPasses) -> tuple[Pass, ...]:
    if request.document:
        return read_pipeline(request.document, request.pipeline, request.architecture)
    return find_pipeline(request.pipeline)


def lower_whole(
    found: Found, request: ShowPasses | TraceBlock, architecture: str = ""
) -> "tuple[MadeKernel, Lowered]":
    """Elaborate a config, for an architecture as TileLang plans it. Raises UsageError if its Program is not
    complete.
    """
    pipeline = f"{TILELANGS}{architecture}" if architecture else ""
    made = lower_for_check(found, request.arguments, request.config, pipeline=pipeline)
    lowered = made.lowered
    if lowered is None:
        refusal = made.kernel.refusal
        raise UsageError(refusal.message if refusal else "it has no Program")
    for given_up in lowered.given_up:
        raise UsageError(name_place(given_up.where, given_up.message))
    return made, lowered


def _time_ms(one: Pass, program: Program, clock: Clock) -> float:
    times = []
    for _ in range(TIMED_RUNS):
        begin_s = clock.monotonic_s()
        one.run(program)
        times.append(clock.monotonic_s() - begin_s)
    return statistics.median(times) * 1000


def _print(step: Step) -> str:
    files = {where.file for where in step.lines.values()}
    comments = {
        number: f"line {where.line}" if len(files) == 1 else f"{where.file}:{where.line}"
        for number, where in step.lines.items()
    }
    return print_program(step.program, comments)


class StepChecker:
    """Compares Programs with the ``written`` one, on inputs. Raises KernelFault if that fails by itself."""

    def __init__(
        self, written: Step, arrays: Sequence[Array], scalars: Sequence[Value] = ()
    ) -> None:
        self._written, self._arrays, self._scalars = written, arrays, scalars
        self._results = interpret_lanes(written.program, arrays, scalars)

    def check(self, steps: Sequence[Step]) -> list[str]:
        """The fault of each step, empty if there is none; steps after the first wrong one are not checked."""
        faults: list[str] = []
        before = None
        for step in steps:
            is_same = before == (step.program, step.lines)  # many passes change nothing
            faults.append("" if is_same or any(faults) else self.find_fault(step))
            before = (step.program, step.lines)
        return faults

    def find_fault(self, step: Step) -> str:
        """The fault of one step, in one line; empty if there is none."""
        try:
            program = with_roles(step.program, self._written.program)
            verify(program)
            results = interpret_lanes(program, self._arrays, self._scalars)
            found = check_program(program, step.lines, self._arrays, self._scalars).findings
        except (InvalidProgramError, BindError, KernelFault) as error:
            return str(error)
        outputs = [tensor for tensor in tensors(program) if tensor.role != "in"]
        for tensor, wanted, got in zip(outputs, self._results, results, strict=True):
            count = int(np.sum(_bits(wanted) != _bits(got)))
            if count:
                name = tensor.buffer.name
                return f"{count_of(count, 'byte')} of {name} are not those of the written kernel"
        written = Form(self._written.program, self._written.lines)
        form = Form(program, step.lines)
        for finding in (*found, *find_reordered(written, form, self._arrays, self._scalars)):
            where = name_place(finding.access, finding.message)
            return f"{where} [{finding.kind}]"
        return ""


def with_roles(program: Program, written: Program) -> Program:
    """``program`` with the array roles of ``written``: TileLang drops loops without iterations."""
    roles = {tensor.buffer.name: tensor.role for tensor in tensors(written)}
    params = [
        msgspec.structs.replace(one, role=roles.get(one.buffer.name, one.role))
        if isinstance(one, Tensor)
        else one
        for one in program.params
    ]
    return msgspec.structs.replace(program, params=tuple(params))


def _bits(array: Array) -> Array:
    """The bytes of an array; all NaNs are equal."""
    content: Array = np.array(array).reshape(-1)
    is_nan = content != content
    if is_nan.any():
        content[is_nan] = content.dtype.type(np.nan)
    return content.view(np.uint8)
