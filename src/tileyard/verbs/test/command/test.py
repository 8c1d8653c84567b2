"""``tileyard test`` runs a suite of cases; ``tileyard plan`` predicts its run without running anything."""

from pathlib import Path
from typing import Annotated, Unpack

import typer

from tileyard.show.typed import AsJson
from tileyard.verbs.test.options import PlanOptions, TestOptions


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


def plan(
    suite: Annotated[
        Path | None,
        typer.Argument(
            metavar="SUITE", help="suite.toml or a folder; not needed with --durations."
        ),
    ] = None,
    *,
    json: AsJson = False,
    **options: Unpack[PlanOptions],
) -> int:
    """Predict how long a suite runs on a number of slots, what limits it, and how long other splits would
    take.

    Times come from the store, or from a file of another tool with --durations; then no suite is needed.
    Nothing is built, and only commands that list cases are run.

    Exit status: 0, or 2 for bad usage and where no case is selected.
    """
    from tileyard.show.opening import load_settings, present, read_run_times
    from tileyard.verbs.test.command.predicting import predict_run
    from tileyard.verbs.test.view.plan import print_prediction

    found = predict_run(suite, options, load_settings(), read_run_times)
    present(found, json, print_prediction)
    return 0
