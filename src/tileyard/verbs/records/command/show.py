"""``tileyard show``: shows one trial with its log, its Program and its generated code."""

from typing import Annotated

import typer

from tileyard.show.typed import AsJson


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
    from tileyard.show.opening import open_store, present
    from tileyard.verbs.tune.plan.deciding import add_deciding, find_deciding
    from tileyard.verbs.tune.view.trials import print_trial

    with open_store() as (store, home):
        found = store.get_trial(trial)
        shown = add_deciding(found, find_deciding(store, [found]))
    present(shown, json, print_trial, home, source=not brief, deciding=shown.finals)
    return 0
