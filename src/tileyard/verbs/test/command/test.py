"""``tileyard test``: runs a suite of cases."""

from typing import Annotated, Unpack

import typer

from tileyard.show.typed import AsJson
from tileyard.verbs.test.options.test import TestOptions


def run_suite(
    suite: Annotated[
        str, typer.Argument(metavar="SUITE", help="suite.toml, a folder, or a file of kernels.")
    ] = "",
    *,
    list: Annotated[  # noqa: A002 - the name of the option
        bool,
        typer.Option("--list", "--dry-run", help="Print the ids of the cases that would run."),
    ] = False,
    json: AsJson = False,
    **options: Unpack[TestOptions],
) -> int:
    """Run a suite: every selected case is built, run and checked, and ends with one verdict.

    Exit status: 0 all well, 1 a case failed, 2 bad usage or nothing selected, 3 infrastructure only,
    130 interrupted.
    """
    from tileyard.verbs.test.command.session import list_all, run

    if list:
        return list_all(suite, options, as_json=json)
    return run(suite, options, as_json=json)
