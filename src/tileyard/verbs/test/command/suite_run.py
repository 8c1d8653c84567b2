"""The run of a suite, with the files that it writes."""

import os
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tileyard.base.errors import UsageError
from tileyard.base.events import CaseEnded, Event, RunStarted
from tileyard.base.settings import Settings
from tileyard.show.carrying import Carry
from tileyard.show.options import complete
from tileyard.verbs.test.options.test import StartTest, TestOptions, start_test
from tileyard.verbs.test.result.result import SuiteResult
from tileyard.verbs.test.view.files import CaseLogs, Report
from tileyard.verbs.test.view.github import write_step_summary
from tileyard.verbs.test.view.junit import write_junit
from tileyard.verbs.test.view.progress import SuiteLayout
from tileyard.verbs.test.view.summary import write_summary
from tileyard.verbs.test.view.words import Rerun, rerun_command

ROOM_BYTES, CASE_BYTES = 64 << 10, 1 << 10
"""Disk space reserved for each report during a run, and for each case in it."""


@dataclass(frozen=True, kw_only=True)
class SuiteRun:
    """A finished run of a suite: result, command to run a case again, and what could not be written."""

    result: SuiteResult
    rerun: Rerun
    errors: list[UsageError]


def run_suite(suite: str, given: TestOptions, settings: Settings, carry: Carry) -> SuiteRun:
    """Run a suite, and write the requested files. Raises UsageError for one that cannot be begun."""
    options = complete(TestOptions, given)
    start = start_test(suite, options)
    rerun = rerun_command(*_name(suite, options, start))
    layout = SuiteLayout(settings.home, rerun, is_verbose=options["verbose"])
    folder = options["logs"]
    logs = None if folder is None else CaseLogs(Path(folder), settings.home)
    asked = ((options["junit"], write_junit), (options["summary"], write_summary))
    with ExitStack() as stack:
        reports = [
            (write, stack.enter_context(Report(Path(path)))) for path, write in asked if path
        ]

        def hear(event: Event) -> None:
            if isinstance(event, RunStarted):
                for _, report in reports:
                    report.reserve(ROOM_BYTES + event.cases * CASE_BYTES)
            elif isinstance(event, CaseEnded) and logs is not None:
                logs.keep(event.trial)

        result = carry(start, settings, layout, hear)
        writes = [partial(write, result, report) for write, report in reports]
        if page := os.environ.get("GITHUB_STEP_SUMMARY"):
            writes.append(partial(write_step_summary, result, Path(page), rerun))
        errors = [] if logs is None or logs.error is None else [logs.error]
        for write in writes:
            try:
                write()
            except UsageError as error:  # raised after everything else
                errors.append(error)
    return SuiteRun(result=result, rerun=rerun, errors=errors)


def _name(suite: str, options: TestOptions, start: StartTest) -> list[str]:
    """The command line's name for this suite."""
    return [
        *([suite] if suite else ["--from", str(options["from_"])]),
        *(text for key, value in start.parameters.items() for text in ("--set", f"{key}={value}")),
        *(text for name in start.devices for text in ("--devices", name)),
        *(["--sanitize"] if options["sanitize"] else []),
    ]
