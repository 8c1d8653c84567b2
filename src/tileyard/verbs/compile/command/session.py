"""Builds configs, and shows the result on the command line: table, exit code."""

from pathlib import Path

from tileyard.base.model import Outcome
from tileyard.show.console import Console
from tileyard.show.kernel_options import EmittedText
from tileyard.show.opening import load_settings, print_json
from tileyard.show.session import carry_out
from tileyard.targets.registry import BUILT_IN, make_target
from tileyard.verbs.compile.options import StartCompile
from tileyard.verbs.tune.command.emitting import emit_text
from tileyard.verbs.tune.view.compiled import print_compiled
from tileyard.verbs.tune.view.progress import StudyLayout


def compile_configs(
    start: StartCompile, *, emit: EmittedText | None, with_report: bool, as_json: bool
) -> int:
    """Carry out the build, show the results, and return the exit status. ``emit`` is for the first config
    that was built; raises UsageError if it has no such text.
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
