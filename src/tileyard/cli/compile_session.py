"""One build of a kernel's configs as the command line shows it: progress, table, exit status."""

from pathlib import Path

from tileyard.cli.emitting import emit_text
from tileyard.cli.kernel_options import EmittedText
from tileyard.cli.opening import load_settings, print_json
from tileyard.cli.session import carry_out
from tileyard.model import Outcome
from tileyard.report.compiled import print_compiled
from tileyard.report.console import Console
from tileyard.service.verbs import StartCompile
from tileyard.targets.registry import BUILT_IN, make_target


def run(start: StartCompile, *, emit: EmittedText | None, with_report: bool, as_json: bool) -> int:
    """Carry the build out, show what it came to, and return the exit status.

    ``emit`` is of the first config that was built. Raises UsageError where it has no such text.
    """
    settings = load_settings()
    if start.target.partition(":")[0] in BUILT_IN:
        # A name that makes no sense is refused before anything starts.
        make_target(start.target, {})
    console = Console(stderr=as_json or emit is not None)
    result = carry_out(start, settings, console)
    if as_json:
        print_json(result)
    else:
        print_compiled(console, result, settings.home, with_report=with_report)
        if start.pack_to and Path(start.pack_to).is_file() and result.reason == "done":
            size = Path(start.pack_to).stat().st_size
            console.print(f"{start.pack_to}: {size} bytes", soft_wrap=True, highlight=False)
    built = [one.build for one in result.configs if one.outcome is Outcome.PASSED]
    if emit is not None and built:
        emit_text(built[0], emit, settings.home, result.lines)
    return result.exit_status
