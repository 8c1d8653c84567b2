"""``tileyard show``: one trial with its log, its Program and the code generated for it."""

from typing import Annotated

import typer


def show(
    trial: Annotated[str, typer.Argument(help="The trial's id, or the beginning of it.")],
    *,
    source: Annotated[bool, typer.Option(help="Print the Program and the generated code.")] = True,
    json: Annotated[bool, typer.Option("--json", help="Print the record as JSON.")] = False,
) -> int:
    """Show one trial: its record, its log, its Program and the generated code."""
    from tileyard.cli.opening import open_store, present
    from tileyard.report.trials import print_trial

    with open_store() as (store, home):
        found = store.get_trial(trial)
    present(found, json, print_trial, home, source=source)
    return 0
