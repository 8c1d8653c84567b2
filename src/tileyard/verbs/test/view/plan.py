"""Describes a prediction: the bound of the run, the predicted time, and that of the usual alternatives; and
the recorded durations of cases.
"""

import datetime
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tileyard.base.wording import count_of
from tileyard.show.console import new_table, print_table, say
from tileyard.show.words import clean_line, format_seconds, format_share
from tileyard.verbs.test.plan.budget import IN_SHARD
from tileyard.verbs.test.plan.durations import CaseHistory, History
from tileyard.verbs.test.plan.plan import Prediction, WhatIf
from tileyard.verbs.test.result.result import LeftOut
from tileyard.verbs.test.view.words import describe_guess, group_by_kind

LEAST_S = 1.0
"""A prediction is compared with no lower bound below this."""
LISTED = 20
"""Maximum number of reasons in the list of left-out cases."""
FEW = 5
"""Names of cases of a kind."""


def print_prediction(console: Console, prediction: Prediction) -> None:
    """Print the whole prediction; every figure is in ``--json`` too."""
    plan = prediction.plan
    say(
        console,
        f"{count_of(prediction.cases, 'case')} of {count_of(prediction.testcases, 'testcase')},"
        f" {format_seconds(plan.total_s)} of work on {count_of(plan.slots, 'slot')}"
        f" (expected times: {_sources(prediction)})",
    )
    _say_shards(console, prediction)
    print_table(console, _table(prediction))
    say(
        console,
        f"lower bound of any split, max(longest case, total/slots): "
        f"{format_seconds(prediction.floor_s)}",
    )
    guess = f" ({describe_guess(plan)})" if plan.guessed else ""
    say(
        console,
        f"lower bound of these pieces, max(longest piece, total/slots):"
        f" {format_seconds(plan.bound_s)}; predicted {format_seconds(plan.predicted_s)}{guess}"
        + (f", {_more(plan.predicted_s, plan.bound_s)}" if plan.bound_s >= LEAST_S else ""),
    )
    say(console, f"why: {plan.reason}")
    _say_left_out(console, prediction.left_out)
    for note in prediction.notes:
        say(console, clean_line(note))
    for part in prediction.then:
        say(console, "")
        print_prediction(console, part)
    if prediction.then:
        parts = 1 + len(prediction.then)
        say(
            console,
            f"programs and kernels, {parts} parts one after another:"
            f" {format_seconds(prediction.predicted_s)}",
        )


def _table(prediction: Prediction) -> Table:
    plan = prediction.plan
    split = f"split at {format_seconds(plan.split_s)}" if plan.split_s else "testcases whole"
    table = new_table(("way", "pieces", "wall time", "x floor"), left=("way",))
    own = WhatIf(
        name=f"this plan: {split}, longest first",
        pieces=len(plan.pieces),
        predicted_s=plan.predicted_s,
    )
    for way in (own, *prediction.instead):
        table.add_row(
            Text(way.name),
            str(way.pieces),
            format_seconds(way.predicted_s),
            f"{way.predicted_s / prediction.floor_s:.3f}" if prediction.floor_s >= LEAST_S else "",
            style="bold" if way is own else "",
        )
    return table


def _say_shards(console: Console, prediction: Prediction) -> None:
    shard, shards_s = prediction.shard, prediction.shards_s
    if shard is None:
        return
    mean_s = sum(shards_s) / len(shards_s)
    say(
        console,
        f"shard {shard.number}/{shard.count}: {format_seconds(shards_s[shard.number - 1])} of"
        f" {format_seconds(sum(shards_s))}; the longest shard has {_more(max(shards_s), mean_s)}"
        " than the mean",
    )


def _say_left_out(console: Console, left_out: tuple[LeftOut, ...]) -> None:
    """Print the cases left out, a line per kind of reason; all are counted, other shards' not listed."""
    if left_out:
        say(console, f"left out: {count_of(len(left_out), 'case')}")
    told = [left for left in left_out if not left.reason.startswith(IN_SHARD)]
    groups = group_by_kind((left.case, left.reason) for left in told)
    for reason, cases in groups[:LISTED]:
        few = ", ".join(map(clean_line, cases[:FEW])) + (", ..." if len(cases) > FEW else "")
        console.print(Text(f"  {len(cases)}  {clean_line(reason)}: {few}"), soft_wrap=True)
    if any(len(cases) > FEW for _, cases in groups) or len(groups) > LISTED:
        say(console, "--json lists all")


def _sources(prediction: Prediction) -> str:
    words = {
        "history": f"from {clean_line(prediction.file or 'earlier runs')}",
        "family": "estimated from their family",
        "default": "of which nothing is known",
    }
    return ", ".join(
        f"{prediction.sources[source]} {text}"
        for source, text in words.items()
        if source in prediction.sources
    )


def _more(value: float, base: float) -> str:
    share = value / base - 1 if base else 0.0
    return f"{format_share(share, 1)} more" if share >= 0.0005 else "no more"


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
