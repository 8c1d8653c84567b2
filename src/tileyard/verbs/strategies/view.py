"""Shows strategies: a list, and a table of how they did on recorded spaces."""

from collections.abc import Sequence

from rich.console import Console

from tileyard.base.wording import count_of
from tileyard.show.console import new_table, print_table, say
from tileyard.verbs.strategies.plan import Comparison, Known
from tileyard.verbs.tune.result import Replay
from tileyard.verbs.tune.view.replay import format_bounds, format_regret, format_score, print_ends


def print_strategies(console: Console, found: Sequence[Known]) -> None:
    """Print a line for each strategy."""
    width = max(len(one.name) for one in found)
    for one in found:
        mark = " (default)" if one.is_default else ""
        say(console, f"{one.name:<{width}}  {one.description}{mark}")


def print_comparison(console: Console, found: Comparison) -> None:
    """Print a table for each space, and one over all."""
    files = dict.fromkeys(one.file for one in found.replays)
    for file in files:
        rows = [one for one in found.replays if one.file == file]
        say(
            console,
            f"{rows[0].space}, {count_of(rows[0].configs, 'config')} ({file})",
            style="bold",
        )
        _print_space(console, rows)
    console.print()
    table = new_table(("strategy", "mean score", "wins"), left=("strategy",))
    for one in found.standings:
        score = "" if one.score is None else f"{one.score:.3f}"
        table.add_row(one.strategy, score, f"{one.wins} of {one.spaces}")
    print_table(console, table)
    ends = {
        one.strategy: [
            end for it in found.replays if it.strategy == one.strategy for end in it.ends
        ]
        for one in found.standings
    }
    if any(ends.values()):
        print_ends(console, ends)
    repeated = count_of(found.replays[0].repetitions, "repetition")
    for line in (
        f"medians of {repeated}, with intervals of 95 %",
        "regret: how much slower the best config so far is than the best of the space",
        "score: 0 is random search, 1 is the best config at once",
    ):
        say(console, line, style="dim")


def _print_space(console: Console, rows: Sequence[Replay]) -> None:
    counts = sorted({it.trials for one in rows for it in one.regrets})
    heads = [f"regret at {trials}" for trials in counts]
    table = new_table(("strategy", "score", *heads), left=("strategy",))
    for one in rows:
        regrets = {it.trials: f"{format_regret(it)} {format_bounds(it)}" for it in one.regrets}
        cells = (regrets.get(trials, "") for trials in counts)
        table.add_row(one.strategy, format_score(one.score), *cells)
    print_table(console, table)
    for reason in dict.fromkeys(one.unscored for one in rows if one.unscored):
        names = ", ".join(one.strategy for one in rows if one.unscored == reason)
        say(console, f"no score of {names}: {reason}", style="yellow")
    if rows[0].note:
        say(console, rows[0].note, style="yellow")
