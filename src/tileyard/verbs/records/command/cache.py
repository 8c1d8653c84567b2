"""``tileyard cache``: the files that can be made again, and which of them are kept."""

import contextlib
import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tileyard.show.typed import AsJson

if TYPE_CHECKING:
    from rich.console import Console

    from tileyard.artifacts.collection import Collection

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def cache() -> None:
    """Look after artifacts, golden results and logs, all of which can be made again."""


@app.command()
def gc(
    *,
    max_size: Annotated[
        str, typer.Option(metavar="SIZE", help="Maximum size to keep, such as 10G.")
    ] = "",
    keep_days: Annotated[
        float | None, typer.Option(metavar="N", help="Remove what was not used for N days.", min=0)
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print what would be removed.")
    ] = False,
    json: AsJson = False,
) -> int:
    """Remove what was used least recently: artifacts, golden results, trees, answers, logs,
    checkouts and environments of versions that were compared, leftovers.

    Kept is what a running run has used since the day before it began, and what is in use
    while this command works. Verdicts, times and measurements are never removed. The raw
    event streams of runs are removed with --keep-days once everything in them is recorded, and the results
    from which `tileyard report` makes its pages.
    """
    from tileyard.artifacts.collection import Keep, collect, is_nowhere_else
    from tileyard.artifacts.objects import ObjectStore
    from tileyard.base.errors import HomeError, UsageError
    from tileyard.show.opening import load_settings, present
    from tileyard.show.values import parse_bytes
    from tileyard.store import events
    from tileyard.store.trials import has_store, open_store
    from tileyard.workers.run_records import sweep_runs

    if not max_size and keep_days is None:
        raise UsageError("missing: how much to keep", "--max-size 10G, --keep-days 14, or both")
    keep = Keep(max_bytes=parse_bytes(max_size, "--max-size") if max_size else None, days=keep_days)
    home = load_settings().home
    with contextlib.ExitStack() as stack:
        is_recorded: Callable[[Path], bool] = is_nowhere_else
        if keep_days is not None and has_store(home):
            with contextlib.suppress(HomeError):  # an unusable store proves nothing
                store = stack.enter_context(open_store(home))
                is_recorded = functools.partial(events.is_recorded, has_all=store.has_all)
        done = collect(home, keep, dry_run=dry_run, is_recorded=is_recorded)
    if not dry_run:
        sweep_runs(ObjectStore(home / "objects"))
    present(done, json, print_collection, home)
    return 0


def print_collection(console: "Console", done: "Collection", home: Path) -> None:
    """Print one line for each kind of removed thing, and one for the total."""
    from rich.text import Text

    from tileyard.show.words import clean_line, format_bytes

    for freed in done.freed:
        size = format_bytes(freed.size)
        console.print(Text(f"{size:>9}  {freed.count} {clean_line(freed.what)}"), soft_wrap=True)
    verb = "would free" if done.is_dry else "freed"
    line = (
        f"{verb} {format_bytes(done.freed_bytes)} in {home}, {format_bytes(done.kept_bytes)} stay"
    )
    console.print(Text(clean_line(line)), soft_wrap=True)
    if done.in_use_bytes:
        why = "a run that goes on may use it" if done.pinned_since else "it was used meanwhile"
        line = f"{format_bytes(done.in_use_bytes)} more should go and stay: {why}"
        console.print(Text(line, style="yellow"), soft_wrap=True)
