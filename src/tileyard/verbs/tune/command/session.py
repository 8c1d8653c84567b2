"""A tuning run on the command line: progress, result, exit status, generated text."""

from collections.abc import Mapping
from pathlib import Path

from tileyard.artifacts.manifest import find_artifact
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.errors import UsageError
from tileyard.base.model import BuildKey, SourceLine
from tileyard.pages.opening import open_report, tell_report
from tileyard.show.console import Console
from tileyard.show.guarding import INTERRUPTED
from tileyard.show.kernel_options import EmittedText
from tileyard.show.opening import load_settings, open_picture, present, print_json
from tileyard.show.session import carry_out
from tileyard.show.values import FilePath
from tileyard.show.words import annotate, make_visible
from tileyard.targets.registry import list_texts
from tileyard.verbs.tune.options import StartTable, StartTune
from tileyard.verbs.tune.view.progress import StudyLayout
from tileyard.verbs.tune.view.study import print_study
from tileyard.verbs.tune.view.table import print_dispatch
from tileyard.verbs.tune.view.trials import print_verdict
from tileyard.workers.run_records import find_run


def run(start: StartTune, *, as_json: bool, png: FilePath, report: FilePath) -> int:
    """Carry out the run, show it, draw and report it if files are named, and return the exit status."""
    settings = load_settings()
    draw = open_picture(png, "tileyard.verbs.tune.view.figure:render_study")
    write = open_report(report, "tileyard.verbs.tune.view.page:describe_studies")
    result = carry_out(start, settings, Console(stderr=as_json), StudyLayout())
    present(result, as_json, print_study, settings.home)
    draw(result)
    write(result, settings.home, result.run)
    tell_report(report, settings.home, result.run)
    return result.exit_status


def run_table(start: StartTable, *, as_json: bool, report: FilePath) -> int:
    """The same for many shapes."""
    settings = load_settings()
    write = open_report(report, "tileyard.verbs.tune.view.table_page:describe_shapes")
    result = carry_out(start, settings, Console(stderr=as_json), StudyLayout())
    present(result, as_json, print_dispatch, settings.home)
    write(result, settings.home, result.run)
    tell_report(report, settings.home, result.run)
    return result.exit_status


def run_config(
    start: StartTune, *, emit: EmittedText | None, as_json: bool, for_debugger: bool
) -> int:
    """Run it, show it, and return the exit status. Raises UsageError if nothing can be emitted."""
    settings = load_settings()
    console = Console(stderr=as_json or emit is not None)
    result = carry_out(start, settings, console, StudyLayout(tells_ends=False))
    if not result.trials:
        return INTERRUPTED
    (trial,) = result.trials
    if as_json:
        print_json(trial)
    else:
        print_verdict(console, trial, result, settings.home)
    objects = ObjectStore(settings.home / "objects")
    if for_debugger and not as_json:
        # Only now: it imports what loads a kernel into this process.
        from tileyard.verbs.tune.command.debugging import prepare_debugging

        script = prepare_debugging(objects, trial, settings.home)
        if script is not None:
            console.print(f"  step through it: gdb -q -x {script}", soft_wrap=True, highlight=False)
    if emit is not None:
        record = find_run(objects, trial.keys.run)
        lines = record.entry.lines if record is not None else {}
        emit_text(trial.keys.build, emit, settings.home, lines)
    return result.exit_status


def emit_text(
    build: BuildKey, wanted: EmittedText, home: Path, lines: Mapping[int, SourceLine]
) -> None:
    """Print a build's text, with the user's ``lines`` where C names them. Raises UsageError without text."""
    artifact = find_artifact(build, ObjectStore(home / "objects")) if build else None
    if artifact is None:
        raise UsageError("nothing was built, so nothing was generated")
    files = list_texts()
    name = files[wanted]
    if name not in artifact.manifest.files:
        there = [word for word, file in files.items() if file in artifact.manifest.files]
        raise UsageError(
            f"no {name} was generated for {artifact.manifest.target}",
            f"there is: {', '.join(there)}",
        )
    text = artifact.file(name).read_text(encoding="utf-8")
    print(make_visible(annotate(text, lines) if name.endswith(".c") else text), end="")
