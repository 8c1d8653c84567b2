"""One build of a kernel's configs as the command line shows it: progress, table, exit status."""

import os
from pathlib import Path

from rich.console import Console

from tileyard.cli.opening import print_json
from tileyard.cli.session import stop_on_interrupt
from tileyard.report.compiled import print_compiled
from tileyard.report.progress import Progress
from tileyard.service.client import CompileClient
from tileyard.service.messages import StartCompile
from tileyard.settings import read_settings
from tileyard.targets.registry import BUILT_IN, make_target


def run(start: StartCompile, *, with_report: bool, as_json: bool) -> int:
    """Carry the build out, show what it came to, and return the exit status."""
    settings = read_settings(os.environ, Path.cwd())
    if start.target.partition(":")[0] in BUILT_IN:
        make_target(
            start.target, {}
        )  # a name that makes no sense is refused before anything starts
    client = CompileClient(start, settings)
    console = Console(stderr=as_json)
    with stop_on_interrupt(client), Progress(console) as progress:
        result = client.run(progress)
    if as_json:
        print_json(result)
    else:
        print_compiled(console, result, settings.home, with_report=with_report)
        if start.pack_to and Path(start.pack_to).is_file() and result.reason == "done":
            size = Path(start.pack_to).stat().st_size
            console.print(f"{start.pack_to}: {size} bytes", soft_wrap=True, highlight=False)
    return result.exit_status
