"""Finds how a kernel or a Program made of it fails: what a reduction asks about each candidate. A
candidate is written as TileLang source, and the Program read back must fail in the same way.
"""

import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

import msgspec
import numpy as np

from tileyard.artifacts.manifest import Artifact, Build, Manifest
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.errors import (
    BindError,
    InvalidProgramError,
    KernelFault,
    UnsupportedError,
    UsageError,
    UserCodeError,
)
from tileyard.base.model import (
    BuildKey,
    Device,
    Elaborated,
    Kernel,
    Outcome,
    SourceLine,
    TensorSpec,
    Value,
)
from tileyard.frontend.found import TILELANGS, Found, lower_for_check
from tileyard.ir.lanes import interpret_lanes
from tileyard.ir.nodes import Program
from tileyard.ir.printer import print_program
from tileyard.ir.reader import read_program
from tileyard.ir.rewrite import Names
from tileyard.ir.specs import scalar_params, tensor_specs, tensors
from tileyard.ir.walk import number_statements
from tileyard.measure.compare import compare
from tileyard.measure.inputs import make_input
from tileyard.passes.pipeline import WRITTEN, Step, run_pipeline
from tileyard.passes.settle import settle
from tileyard.reduce.search import bind_numbers
from tileyard.sync.blocks import Effort, check_program
from tileyard.targets.base import Array, Source, Target
from tileyard.targets.registry import DEFAULT_TARGET, find_needs, make_target
from tileyard.workers.golden import GoldenMaker
from tileyard.workers.pass_steps import StepChecker
from tileyard.workers.protocol import FailureFound, FindFailure, MakeGolden
from tileyard.workers.sync_check import name_place

if TYPE_CHECKING:
    from tileyard.frontend.tilelang import MadeKernel

Signs = Iterator[tuple[str, str]]
"""The failures of a Program: the sign of each, and its message."""
RUN_LIMIT_S = 20.0
"""Seconds for the blocks of one candidate; a longer one, as with an endless loop, fails differently."""
_PLACES = re.compile(r"\bline \d+|\ban unknown line")
_LOOPS = re.compile(r" at \w+=-?\d+(, \w+=-?\d+)*")
_COUNTS = re.compile(r"-?\d[\d,.]*(?: (groups?|phases|bytes?|threads|arrivals)\b)?")
_QUOTED = re.compile(r"`[^`]*`|'[^']*'|\"[^\"]*\"")
_FILES = re.compile(r"\S+:\d+: ")
_SOURCE = "kernel"


def sign_of(message: str, names: Sequence[str] = ()) -> str:
    """``message`` without lines, iterations and numbers, nor ``names`` and what it quotes if given."""
    text = _LOOPS.sub("", _PLACES.sub("a line", message.splitlines()[0] if message else ""))
    if names:
        text = re.sub(rf"\b(?:{'|'.join(map(re.escape, names))})\b", "_", _QUOTED.sub("_", text))
    return _COUNTS.sub("#", text)


def lines_of(program: Program) -> dict[int, SourceLine]:
    """A line for each statement, by which findings refer to it."""
    numbered = number_statements(program)
    return {number: SourceLine(file=_SOURCE, line=number + 1) for number, _ in numbered}


def elaborated_alone(program: Program) -> Elaborated:
    """The input of a target for a Program that has no lines."""
    return Elaborated(kernel=Kernel(name=program.name, program=print_program(program)))


# ---- check ----------------------------------------------------------------------------------


def find_hazards(program: Program, arrays: Sequence[Array]) -> Signs:
    """The findings of a Program's synchronization check."""
    try:
        checked = check_program(program, lines_of(program), arrays, (), Effort(limit_s=RUN_LIMIT_S))
    except (KernelFault, BindError) as fault:
        yield sign_of(f"fault: {fault}"), str(fault)
        return
    for finding in checked.findings:
        yield (
            sign_of(f"{finding.kind} of {finding.buffer}: {finding.fix}"),
            f"{finding.message} [{finding.kind}]",
        )
    if not checked.is_whole:
        yield "takes too long", f"it takes longer than {RUN_LIMIT_S:g} s"


# ---- mismatch -------------------------------------------------------------------------------


def find_broken_pass(steps: Sequence[Step], arrays: Sequence[Array]) -> Signs:
    """The fault of the first step that is wrong."""
    try:
        faults = StepChecker(steps[0], arrays).check(steps)
    except (KernelFault, BindError) as fault:
        yield sign_of(f"fault: {fault}"), str(fault)
        return
    for step, said in zip(steps, faults, strict=True):
        if said:
            what = (
                "it is wrong as it is written" if step.name == WRITTEN else f"{step.name} broke it"
            )
            message = f"{what}: {_FILES.sub('', said)}"
            yield sign_of(message), message


def find_mismatch(program: Program, arrays: Sequence[Array], target: Target) -> Signs:
    """Outputs of the target that differ from the interpreter's; for a Program without hazards."""
    hazards = dict(find_hazards(program, arrays))
    if hazards:
        yield from hazards.items()
        return
    settled = settle(program).program
    with tempfile.TemporaryDirectory(prefix="tileyard-reduce-") as folder:
        built = _build(elaborated_alone(settled), target, Path(folder))
        if isinstance(built, Build):
            yield "not built", f"it is not built: {_reason(built)}"
            return
        cores = tuple(sorted(os.sched_getaffinity(0)))[:1]
        device = Device(name="cpu", kind="cpu", identity=_SOURCE, cores=cores)
        launch = target.load(built, device).bind(arrays, ())
        try:
            launch.run()
        except KernelFault as fault:
            yield sign_of(f"fault: {fault}"), str(fault)
            return
        expected = interpret_lanes(settled, arrays)
        outputs = [tensor for tensor in tensors(settled) if tensor.role != "in"]
        for tensor, got, want in zip(outputs, launch.read(), expected, strict=True):
            found = compare(tensor.buffer.name, got, want, None)
            if found is not None:
                yield f"mismatch of {tensor.buffer.name}", found.describe()


def find_refusal(elaborated: Elaborated, names: Sequence[str], target: Target) -> Signs:
    """The reason why the target does not build a kernel, in which these are the user's ``names``."""
    with tempfile.TemporaryDirectory(prefix="tileyard-reduce-") as folder:
        built = _build(elaborated, target, Path(folder))
        if isinstance(built, Build):
            yield sign_of(_reason(built), names), _reason(built)


def _build(elaborated: Elaborated, target: Target, folder: Path) -> Artifact | Build:
    (built,) = target.build([Source(elaborated=elaborated)], folder)
    if built.outcome is not Outcome.PASSED:
        return built
    objects = ObjectStore(folder / "objects")
    manifest = Manifest(
        kernel=elaborated.kernel.name,
        target=target.name,
        fingerprint=target.fingerprint(),
        build=BuildKey(_SOURCE),
        binary=built.binary,
        files={name: objects.put_file(folder / "0" / name) for name in built.files},
        details=built.details,
    )
    return Artifact(manifest, objects)


def _reason(built: Build) -> str:
    return built.diagnostic.message if built.diagnostic is not None else built.message


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
                return dict(find_broken_pass(steps, arrays))
            case "check":
                return dict(find_hazards(program, arrays))
            case "mismatch":
                return dict(find_mismatch(program, arrays, self._target(request)))
            case "compile_error":
                target = self._target(request)
                names = sorted(Names(program).taken)
                return dict(find_refusal(_elaborated(program, start, target), names, target))
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
        return run_pipeline(program, pipeline, lines_of(program))
    steps = []
    for name, architecture in ((WRITTEN, ""), (pipeline, pipeline.removeprefix(TILELANGS))):
        lowered = _read_again(program, start, architecture).lowered
        if lowered is None or lowered.given_up:
            raise UsageError(f"what {pipeline} makes of it is not covered")
        steps.append(Step(name=name, program=lowered.written, lines=lowered.written_lines))
    return tuple(steps)


def _elaborated(program: Program, start: _Start, target: Target) -> Elaborated:
    if not target.needs_tir:
        return elaborated_alone(settle(program).program)
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
