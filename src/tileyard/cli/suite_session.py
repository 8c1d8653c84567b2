"""One run of a suite as the command line shows it: progress, verdicts, reports, exit status."""

import os
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tileyard.cli.opening import load_settings, print_json
from tileyard.cli.session import carry_out
from tileyard.errors import UsageError
from tileyard.events import CaseEnded, Event, RunStarted
from tileyard.model import Outcome
from tileyard.report.console import Console, outliving_readers
from tileyard.report.github import annotations, write_step_summary
from tileyard.report.junit import write_junit
from tileyard.report.suite import print_suite
from tileyard.report.suite_files import CaseLogs, Report
from tileyard.report.suite_progress import SuiteLayout
from tileyard.report.suite_words import Rerun, rerun_command
from tileyard.report.summary import write_summary
from tileyard.report.words import clean_line
from tileyard.service.verbs import StartTest
from tileyard.suite.result import SuiteResult
from tileyard.wording import count_of

ROOM_BYTES, CASE_BYTES = 64 << 10, 1 << 10
"""Of the disk, kept for each report while a run goes on, and for each case in it."""


@dataclass(frozen=True, kw_only=True)
class Files:
    """What files of a run are asked for."""

    junit: Path | None
    summary: Path | None
    logs: Path | None


def run(start: StartTest, rerun: Rerun, files: Files, *, as_json: bool) -> int:
    """Carry the run out, show it, write the files that are asked for, and return the exit status."""
    settings = load_settings()
    logs = None if files.logs is None else CaseLogs(files.logs, settings.home)
    console = Console(stderr=as_json)
    layout = SuiteLayout(settings.home, rerun)
    asked = ((files.junit, write_junit), (files.summary, write_summary))
    with ExitStack() as stack:
        reports = [(write, stack.enter_context(Report(path))) for path, write in asked if path]

        def hear(event: Event) -> None:
            if isinstance(event, RunStarted):
                for _, report in reports:
                    report.reserve(ROOM_BYTES + event.cases * CASE_BYTES)
            elif isinstance(event, CaseEnded) and logs is not None:
                logs.keep(event.trial)

        result = carry_out(start, settings, console, layout, hear)
        writes = [partial(write, result, report) for write, report in reports]
        if page := os.environ.get("GITHUB_STEP_SUMMARY"):
            writes.append(partial(write_step_summary, result, Path(page), rerun))
        errors = [] if logs is None or logs.error is None else [logs.error]
        for write in writes:
            try:
                write()
            except UsageError as error:  # told once everything else was
                errors.append(error)
    if as_json:
        print_json(result)
    else:
        print_suite(console, result, rerun, "" if files.summary is None else str(files.summary))
        _annotate(result, rerun)
    if errors:
        raise errors[0]
    return result.exit_status


def pack(start: StartTest, *, as_json: bool) -> int:
    """Build the cases of a suite and write them into a bundle; 1 if one could not be built.

    130 if that was interrupted; then there is no bundle.
    """
    settings = load_settings()
    layout = SuiteLayout(settings.home, rerun_command(start.path))
    result = carry_out(start, settings, Console(stderr=True), layout)
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
