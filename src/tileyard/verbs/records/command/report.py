"""``tileyard report``: a page of a run, in one HTML file."""

import sys
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, get_type_hints

import msgspec
import typer

from tileyard.base.errors import UsageError
from tileyard.show.kernel_options import PrintedOption
from tileyard.show.values import FilePath

if TYPE_CHECKING:
    from tileyard.pages.report import Subject

PAGES = {
    "StudyResult": "tileyard.verbs.tune.view.page:describe_studies",
    "TableResult": "tileyard.verbs.tune.view.table_page:describe_shapes",
    "SuiteResult": "tileyard.verbs.test.view.page:describe_suite",
    "Regression": "tileyard.verbs.regress.view.page:describe_regression",
}
"""The function that describes a result, by the name of its class, which its first parameter has."""
WITH_OTHERS = frozenset({"Regression"})
"""Results whose pages also show other runs, as they are recorded by then."""

_HAVE_PAGES = "runs of tileyard tune, test and regress have one"


def report(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN]...",
            help="Runs by their names, or the beginning of each; by default the last run with a page.",
        ),
    ] = None,
    *,
    output: Annotated[FilePath, PrintedOption("The HTML file to write.")],
) -> int:
    """Write one HTML file that shows runs: the answer first, then charts and tables.

    It is self-contained: it loads nothing, and can be sent or kept. A study shows the best time so far, its
    finalists with intervals and ties, the effect of each parameter, a map of two parameters, what failed or
    was rejected, and all configs.

    Exit status: 0 written, 2 bad usage, no such run, or a result that is not kept.
    """
    from tileyard.pages.report import render_report
    from tileyard.show.opening import load_settings, write_or_print

    if not output:
        raise UsageError("name the file to write with -o", "tileyard report -o report.html")
    home = load_settings().home
    subjects = [one for run in runs or (_find_last(home),) for one in describe_run(home, run)]
    write_or_print(output, render_report(subjects).encode())
    if output != "-":
        print(f"report: {output}", file=sys.stderr)
    return 0


def _find_last(home: Path) -> str:
    from tileyard.store.results import list_kept, read_result

    for run in list_kept(home):
        if read_result(home, run).kind in PAGES:
            return run
    raise UsageError(f"no run that has a page is recorded in {home}", _HAVE_PAGES)


def describe_run(home: Path, run: str) -> "list[Subject]":
    """What is shown of a run, by its name or the beginning of it. Raises UsageError if there is no page of
    such a result.
    """
    from tileyard.pages.report import read_log
    from tileyard.store.events import find_run_file
    from tileyard.store.results import has_result, read_result

    if not has_result(home, run):
        run = find_run_file(home, run).stem
    kept = read_result(home, run)
    if kept.kind not in PAGES:
        raise UsageError(f"run {run} has no page", _HAVE_PAGES)
    describe = resolve_name(PAGES[kept.kind])
    try:
        result = msgspec.msgpack.decode(kept.result, type=get_type_hints(describe)["result"])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        hint = "run it again with this one"
        raise UsageError(
            f"another version of Tileyard kept the result of {run}: {error}", hint
        ) from None
    subjects: list[Subject] = describe(result, read_log(home, run))
    return subjects
