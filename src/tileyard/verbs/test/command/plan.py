"""``tileyard plan``: predicts a suite's run without running anything."""

from pathlib import Path
from typing import Annotated, Unpack

import typer

from tileyard.show.typed import AsJson
from tileyard.verbs.test.options.test import PlanOptions


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
