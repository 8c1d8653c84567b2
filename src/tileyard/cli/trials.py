"""``tileyard trials``: list what was recorded."""

from typing import Annotated

import typer


def trials(
    *,
    kernel: Annotated[
        str, typer.Option(help="Only trials of this kernel, or program's testcase.")
    ] = "",
    run: Annotated[str, typer.Option(help="Only trials of this run.")] = "",
    outcome: Annotated[str, typer.Option(help="Only trials that ended in this way.")] = "",
    limit: Annotated[int, typer.Option(min=1, help="How many, newest first.")] = 30,
    json: Annotated[bool, typer.Option("--json", help="Print them as JSON.")] = False,
) -> int:
    """List recorded trials, newest first."""
    from tileyard.cli.opening import open_store, parse_outcome, present
    from tileyard.report.trials import print_trials
    from tileyard.store.trials import TrialQuery

    wanted = parse_outcome(outcome) if outcome else None
    query = TrialQuery(kernel=kernel, run=run, outcome=wanted, limit=limit)
    with open_store() as (store, _):
        found = store.list_trials(query)
    present(found, json, print_trials)
    return 0
