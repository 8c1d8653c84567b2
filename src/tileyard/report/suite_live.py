"""The state of a suite's run at one moment, drawn for a terminal or said in a line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from tileyard.model import Outcome
from tileyard.report.suite_forecast import Running
from tileyard.report.suite_words import format_case
from tileyard.report.words import format_seconds, outcome_style
from tileyard.wording import count_of

TAIL_ROWS = 8
BAR_WIDTH = 24
MIN_NAME = 8
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


def draw(drawn: Drawn, width: int, height: int, *, is_ascii: bool = False) -> Text:
    """A view of that size, if that leaves room for more than its frame.

    One text of lines that are padded and cut here: tables would make it four times as expensive.
    """
    rows = max(1, min(TAIL_ROWS, height - OTHER_LINES))
    counts = _counts(drawn) or [Text("nothing has ended yet", style="dim")]
    lines = [drawn.title.copy(), _bar(drawn, is_ascii), Text("  ").join(counts)]
    lines.append(Text("  ").join(_slots(drawn)))
    lines += _tail(drawn.running[:rows], width)
    if (hidden := len(drawn.running) - rows) > 0:
        lines.append(Text(f"  and {hidden} more with less time left", style="dim"))
    for line in lines:
        line.truncate(width, overflow="crop" if is_ascii else "ellipsis")
    view = Text("\n").join(lines)
    view.no_wrap = True
    return view


def say_state(drawn: Drawn) -> Text:
    """The same in a line, with the case that has most time left."""
    parts = [
        Text(f"{format_seconds(drawn.elapsed_s)}: {drawn.ended}/{count_of(drawn.total, 'case')}")
    ]
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
    parts = [Text(f"{drawn.busy}/{count_of(drawn.slots, 'slot')} in use")]
    if drawn.building:
        parts.append(Text(f"{drawn.building} building"))
    if drawn.awaited:
        few = ", ".join(drawn.awaited[:3]) + (", ..." if len(drawn.awaited) > 3 else "")
        parts.append(Text(f"waiting for {few}", style="yellow"))
    return parts


def _bar(drawn: Drawn, is_ascii: bool) -> Text:
    """How many cases have ended, drawn and as figures."""
    done = BAR_WIDTH * min(drawn.ended, drawn.total) // max(drawn.total, 1)
    stroke = "=" if is_ascii else "\u2501"
    return Text.assemble(
        (stroke * done, "green"),
        ((" " if is_ascii else stroke) * (BAR_WIDTH - done), "bright_black"),
        f"  {drawn.ended}/{drawn.total}  ",
        (format_seconds(drawn.elapsed_s), "dim"),
        ("  " + _left(drawn.left_s), "bold"),
    )


def _tail(running: Sequence[Running], width: int) -> list[Text]:
    """A line for each case; what does not fit is taken from the names of cases."""
    rows = [
        (one.device, format_case(one.case, one.attempt), format_seconds(max(0.0, one.ran_s)), one)
        for one in running
    ]
    ends = [_when(one) for one in running]
    device = max((cell_len(row[0]) for row in rows), default=0)
    ran = max((len(row[2]) for row in rows), default=0)
    room = width - device - ran - max(map(len, ends), default=0) - 8
    name = max(MIN_NAME, min(room, max((cell_len(row[1]) for row in rows), default=0)))
    return [
        Text.assemble(
            ("  " + set_cell_size(where, device), "cyan"),
            "  " + _fit(case, name),
            f"  {ran_s:>{ran}}  ",
            (end, "yellow" if one.left_s is not None and one.left_s < 0 else ""),
        )
        for (where, case, ran_s, one), end in zip(rows, ends, strict=True)
    ]


def _fit(name: str, width: int) -> str:
    """A name padded, or cut from its beginning: its end tells it from its neighbours."""
    if cell_len(name) <= width:
        return set_cell_size(name, width)
    while cell_len(name) > width - 1:
        name = name[1:]
    return set_cell_size(f"\u2026{name}", width)


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
