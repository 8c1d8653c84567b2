"""``tileyard plan``: predicts a suite's run without running anything."""

from pathlib import Path
from typing import Annotated, Unpack

import typer

from tileyard.cli.typed import AsJson
from tileyard.requests.plan import PlanOptions


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
    """Predict how long a suite runs on a number of slots, what limits it, and how long other splits would take.

    Times come from the store, or from a file of another tool with --durations; then no suite is needed.
    Nothing is built, and only commands that list cases are run.

    Exit status: 0, or 2 for bad usage and where no case is selected.
    """
    from tileyard.cli.opening import load_settings, present, read_run_times
    from tileyard.report.plan import print_prediction
    from tileyard.requests.predicting import predict_run

    found = predict_run(suite, options, load_settings(), read_run_times)
    present(found, json, print_prediction)
    return 0
