"""The state of a suite's run at one moment, drawn for a terminal or said in a line."""

from collections.abc import Mapping
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tileyard.model import Outcome
from tileyard.report.suite_forecast import Running
from tileyard.report.suite_words import format_case
from tileyard.report.words import format_seconds, outcome_style

TAIL_ROWS = 8
BAR_WIDTH = 24
OTHER_LINES = 6
"""What the view needs beside its tail, and a line for the prompt."""


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """All that is shown. ``running`` has the one with most time left first; ``again`` are retries to come.

    ``left_s`` is None where nobody knows.
    """

    title: Text
    elapsed_s: float
    total: int
    counts: Mapping[Outcome, int]
    flaky: int
    again: int
    slots: int
    busy: int
    building: int
    awaited: tuple[str, ...]
    left_s: float | None
    running: tuple[Running, ...]

    @property
    def ended(self) -> int:
        """How many cases have their outcome."""
        return sum(self.counts.values())


def draw(drawn: Drawn, height: int) -> RenderableType:
    """A view of at most ``height`` lines, if that leaves room for more than its frame."""
    rows = max(1, min(TAIL_ROWS, height - OTHER_LINES))
    head = Table.grid(padding=(0, 2))
    head.add_row(
        ProgressBar(total=max(drawn.total, 1), completed=drawn.ended, width=BAR_WIDTH),
        Text(f"{drawn.ended}/{drawn.total}"),
        Text(format_seconds(drawn.elapsed_s), style="dim"),
        Text(_left(drawn.left_s), style="bold"),
    )
    shown = drawn.running[:rows]
    parts: list[RenderableType] = [
        _one_line(drawn.title),
        head,
        _one_line(
            Text("  ").join(_counts(drawn))
            if drawn.counts
            else Text("nothing has ended yet", "dim")
        ),
        _one_line(Text("  ").join(_slots(drawn))),
    ]
    if shown:
        parts.append(_tail(shown))
    if hidden := len(drawn.running) - len(shown):
        parts.append(Text(f"  and {hidden} more with less time left", style="dim"))
    return Group(*parts)


def say_state(drawn: Drawn) -> Text:
    """The same in a line, with the case that has most time left."""
    parts = [Text(f"{format_seconds(drawn.elapsed_s)}: {drawn.ended}/{drawn.total} cases")]
    parts += _counts(drawn) + _slots(drawn)
    if drawn.left_s is not None:
        parts.append(Text(_left(drawn.left_s)))
    if drawn.running:
        last = drawn.running[0]
        parts.append(Text(f"longest: {format_case(last.case, last.attempt)}, {_when(last)}"))
    return Text("; ").join(parts)


def _counts(drawn: Drawn) -> list[Text]:
    parts = [
        Text(f"{drawn.counts[outcome]} {outcome}", style=outcome_style(outcome))
        for outcome in Outcome
        if drawn.counts.get(outcome)
    ]
    if drawn.flaky:
        parts.append(Text(f"{drawn.flaky} flaky", style="yellow"))
    if drawn.again:
        parts.append(Text(f"{drawn.again} to be tried again", style="yellow"))
    return parts


def _slots(drawn: Drawn) -> list[Text]:
    parts = [Text(f"{drawn.busy}/{drawn.slots} slots in use")]
    if drawn.building:
        parts.append(Text(f"{drawn.building} building"))
    if drawn.awaited:
        few = ", ".join(drawn.awaited[:3]) + (", ..." if len(drawn.awaited) > 3 else "")
        parts.append(Text(f"waiting for {few}", style="yellow"))
    return parts


def _tail(running: tuple[Running, ...]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(no_wrap=True, overflow="ellipsis")
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    for one in running:
        table.add_row(
            Text(f"  {one.device}"),
            Text(format_case(one.case, one.attempt)),
            format_seconds(max(0.0, one.ran_s)),
            Text(_when(one), style="yellow" if one.left_s is not None and one.left_s < 0 else ""),
        )
    return table


def _when(one: Running) -> str:
    """When a running case should end."""
    if one.left_s is not None and one.left_s >= 0:
        return _left(one.left_s)
    limit = f"limit in {format_seconds(one.limit_s)}" if one.limit_s > 0 else "at its limit"
    if one.left_s is None:
        return limit
    return f"{format_seconds(-one.left_s)} over, {limit}"


def _left(left_s: float | None) -> str:
    return "" if left_s is None else f"about {format_seconds(left_s)} left"


def _one_line(text: Text) -> Text:
    text = text.copy()
    text.no_wrap, text.overflow = True, "ellipsis"
    return text
