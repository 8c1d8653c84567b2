"""Describes the distribution of case durations."""

import datetime
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from tileyard.base.wording import count_of
from tileyard.show.console import new_table, print_table, say
from tileyard.show.words import clean_line, format_seconds, format_share
from tileyard.verbs.test.plan.durations import CaseHistory, History


def print_history(console: Console, history: History, *, tail: bool) -> None:
    """Print totals and quantiles; with ``tail`` also the longest cases and those that changed."""
    say(
        console,
        f"{count_of(history.cases, 'case')} in {count_of(history.runs, 'finished run')};"
        f" one run of each takes {format_seconds(history.total_s)} in all",
    )
    quantiles = [
        f"{format_share(one.share)} {format_seconds(one.seconds)}" for one in history.quantiles
    ]
    if quantiles:
        say(console, f"no longer than: {', '.join(quantiles)}")
    if not tail:
        return
    _print_longest(console, "longest testcases", history.longest_testcases)
    _print_longest(console, "longest cases", history.longest)
    since = datetime.datetime.fromtimestamp(history.since).astimezone().strftime("%Y-%m-%d %H:%M")
    if not history.moved:
        say(
            console,
            f"nothing moved since {since}, of {count_of(history.compared, 'case')} that can be compared",
        )
        return
    title = f"moved since {since}"
    table = new_table((title, "before", "after", "ratio", "runs"), left=(title,))
    for moved in history.moved:
        table.add_row(
            Text(clean_line(moved.case)),
            format_seconds(moved.before_s),
            format_seconds(moved.after_s),
            Text(f"{moved.ratio:.2f}", style="red" if moved.ratio > 1 else "green"),
            f"{moved.samples_before} / {moved.samples_after}",
        )
    print_table(console, table)


def _print_longest(console: Console, title: str, longest: Sequence[CaseHistory]) -> None:
    columns = (title, "median", "90 %", "share", "all up to here", "runs")
    table = new_table(columns, left=(title,))
    so_far = 0.0
    for one in longest:
        so_far += one.share
        table.add_row(
            Text(clean_line(one.case)),
            format_seconds(one.seconds),
            format_seconds(one.high_s),
            format_share(one.share, 1),
            format_share(so_far, 1),
            str(one.samples),
        )
    print_table(console, table)
