"""One config that is run as the command line shows it: what was generated, the verdict, the time."""

from tileyard.artifacts.objects import ObjectStore
from tileyard.cli.debugging import prepare_debugging
from tileyard.cli.emitting import emit_text
from tileyard.cli.entry import INTERRUPTED
from tileyard.cli.kernel_options import EmittedText
from tileyard.cli.opening import load_settings, print_json
from tileyard.cli.session import carry_out
from tileyard.report.console import Console
from tileyard.report.study_progress import StudyLayout
from tileyard.report.trials import print_verdict
from tileyard.service.verbs import StartTune
from tileyard.workers.run_records import find_run


def run(start: StartTune, *, emit: EmittedText | None, as_json: bool, for_debugger: bool) -> int:
    """Run it, show it, and return the exit status. Raises UsageError where nothing can be emitted."""
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
        script = prepare_debugging(objects, trial, settings.home)
        if script is not None:
            console.print(f"  step through it: gdb -q -x {script}", soft_wrap=True, highlight=False)
    if emit is not None:
        record = find_run(objects, trial.keys.run)
        lines = record.entry.lines if record is not None else {}
        emit_text(trial.keys.build, emit, settings.home, lines)
    return result.exit_status
