"""The order of passes as data, and a run of a named one with what each pass made."""

from collections.abc import Mapping, Sequence

from tileyard.errors import UsageError
from tileyard.ir.nodes import Program
from tileyard.model import Diagnostic, Record, SourceLine
from tileyard.passes.base import Pass
from tileyard.passes.find_copies import FindCopies
from tileyard.passes.inject_pipeline import InjectPipeline
from tileyard.passes.plan_pipeline import PlanPipeline
from tileyard.passes.version_buffers import VersionBuffers

SHARED_BYTES = {"sm_80": 163 * 1024}
"""Shared memory of a block at most. Source: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"."""

PIPELINES: dict[str, tuple[Pass, ...]] = {
    "none": (),
    "sm_80": (
        FindCopies(),
        PlanPipeline(SHARED_BYTES["sm_80"]),
        VersionBuffers(),
        InjectPipeline(),
    ),
}
"""Pipelines by their names. Versions come before the loop is written out: its copies then have them already."""

WRITTEN = "written"
"""The name of the step before the first pass."""


class Step(Record):
    """A Program after the pass ``name``, the lines of its statements, and why the pass left statements as they were."""

    name: str
    program: Program
    lines: dict[int, SourceLine]
    notes: tuple[Diagnostic, ...] = ()


def find_pipeline(name: str) -> tuple[Pass, ...]:
    """The passes of a named pipeline. Raises UsageError."""
    if name not in PIPELINES:
        raise UsageError(f"there is no pipeline {name!r}", f"there are {', '.join(PIPELINES)}")
    return PIPELINES[name]


def run_pipeline(
    program: Program,
    pipeline: str | Sequence[Pass],
    lines: Mapping[int, SourceLine] | None = None,
) -> tuple[Step, ...]:
    """What each pass of a pipeline makes of ``program``, which is the first step. Raises UsageError for an unknown name.

    ``lines`` are those of the statements of ``program``, by their pre-order numbers.
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
                notes=tuple(
                    Diagnostic(message=note.text, where=before.lines.get(note.number))
                    for note in passed.notes
                ),
            )
        )
    return tuple(steps)
