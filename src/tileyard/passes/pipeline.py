"""The order of passes as data; runs a named pipeline, and keeps or writes the result of each pass."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import get_type_hints

import msgspec

from tileyard.base.decoding import decode_toml
from tileyard.base.errors import UsageError
from tileyard.base.model import Diagnostic, Record, SourceLine
from tileyard.ir.nodes import Program
from tileyard.passes.annotate_instructions import AnnotateInstructions
from tileyard.passes.base import Note, Pass
from tileyard.passes.find_copies import FindCopies
from tileyard.passes.infer_shared_layouts import InferSharedLayouts
from tileyard.passes.inject_pipeline import InjectPipeline
from tileyard.passes.instructions import ARCHITECTURES
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


class _File(Record, forbid_unknown_fields=True):
    passes: tuple[dict[str, object], ...]
    architecture: str = ""


def read_pipeline(text: str, file: str, architecture: str = "sm_80") -> tuple[Pass, ...]:
    """The passes in a ``file``'s ``text``, for its ``architecture`` or this. UsageError has file
    and entry.
    """
    try:
        read = msgspec.convert(decode_toml(text), _File)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise UsageError(f"{file}: {error}") from None
    options: dict[str, object] = {"architecture": read.architecture or architecture}
    found: list[Pass] = []
    for number, entry in enumerate(read.passes, 1):
        name = entry.get("name")
        where = f"{file}: pass {number}"
        if not isinstance(name, str) or name not in PASSES:
            what = f"there is no pass {name!r}" if name else "it has no name"
            raise UsageError(f"{where}: {what}", f"there are {', '.join(PASSES)}")
        where = f"{where}, {name}"
        earlier = [one.name for one in found]
        if name in earlier:
            raise UsageError(f"{where}: it is pass {earlier.index(name) + 1} already")
        missing = [one for one in FOLLOWS.get(name, ()) if one not in earlier]
        if missing:
            raise UsageError(f"{where}: it must follow {missing[0]}")
        found.append(_make(PASSES[name], entry, options, where))
    return tuple(found)


def _make(kind: type[Pass], entry: dict[str, object], known: dict[str, object], where: str) -> Pass:
    types = get_type_hints(kind)
    fields = [f for f in dataclasses.fields(kind) if f.name != "name"]  # type: ignore[arg-type]
    names = [field.name for field in fields]
    options = {key: value for key, value in entry.items() if key != "name"}
    unknown = [key for key in options if key not in names]
    if unknown:
        hint = f"it has {', '.join(names)}" if names else "it has none"
        raise UsageError(f"{where}: there is no option {unknown[0]!r}", hint)
    options = {key: value for key, value in known.items() if key in names} | options
    for key, value in options.items():
        try:
            options[key] = msgspec.convert(value, types[key])
        except msgspec.ValidationError as error:
            raise UsageError(f"{where}: option {key}: {error}") from None
    if options.get("architecture") not in (None, *ARCHITECTURES):
        raise UsageError(
            f"{where}: there are no rules for architecture {options['architecture']!r}",
            f"there are those of {', '.join(ARCHITECTURES)}",
        )
    return kind(**options)
