"""Runs one config, or builds several, and shows the result on the command line: table, verdict, exit code."""

from collections.abc import Mapping
from pathlib import Path

from tileyard.artifacts.manifest import find_artifact
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.errors import UsageError
from tileyard.base.model import BuildKey, Outcome, SourceLine
from tileyard.cli.entry import INTERRUPTED
from tileyard.show.console import Console
from tileyard.show.kernel_options import EmittedText
from tileyard.show.opening import load_settings, print_json
from tileyard.show.session import carry_out
from tileyard.show.words import make_visible
from tileyard.targets.annotated import annotate
from tileyard.targets.registry import BUILT_IN, list_texts, make_target
from tileyard.verbs.compile.options.start import StartCompile
from tileyard.verbs.tune.options.start import StartTune
from tileyard.verbs.tune.view.compiled import print_compiled
from tileyard.verbs.tune.view.progress import StudyLayout
from tileyard.verbs.tune.view.trials import print_verdict
from tileyard.workers.run_records import find_run


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


def compile_configs(
    start: StartCompile, *, emit: EmittedText | None, with_report: bool, as_json: bool
) -> int:
    """Carry out the build, show the results, and return the exit status.

    ``emit`` is for the first config that was built. Raises UsageError if it has no such text.
    """
    settings = load_settings()
    if start.target.partition(":")[0] in BUILT_IN:
        # An invalid name is refused before anything starts.
        make_target(start.target, {})
    console = Console(stderr=as_json or emit is not None)
    result = carry_out(start, settings, console, StudyLayout(tells_ends=as_json))
    if as_json:
        print_json(result)
    else:
        print_compiled(console, result, settings.home, with_report=with_report)
        if result.bundle:
            size = Path(result.bundle).stat().st_size
            console.print(f"{result.bundle}: {size} bytes", soft_wrap=True, highlight=False)
    built = [one.build for one in result.configs if one.outcome is Outcome.PASSED]
    if emit is not None and built:
        emit_text(built[0], emit, settings.home, result.lines)
    return result.exit_status


def emit_text(
    build: BuildKey, wanted: EmittedText, home: Path, lines: Mapping[int, SourceLine]
) -> None:
    """Print the generated text of the build with this key, with ``lines`` of the user's where C names them.

    Raises UsageError if there is no such text.
    """
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
