"""Two builds of the same kernels for people: what has changed, and how many have not."""

import statistics
from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tileyard.regress.static import BUILD, MIX, TELLING_ROUNDS, BuildTimes, Change, Comparison, Row
from tileyard.report.words import clean_line, format_seconds
from tileyard.wording import count_of

BYTES = frozenset({"spills", "stack", "shared", "code"})
MESSAGE = 160
"""So much is shown of why a kernel was not built."""


def print_comparison(console: Console, compared: Comparison) -> None:
    """The table of what differs, the kernels that a side does not have, build times, broken limits."""
    for name, label, compiler in (
        ("base", compared.base, compared.base_compiler),
        ("head", compared.head, compared.head_compiler),
    ):
        tools = f" ({compiler})" if compiler else ""
        console.print(Text(f"{name}: {label}{tools}"), soft_wrap=True, highlight=False)
    if compared.rows:
        console.print(_table(compared))
    for line in _summary(compared):
        console.print(Text(line), soft_wrap=True, highlight=False)
    for line in compared.regressions:
        console.print(Text(f"regression  {clean_line(line)}", style="red"), soft_wrap=True)


def _table(compared: Comparison) -> Table:
    table = Table(title=f"for {compared.target}", title_justify="left", header_style="bold")
    table.add_column("kernel", overflow="fold")
    for name in ("figure", "base", "head", "change"):
        table.add_column(name, justify="left" if name == "figure" else "right", no_wrap=True)
    for row in compared.rows:
        for number, cells in enumerate(_cells(row)):
            table.add_row(row.case if number == 0 else "", *cells)
    return table


def _cells(row: Row) -> Iterator[tuple[str, str, str, str]]:
    if not row.base == row.head == "built":
        yield ("binary", row.base, row.head, "")
    for change in row.changes:
        yield (*_describe(change), _ratio(change))


def describe_change(change: Change) -> str:
    """``registers 32 -> 40 (+25.0 %)``."""
    figure, base, head = _describe(change)
    ratio = _ratio(change)
    return f"{figure} {base} -> {head}" + (f" ({ratio})" if ratio else "")


def _describe(change: Change) -> tuple[str, str, str]:
    figure = change.metric.removeprefix(MIX) + (
        " instructions" if change.metric.startswith(MIX) else ""
    )
    figure += f" of {change.function}" if change.function else ""
    return figure, _format(change, change.base), _format(change, change.head)


def _format(change: Change, value: float | None) -> str:
    if value is None:
        return "depends"
    if change.metric == BUILD:
        return format_seconds(value)
    if change.metric == "occupancy":
        return f"{value:.0f} %"
    return f"{value:g} B" if change.metric in BYTES else f"{value:g}"


def _ratio(change: Change) -> str:
    if not change.base or change.head is None:
        return ""
    return f"{100 * (change.head / change.base - 1):+.1f} %"


def _summary(compared: Comparison) -> Iterator[str]:
    """Why kernels were not built, how many are equal, and how long all took."""
    for row in compared.rows:
        for side, message in (("base", row.base_message), ("head", row.head_message)):
            if message:
                yield f"{row.case}: {side}: {clean_line(message, MESSAGE)}"
    total = len(compared.rows) + compared.unchanged
    yield f"{count_of(total, 'kernel')}: {compared.unchanged} unchanged, {len(compared.rows)} listed"
    if compared.build is not None:
        yield _describe_times(compared.build)


def _describe_times(build: BuildTimes) -> str:
    base, head = (format_seconds(statistics.median(one)) for one in (build.base_s, build.head_s))
    text = f"build time of what both build: base {base}, head {head}"
    if build.is_first:
        return f"{text}, once and with headers to be read: --repeat {TELLING_ROUNDS} tells more"
    spread = f"{build.ratio:.2f} x, in rounds {build.low:.2f} to {build.high:.2f}"
    rounds = len(build.base_s)
    verdict = "no difference that can be told from noise"
    if rounds < TELLING_ROUNDS:
        verdict = "too few to tell a difference from noise"
    elif build.low > 1 or build.high < 1:
        verdict = "all of them agree"
    return f"{text}: {spread}; {count_of(rounds, 'round')}, {verdict}"
