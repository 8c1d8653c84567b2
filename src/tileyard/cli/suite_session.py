"""One run of a suite as the command line shows it: progress, verdicts, reports, exit status."""

import os
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from tileyard.cli.opening import print_json
from tileyard.cli.session import stop_on_interrupt
from tileyard.report.suite import print_suite
from tileyard.report.suite_progress import SuiteProgress
from tileyard.report.suite_words import rerun_command
from tileyard.service.client import SuiteClient
from tileyard.service.messages import StartTest
from tileyard.settings import read_settings


@dataclass(frozen=True, kw_only=True)
class SuiteReports:
    """Where the result of a run goes beside the terminal. ``suite`` is how it was named."""

    suite: str
    junit: Path | None
    summary: Path | None
    as_json: bool


def run(start: StartTest, reports: SuiteReports) -> int:
    """Carry the run out, show it, write the reports, and return the exit status."""
    settings = read_settings(os.environ, Path.cwd())
    client = SuiteClient(start, settings)
    console = Console(stderr=reports.as_json)
    rerun = rerun_command(reports.suite)
    with (
        stop_on_interrupt(client),
        SuiteProgress(console, settings.home, rerun) as progress,
    ):
        result = client.run(progress)
    if reports.as_json:
        print_json(result)
    else:
        print_suite(console, result, rerun)
    return result.exit_status
