"""One run of a suite as the command line shows it: progress, verdicts, reports, exit status."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from tileyard.cli.opening import print_json
from tileyard.cli.session import stop_on_interrupt
from tileyard.model import Outcome
from tileyard.report.console import Console, outliving_readers
from tileyard.report.github import annotations, write_step_summary
from tileyard.report.junit import write_junit
from tileyard.report.progress import Progress
from tileyard.report.suite import print_suite
from tileyard.report.suite_progress import SuiteLayout
from tileyard.report.suite_words import Rerun, rerun_command
from tileyard.report.summary import write_summary
from tileyard.report.words import clean_line
from tileyard.service.client import RunClient
from tileyard.service.verbs import StartTest
from tileyard.settings import read_settings
from tileyard.suite.result import SuiteResult
from tileyard.wording import count_of


@dataclass(frozen=True, kw_only=True)
class SuiteReports:
    """Where the result of a run goes beside the terminal. ``suite`` are the arguments that name it."""

    suite: tuple[str, ...]
    junit: Path | None
    summary: Path | None
    as_json: bool


def run(start: StartTest, reports: SuiteReports) -> int:
    """Carry the run out, show it, write the reports, and return the exit status."""
    settings = read_settings(os.environ, Path.cwd())
    client = RunClient(start, settings)
    console = Console(stderr=reports.as_json)
    rerun = rerun_command(*reports.suite)
    with (
        stop_on_interrupt(client),
        Progress(console, SuiteLayout(settings.home, rerun)) as progress,
    ):
        result = client.run(progress)
    if reports.junit is not None:
        write_junit(result, reports.junit)
    if reports.summary is not None:
        write_summary(result, reports.summary)
    if page := os.environ.get("GITHUB_STEP_SUMMARY"):
        write_step_summary(result, Path(page), rerun)
    if reports.as_json:
        print_json(result)
    else:
        rest = "" if reports.summary is None else str(reports.summary)
        print_suite(console, result, rerun, rest)
        _annotate(result, rerun)
    return result.exit_status


def pack(start: StartTest, *, as_json: bool) -> int:
    """Build the cases of a suite and write them into a bundle; 1 if one could not be built.

    130 if that was interrupted; then there is no bundle.
    """
    settings = read_settings(os.environ, Path.cwd())
    client = RunClient(start, settings)
    console = Console(stderr=True)
    with (
        stop_on_interrupt(client),
        Progress(console, SuiteLayout(settings.home, rerun_command(start.path))) as progress,
    ):
        result = client.run(progress)
    packed = result.count()[Outcome.SKIPPED]
    output = Path(start.pack_to)
    if as_json:
        print_json(result)
    elif result.reason == "interrupted":
        print("interrupted: no bundle was written", file=sys.stderr)
    else:
        cases = count_of(len(result.verdicts), "case")
        print(clean_line(f"{output}: {packed} of {cases}, {output.stat().st_size} bytes"))
    return result.exit_status


def _annotate(result: SuiteResult, rerun: Rerun) -> None:
    """Print annotations, where a job of GitHub Actions runs this."""
    if os.environ.get("GITHUB_ACTIONS") == "true":
        checkout = os.environ.get("GITHUB_WORKSPACE")
        with outliving_readers():
            for line in annotations(result, Path(checkout) if checkout else None, rerun):
                print(line)
