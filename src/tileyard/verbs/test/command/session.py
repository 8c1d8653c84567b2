"""One run of a suite on the command line: progress, verdicts, reports, exit status."""

import os
import sys
from pathlib import Path

from tileyard.base.model import Outcome
from tileyard.base.wording import count_of
from tileyard.show.console import Console, outliving_readers
from tileyard.show.guarding import JOB, print_command
from tileyard.show.opening import load_settings, print_json, read_run_times
from tileyard.show.session import carry_on, carry_out
from tileyard.show.words import clean_line
from tileyard.verbs.test.command.suite_run import run_suite
from tileyard.verbs.test.options.test import StartTest, TestOptions
from tileyard.verbs.test.result.result import SuiteResult
from tileyard.verbs.test.view.github import annotations
from tileyard.verbs.test.view.progress import SuiteLayout
from tileyard.verbs.test.view.suite import print_suite
from tileyard.verbs.test.view.words import Rerun, rerun_command


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
