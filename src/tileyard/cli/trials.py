"""``tileyard trials``: list what was recorded."""

import os
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tileyard.errors import UsageError
from tileyard.model import Outcome, Trial
from tileyard.report.words import format_config, format_time, outcome_style
from tileyard.settings import read_settings


def trials(
    *,
    kernel: Annotated[str, typer.Option(help="Only trials of this kernel.")] = "",
    run: Annotated[str, typer.Option(help="Only trials of this run.")] = "",
    outcome: Annotated[str, typer.Option(help="Only trials that ended in this way.")] = "",
    limit: Annotated[int, typer.Option(min=1, help="How many, newest first.")] = 30,
    json: Annotated[bool, typer.Option("--json", help="Print them as JSON.")] = False,
) -> int:
    """List recorded trials, newest first."""
    from tileyard.store.trials import TrialQuery, TrialStore

    wanted = parse_outcome(outcome) if outcome else None
    home = read_settings(os.environ, Path.cwd()).home
    if not (home / "store.db").is_file():
        raise UsageError(f"nothing is recorded in {home} yet")
    query = TrialQuery(kernel=kernel, run=run, outcome=wanted, limit=limit)
    with TrialStore.open(home) as store:
        found = store.list_trials(query)
    if json:
        print(msgspec.json.format(msgspec.json.encode(found)).decode())
    else:
        Console().print(table_of(found))
    return 0


def parse_outcome(text: str) -> Outcome:
    """An outcome by its name."""
    try:
        return Outcome(text)
    except ValueError:
        known = ", ".join(Outcome)
        raise UsageError(f"there is no outcome {text!r}", f"there are: {known}") from None


def table_of(found: list[Trial]) -> Table:
    """One row a trial."""
    table = Table(header_style="bold", box=None)
    for column in ("trial", "kernel", "config", "target", "latency", "outcome", "message"):
        table.add_column(column, overflow="fold" if column == "trial" else "ellipsis")
    for trial in found:
        latency = format_time(trial.measurement.median_ns) if trial.measurement else ""
        table.add_row(
            trial.id,
            trial.kernel,
            format_config(trial.config),
            trial.target,
            latency,
            Text(str(trial.outcome), style=outcome_style(trial.outcome)),
            trial.message,
        )
    return table
