"""Finds the ways in which a Program fails, each identified by a *sign* without lines and numbers."""

import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tileyard.artifacts.manifest import Artifact, Build, Manifest
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.errors import BindError, KernelFault
from tileyard.base.model import BuildKey, Device, Elaborated, Kernel, Outcome, SourceLine
from tileyard.ir.lanes import interpret_lanes
from tileyard.ir.nodes import Program
from tileyard.ir.specs import tensors
from tileyard.ir.text import print_program
from tileyard.ir.walk import number_statements
from tileyard.measure.compare import compare
from tileyard.passes.pipeline import WRITTEN, Step
from tileyard.passes.settle import settle
from tileyard.sync.blocks import Effort, check_program
from tileyard.targets.base import Array, Source, Target
from tileyard.workers.pass_steps import StepChecker

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
