"""``tileyard show``: shows one trial with its log, its Program and its generated code."""

from typing import Annotated

import typer

from tileyard.cli.typed import AsJson


def show(
    trial: Annotated[
        str, typer.Argument(metavar="TRIAL", help="The trial's id, or the beginning of it.")
    ],
    *,
    brief: Annotated[
        bool, typer.Option("--brief", help="Leave out the Program and the generated code.")
    ] = False,
    json: AsJson = False,
) -> int:
    """Show one trial: its record, its log, its Program and the generated code."""
    from tileyard.cli.opening import open_store, present
    from tileyard.report.trials import print_trial
    from tileyard.tuning.deciding import add_deciding, find_deciding

    with open_store() as (store, home):
        found = store.get_trial(trial)
        shown = add_deciding(found, find_deciding(store, [found]))
    present(shown, json, print_trial, home, source=not brief, deciding=shown.finals)
    return 0
