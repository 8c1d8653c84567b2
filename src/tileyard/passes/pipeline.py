"""The order of passes as data; runs a named pipeline and keeps the result of each pass."""

from collections.abc import Mapping, Sequence

from tileyard.base.errors import UsageError
from tileyard.base.model import Diagnostic, Record, SourceLine
from tileyard.ir.nodes import Program
from tileyard.passes.annotate_instructions import AnnotateInstructions
from tileyard.passes.base import Note, Pass
from tileyard.passes.find_copies import FindCopies
from tileyard.passes.infer_shared_layouts import InferSharedLayouts
from tileyard.passes.inject_pipeline import InjectPipeline
from tileyard.passes.plan_pipeline import PlanPipeline
from tileyard.passes.specialize_warps import SpecializeWarps
from tileyard.passes.version_buffers import VersionBuffers

PIPELINES: dict[str, tuple[Pass, ...]] = {
    "none": (),
    "sm_80": (
        FindCopies(),
        AnnotateInstructions("sm_80"),
        PlanPipeline("sm_80"),
        VersionBuffers(),
        InjectPipeline(),
        InferSharedLayouts("sm_80"),
    ),
    "sm_90a": (
        FindCopies(),
        AnnotateInstructions("sm_90a"),
        PlanPipeline("sm_90a"),
        VersionBuffers(),
        InjectPipeline(),
        SpecializeWarps("sm_90a"),
        InferSharedLayouts("sm_90a"),
    ),
}
"""Pipelines by name. Versions come before loops are written out, so that copies of statements have them.
Loops that are not split into roles are written out first, and are then part of the consumer. Layouts
come last: they are chosen for the final statements.
"""

PASSES: dict[str, type[Pass]] = {
    one.name: type(one) for passes in reversed(PIPELINES.values()) for one in passes
}
"""Passes by name, for the user's own pipelines; in the order of ``sm_90a``, which has all."""

FOLLOWS: dict[str, tuple[str, ...]] = {
    "version-buffers": ("plan-pipeline",),
    "inject-pipeline": ("plan-pipeline", "version-buffers"),
    "specialize-warps": ("plan-pipeline", "version-buffers", "inject-pipeline"),
}
"""The passes that must precede each pass."""

TILELANG = "tilelang"
"""The name of TileLang's own passes."""

TILEYARD = "tileyard"
"""The name of the pipeline that has the same name as a target's architecture."""

WRITTEN = "written"
"""The name of the step before the first pass."""


class Step(Record):
    """A Program after the pass ``name``, its statements' lines, and why the pass left some as they were."""

    name: str
    program: Program
    lines: dict[int, SourceLine]
    notes: tuple[Diagnostic, ...] = ()


def find_pipeline(name: str) -> tuple[Pass, ...]:
    """The passes of a named pipeline. Raises UsageError."""
    if name not in PIPELINES:
        raise UsageError(f"there is no pipeline {name!r}", f"pipelines: {', '.join(PIPELINES)}")
    return PIPELINES[name]


def choose_pipeline(asked: str, target: str) -> str:
    """The Tileyard pipeline for a target as ``cuda:sm_90a``, empty for TileLang's. UsageError if unknown."""
    if asked in ("", TILELANG):
        return ""
    if asked != TILEYARD:
        find_pipeline(asked)
        return asked
    name = target.partition(":")[2]
    if name not in PIPELINES:
        raise UsageError(f"there is no pipeline for {target}", f"pipelines: {', '.join(PIPELINES)}")
    return name


def run_pipeline(
    program: Program,
    pipeline: str | Sequence[Pass],
    lines: Mapping[int, SourceLine] | None = None,
) -> tuple[Step, ...]:
    """``program`` as the first step, then each pass's result; ``lines`` are its statements' by
    pre-order number. Raises UsageError for an unknown pipeline.
    """
    passes = find_pipeline(pipeline) if isinstance(pipeline, str) else pipeline
    steps = [Step(name=WRITTEN, program=program, lines=dict(lines or {}))]
    for one in passes:
        before = steps[-1]
        passed = one.run(before.program)
        origins = enumerate(passed.origins)
        steps.append(
            Step(
                name=one.name,
                program=passed.program,
                lines={n: before.lines[old] for n, old in origins if old in before.lines},
                notes=tuple(dict.fromkeys(_place(note, before.lines) for note in passed.notes)),
            )
        )
    return tuple(steps)


def _place(note: Note, lines: Mapping[int, SourceLine]) -> Diagnostic:
    """A note with the lines of its statements. Copies of a statement have the same lines."""
    other = lines.get(note.other)
    text = note.text if other is None else f"{note.text} ({other.file}:{other.line})"
    return Diagnostic(message=text, where=lines.get(note.number))
