"""One run of a suite on the command line: progress, verdicts, reports, exit status."""

import os
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tileyard.base.errors import UsageError
from tileyard.base.events import CaseEnded, Event, RunStarted
from tileyard.base.model import Outcome
from tileyard.base.settings import Settings
from tileyard.base.wording import count_of
from tileyard.pages.opening import open_report, tell_report
from tileyard.show.console import Console, outliving_readers
from tileyard.show.guarding import JOB, print_command
from tileyard.show.opening import load_settings, print_json, read_run_times
from tileyard.show.options import complete
from tileyard.show.session import Carry, carry_on, carry_out
from tileyard.show.words import clean_line
from tileyard.verbs.test.options import StartTest, TestOptions, start_test
from tileyard.verbs.test.result.result import SuiteResult
from tileyard.verbs.test.view.junit import write_junit
from tileyard.verbs.test.view.markdown import annotations, write_step_summary
from tileyard.verbs.test.view.progress import SuiteLayout
from tileyard.verbs.test.view.suite import print_suite, write_summary
from tileyard.verbs.test.view.words import CaseLogs, Report, Rerun, rerun_command

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
    write_page = open_report(options["report"], "tileyard.verbs.test.view.page:describe_suite")
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
        writes.append(partial(write_page, result, settings.home, result.run))
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
        *(["--hosts", start.hosts] if start.hosts else []),
        *(["--sanitize"] if options["sanitize"] else []),
    ]


def run(suite: str, options: TestOptions, *, as_json: bool) -> int:
    """Carry out the run, show it, and return the exit status. Raises UsageError for unwritable reports."""
    console = Console(stderr=as_json)
    ran = run_suite(suite, options, load_settings(), carry_on(console))
    if as_json:
        print_json(ran.result)
    else:
        rest, is_verbose = str(options.get("summary") or ""), bool(options.get("verbose"))
        print_suite(console, ran.result, ran.rerun, rest, is_verbose=is_verbose)
        _annotate(ran.result, ran.rerun)
    if ran.errors:
        raise ran.errors[0]
    tell_report(options.get("report"), Path(ran.result.home), ran.result.run)
    return ran.result.exit_status


def list_all(suite: str, options: TestOptions, *, as_json: bool) -> int:
    """Print the cases that would run, one per line, and return the exit status."""
    # Modules that read suites; a run leaves them to its engine.
    from tileyard.verbs.test.command.listing import list_cases

    cases = list_cases(suite, options, load_settings(), read_run_times)
    if as_json:
        print_json(cases)
        return 0
    with outliving_readers():
        for case in cases:
            print(clean_line(case))
    return 0


def pack(start: StartTest, *, as_json: bool) -> int:
    """Pack the built cases of a suite: 1 if one could not be built; without a bundle 1 if none could, even if
    all are in quarantine, or 130 if interrupted.
    """
    settings = load_settings()
    layout = SuiteLayout(settings.home, rerun_command(start.path))
    result = carry_out(start, settings, Console(stderr=True), layout)
    packed = result.count()[Outcome.SKIPPED]
    output = Path(start.pack_to)
    status = result.exit_status or (0 if packed else 1)
    if as_json:
        print_json(result)
        return status
    cases = count_of(len(result.verdicts), "case")
    if result.reason == "interrupted":
        print("interrupted: no bundle was written", file=sys.stderr)
    elif not packed:
        why = f"0 of {cases} could be built, so {output} was not written"
        print(clean_line(why), file=sys.stderr)
    else:
        print(clean_line(f"{output}: {packed} of {cases}, {output.stat().st_size} bytes"))
    return status


def _annotate(result: SuiteResult, rerun: Rerun) -> None:
    if os.environ.get(JOB) == "true":
        checkout = os.environ.get("GITHUB_WORKSPACE")
        with outliving_readers():
            for line in annotations(result, Path(checkout) if checkout else None, rerun):
                print_command(line)
