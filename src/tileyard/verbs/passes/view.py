"""Shows the results of passes on a kernel on the command line."""

import asyncio
import difflib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from tileyard.base.errors import UsageError
from tileyard.base.model import Record, Side
from tileyard.base.wording import count_of
from tileyard.engine.authors import WorkerAuthor
from tileyard.passes.pipeline import PIPELINES, TILELANG, WRITTEN, read_pipeline
from tileyard.show.console import outliving_readers
from tileyard.show.opening import load_settings, print_json
from tileyard.show.words import format_config, make_visible
from tileyard.verbs.check.view.findings import name_place
from tileyard.verbs.tune.options import TuneRequest
from tileyard.verbs.tune.plan.space import OpenSpace, ask_about_first
from tileyard.workers.protocol import PassesShown, PassStep, ShowPasses

DEFAULT_ARCHITECTURE = "sm_80"


class ChosenPipeline(Record):
    """A pipeline by its name, or a file's name with its content; the steps' names; its architecture."""

    name: str
    steps: tuple[str, ...]
    architecture: str
    document: str = ""


class Wanted(Record):
    """The pipeline, whether it is checked, and what is shown: all steps or the one ``after`` a pass; Programs
    or changes; times. ``python_limit_s`` is that of ``--python-limit``, 0 for none.
    """

    chosen: ChosenPipeline
    is_checked: bool
    after: str
    is_diff: bool
    is_timed: bool
    as_json: bool
    limit_s: float
    python_limit_s: float


def open_pipeline(target: str, pipeline: str) -> ChosenPipeline:
    """The pipeline of the name or file, otherwise the one for the target. Raises UsageError."""
    architecture = target.partition(":")[2]
    if target and not architecture:
        raise UsageError(f"--target {target}: passes are for cuda:ARCH, as cuda:sm_80")
    architecture = architecture or DEFAULT_ARCHITECTURE
    name, document = pipeline or architecture, ""
    if name == TILELANG:
        steps: tuple[str, ...] = (TILELANG,)
    elif name.endswith(".toml"):
        try:
            document = Path(name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--pipeline {name}: it cannot be read: {error}") from None
        steps = tuple(one.name for one in read_pipeline(document, name, architecture))
    elif name in PIPELINES:
        steps = tuple(one.name for one in PIPELINES[name])
    else:
        names = ", ".join([*PIPELINES, TILELANG])
        raise UsageError(f"there is no pipeline {name!r}", f"pipelines: {names}, and files .toml")
    return ChosenPipeline(
        name=name, steps=(WRITTEN, *steps), architecture=architecture, document=document
    )


def show_passes(file: Path, request: TuneRequest, wanted: Wanted) -> int:
    """Run the passes on a kernel's first config, show them; 1 if one breaks it. Raises UsageError."""
    chosen = wanted.chosen
    if wanted.after and wanted.after not in chosen.steps:
        raise UsageError(
            f"the pipeline {chosen.name} has no pass {wanted.after!r}",
            f"it has {', '.join(chosen.steps)}",
        )
    shown = asyncio.run(_ask(file, request, wanted))
    if wanted.as_json:
        print_json(shown)
    else:
        with outliving_readers():
            for line in describe_passes(str(file), shown, wanted):
                print(make_visible(line))
    return int(any(step.fault for step in shown.steps))


async def _ask(file: Path, request: TuneRequest, wanted: Wanted) -> PassesShown:
    settings = load_settings()
    side = Side(name="", python_limit_s=wanted.python_limit_s)
    author = WorkerAuthor(file, settings.home, settings.cores, side)

    def make(space: OpenSpace) -> ShowPasses:
        return ShowPasses(
            kernel=space.kernel,
            arguments=space.arguments,
            config=space.configs[0],
            pipeline=wanted.chosen.name,
            document=wanted.chosen.document,
            architecture=wanted.chosen.architecture,
            is_checked=wanted.is_checked,
            is_timed=wanted.is_timed,
        )

    return await ask_about_first(
        author, request, make, wanted.limit_s, failed="has no passes to show"
    )


def describe_passes(file: str, shown: PassesShown, wanted: Wanted) -> Iterator[str]:
    """The wanted steps, each with its reasons; last the result of the check."""
    nothing = PassStep(name="", text="")
    for before, step in pairwise((nothing, *shown.steps)):
        if wanted.after in ("", step.name):
            took = "" if step.took_ms is None else f" ({step.took_ms:.2f} ms)"
            yield f"---- {step.name}{took} ----"
            yield from (f"{name_place(file, note.where)}: {note.message}" for note in step.notes)
            is_diff = wanted.is_diff and bool(before.text)
            yield from _changes(before, step) if is_diff else step.text.splitlines()
    if not shown.is_checked:
        return
    config = f" {format_config(shown.config)}" if shown.config else ""
    for step in shown.steps:
        if step.fault:
            blamed = (
                "is wrong as it is written" if step.name == WRITTEN else f"{step.name} broke it"
            )
            yield f"{shown.kernel}{config}: {blamed}: {step.fault}"
            return
    steps = count_of(len(shown.steps), "step")
    yield f"{shown.kernel}{config}: {steps}, all with the same results and no mistakes"


def _changes(before: PassStep, after: PassStep) -> Iterator[str]:
    """The lines that a pass changes, with their context."""
    found = difflib.unified_diff(
        before.text.splitlines(), after.text.splitlines(), n=2, lineterm=""
    )
    return (line for line in found if not line.startswith(("---", "+++")))
