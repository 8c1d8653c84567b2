"""Finds how a kernel or a Program made of it fails: what a reduction asks about each candidate. A
candidate is written as TileLang source, and the Program read back must fail in the same way.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

import msgspec
import numpy as np

from tileyard.artifacts.objects import ObjectStore
from tileyard.base.errors import InvalidProgramError, UnsupportedError, UsageError, UserCodeError
from tileyard.base.model import Elaborated, TensorSpec, Value
from tileyard.frontend.found import TILELANGS, Found, lower_for_check
from tileyard.ir.nodes import Program
from tileyard.ir.rewrite import Names
from tileyard.ir.specs import scalar_params, tensor_specs
from tileyard.ir.text import print_program, read_program
from tileyard.measure.inputs import make_input
from tileyard.passes.pipeline import WRITTEN, Step, run_pipeline
from tileyard.passes.settle import settle
from tileyard.reduce.sizes import bind_numbers
from tileyard.targets.base import Array, Target
from tileyard.targets.registry import DEFAULT_TARGET, find_needs, make_target
from tileyard.workers import failure_ways as ways
from tileyard.workers.failure_protocol import FailureFound, FindFailure
from tileyard.workers.golden import GoldenMaker
from tileyard.workers.protocol import MakeGolden
from tileyard.workers.sync_check import name_place

if TYPE_CHECKING:
    from tileyard.frontend.tilelang import MadeKernel


@dataclass(frozen=True, kw_only=True)
class _Start:
    """The kernel, its numbers bound, its input arrays by name, and options of TileLang's."""

    program: Program
    arrays: dict[str, Array]
    options: dict[str, Value]


class FailureFinder:
    """Finds failures of kernels and of Programs made of them; keeps the elaborated kernel itself."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._starts: dict[str, _Start] = {}
        self._targets: dict[str, Target] = {}

    def find(self, found: Found, request: FindFailure) -> FailureFound:
        """The failures of a Program, or of the kernel's own. Raises as elaborating does, and
        UsageError if there is no Program or it cannot fail as requested.
        """
        start = self._start(found, request)
        program = read_program(request.program) if request.program else start.program
        text = print_program(program)
        signs = self._find(program, start, request)
        if request.sign and request.sign not in signs:
            return FailureFound(program=text, signs={})
        try:
            made = _read_again(program, start)
        except (UnsupportedError, InvalidProgramError, UserCodeError) as error:
            first = str(error).partition("\n")[0]
            return FailureFound(program=text, signs=signs, refusal=first)
        lowered = made.lowered
        if lowered is not None and print_program(lowered.written) != text:
            signs = self._find(lowered.written, start, request)
        return FailureFound(program=text, signs=signs, source=made.source)

    def _start(self, found: Found, request: FindFailure) -> _Start:
        key = (
            f"{request.kernel} {sorted(request.arguments.items())} {sorted(request.config.items())}"
        )
        if key in self._starts:
            return self._starts[key]
        made = lower_for_check(found, request.arguments, request.config)
        if made.lowered is None:
            refusal = made.kernel.refusal
            raise UsageError(refusal.message if refusal else "it has no Program")
        for given_up in made.lowered.given_up:
            raise UsageError(name_place(given_up.where, given_up.message))
        written = made.lowered.written
        specs = tensor_specs(written, made.integers)
        golden = MakeGolden(
            kernel=found.name,
            arguments=request.arguments,
            specs=specs,
            scalars=tuple(made.numbers[var.name] for var in scalar_params(written)),
        )
        arrays = GoldenMaker(
            found=found, function=None, request=golden, objects=self._objects
        ).try_out()
        names = [spec.name for spec in specs if spec.role != "out"]
        self._starts[key] = start = _Start(
            program=bind_numbers(written, made.numbers),
            arrays=dict(zip(names, arrays, strict=True)),
            options=made.kernel.pass_options,
        )
        return start

    def _find(self, program: Program, start: _Start, request: FindFailure) -> dict[str, str]:
        """Messages by the signs of the failures."""
        given = start.arrays if request.has_own_inputs else {}
        specs = tensor_specs(program, {})
        arrays = [_cut(n, spec, given) for n, spec in enumerate(specs) if spec.role != "out"]
        match request.way:
            case "elsewhere":
                return {}
            case "check" | "mismatch" if request.pipeline:
                steps = _steps(program, start, request.pipeline)
                return dict(ways.find_broken_pass(steps, arrays))
            case "check":
                return dict(ways.find_hazards(program, arrays))
            case "mismatch":
                return dict(ways.find_mismatch(program, arrays, self._target(request)))
            case "compile_error":
                target = self._target(request)
                names = sorted(Names(program).taken)
                return dict(ways.find_refusal(_elaborated(program, start, target), names, target))
            case _:
                assert_never(request.way)

    def _target(self, request: FindFailure) -> Target:
        name = request.target
        if name not in self._targets:
            device, here = (find_needs(one).device_class for one in (name, DEFAULT_TARGET))
            if request.way == "mismatch" and device != here:
                raise UsageError(f"kernels are run on {here} only, and {name} is for {device}")
            self._targets[name] = make_target(name, request.plugins)
        return self._targets[name]


def _read_again(
    program: Program, start: _Start, architecture: str = "", *, with_tir: bool = False
) -> "MadeKernel":
    # Importing it takes seconds, and the user's own code has usually done that already.
    from tileyard.frontend.written_again import read_again

    return read_again(program, start.options, architecture=architecture, with_tir=with_tir)


def _steps(program: Program, start: _Start, pipeline: str) -> tuple[Step, ...]:
    """The Programs after each pass: ours, or TileLang's own for an architecture."""
    if not pipeline.startswith(TILELANGS):
        return run_pipeline(program, pipeline, ways.lines_of(program))
    steps = []
    for name, architecture in ((WRITTEN, ""), (pipeline, pipeline.removeprefix(TILELANGS))):
        lowered = _read_again(program, start, architecture).lowered
        if lowered is None or lowered.given_up:
            raise UsageError(f"what {pipeline} makes of it is not covered")
        steps.append(Step(name=name, program=lowered.written, lines=lowered.written_lines))
    return tuple(steps)


def _elaborated(program: Program, start: _Start, target: Target) -> Elaborated:
    if not target.needs_tir:
        return ways.elaborated_alone(settle(program).program)
    made = _read_again(program, start, with_tir=True)
    kernel = msgspec.structs.replace(made.kernel, pass_options=start.options)
    return Elaborated(kernel=kernel, tir=made.tir)


def _cut(number: int, spec: TensorSpec, given: dict[str, Array]) -> Array:
    """The first elements of the kernel's own array; a new one if none is as large."""
    array = given.get(spec.name)
    if array is None or array.ndim != len(spec.shape):
        return make_input(number, spec)
    if any(size > full for size, full in zip(spec.shape, array.shape, strict=True)):
        return make_input(number, spec)
    return np.ascontiguousarray(array[tuple(map(slice, spec.shape))])
