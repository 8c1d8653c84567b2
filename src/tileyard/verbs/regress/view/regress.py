"""Describes the times of two versions, as text and Markdown: the worst first, with intervals."""

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, get_args

from rich.console import Console
from rich.text import Text

from tileyard.base.wording import count_of, describe_unrecorded
from tileyard.show.words import clean_line, format_quantity, format_seconds, leave_out_numbers
from tileyard.verbs.regress.result import (
    BUILD,
    MIX,
    TELLING_ROUNDS,
    BuildTimes,
    Change,
    Regression,
    TimedRow,
    Verdict,
    describe_gating,
    format_change,
    format_ends,
    format_ratio,
)
from tileyard.verbs.test.view.markdown import code, text
from tileyard.verbs.test.view.words import group_by

STYLES: Final = {
    "failed": "red",
    "missing": "red",
    "regressed": "red",
    "not_run": "magenta",
    "inconclusive": "yellow",
    "changed": "yellow",
    "improved": "green",
    "equivalent": "green",
}
QUIET: Final = frozenset({"equivalent", "unchanged"})
"""Rows that are counted, and not listed."""
BYTES: Final = frozenset({"spills", "stack", "shared", "code"})
MESSAGE: Final = 160
NAMED: Final = 20
"""Number of rows that are named on the line which they share."""
WIDTH: Final = 21
"""Characters of a drawing, an odd number: the middle is no change."""
ROWS: Final = 200
CHANGED: Final = frozenset({"regressed", "improved"})
FOLDED: Final = frozenset({"equivalent", "unchanged", "inconclusive"})


def print_regression(console: Console, result: Regression) -> None:
    """Print the rows that need a look, the others in numbers, and the quality of the figures."""
    for line in (f"base: {result.base}", f"head: {result.head}", *_describe_place(result)):
        console.print(Text(line), soft_wrap=True, highlight=False)
    shown = filter(needs_look, result.rows)
    for row, *alike in group_by(shown, _kind_of):
        console.print(_line(row, result, alike), soft_wrap=True, highlight=False)
        messages = (clean_line(message, MESSAGE) for message in describe_more(row))
        for line in (*_list_changes(row), *messages):
            console.print(Text(f"    {line}"), soft_wrap=True, highlight=False)
    for line in list_lines(result):
        console.print(Text(line), soft_wrap=True, highlight=False)


def needs_look(row: TimedRow) -> bool:
    """Whether a row is shown, and not only counted."""
    return row.verdict not in QUIET or bool(row.gates or row.allowed)


def _kind_of(row: TimedRow) -> tuple[str, str]:
    """What rows share that are shown as one: only messages are known, which differ in numbers at most."""
    is_own = row.ratio is not None or row.changes or row.broken
    return row.verdict, row.case if is_own else leave_out_numbers("\n".join(describe_more(row)))


def describe_more(row: TimedRow) -> Iterator[str]:
    """Facts of a row besides its figures, one per line."""
    if row.margin is not None:
        yield f"margin {100 * row.margin:g} %"
    if row.message:
        yield row.message
    for side, message in (("base", row.base_message), ("head", row.head_message)):
        if message:
            yield f"{side}: {message}"
    yield from (f"beyond its limit: {line}" for line in row.broken)
    for allowed in row.allowed:
        yield f"allowed until {allowed.until} ({allowed.owner}: {allowed.reason})"


def describe_gate(result: Regression) -> str:
    """What fails the comparison, and from which limit on."""
    over = f"; slower kernels only beyond {100 * result.fail_over:g} %" if result.fail_over else ""
    told = ", ".join(filter(None, (describe_gating(result.rows), *result.broken)))
    return (f"fails the comparison: {told}" if told else "nothing fails the comparison") + over


def find_headline(result: Regression) -> str:
    """The most important result, in one line."""
    worse = sum(row.verdict == "regressed" for row in result.rows)
    if worse:
        suffix = "" if any("regressed" in row.gates for row in result.rows) else ", allowed"
        how = "slower" if all(row.unit.endswith("ns") for row in result.rows) else "worse"
        return f"{count_of(worse, result.compared)} {how} by more than {100 * result.margin:g} %{suffix}"
    if result.exit_status == 1:
        told = [describe_gating(result.rows), "build times over their limit" * bool(result.broken)]
        return f"Failed: {', '.join(filter(None, told))}"
    if result.exit_status or result.reason != "done":
        return "The comparison is not complete"
    if result.of == "figures":
        changed = sum(row.verdict == "changed" for row in result.rows)
        return f"The figures of {count_of(changed, 'kernel')} have changed"
    return f"No {result.compared} is known to be slower by more than {100 * result.margin:g} %"


def _describe_place(result: Regression) -> Iterator[str]:
    if result.of == "figures":
        yield f"for {result.target}"
        return
    where = f"{result.target} on {result.device}, " if result.run else ""
    yield f"{where}margin {100 * result.margin:g} %"


def _line(row: TimedRow, result: Regression, alike: Sequence[TimedRow]) -> Text:
    """Columns of equal width, then the kernel's name of any length, or those of ``alike`` rows."""
    names = [clean_line(one.case) for one in (row, *alike)]
    name = names[0]
    if alike:
        few = ", ".join(names[:NAMED]) + (", ..." if len(names) > NAMED else "")
        name = f"{count_of(len(names), result.compared)}: {few}"
    change = interval = base = head = ""
    if (ratio := row.ratio) is not None:
        change = f"{format_change(ratio.ratio)} %"
        base, head = (format_quantity(one, row.unit) for one in (row.base, row.head))
        interval = format_ends(ratio)
    return Text.assemble(
        (f"{row.verdict:<13}", STYLES.get(row.verdict, "")),
        f"{change:>9}  {interval:>18}  {base:>9} -> {head:<9}"
        if change
        else " " * 52 * (result.of == "time"),
        f"  {name}",
    )


def list_lines(result: Regression) -> Iterator[str]:
    """The lines below the rows of a comparison."""
    counts = Counter(row.verdict for row in result.rows)
    told = ", ".join(f"{counts[one]} {one}" for one in get_args(Verdict) if counts[one])
    yield f"{count_of(len(result.rows), result.compared)}: {told}"
    yield describe_gate(result)
    yield from describe_builds(result)
    timed = [row for row in result.rows if row.ratio is not None]
    if timed:
        yield from _describe_worth(result, timed)
    if disturbed := sum(row.disturbed for row in result.rows):
        yield f"measured again because of other work on the machine: {count_of(disturbed, 'time')}"
    yield from result.notes
    if result.run:
        yield (
            f"{format_seconds(result.seconds)}, of which {format_seconds(result.timed_s)} on "
            f"{result.device}"
        )
    if result.unrecorded:
        yield describe_unrecorded(result.unrecorded)


def _describe_worth(result: Regression, timed: list[TimedRow]) -> Iterator[str]:
    """The quality of the figures: mean, control, and the smallest visible change."""
    if result.mean is not None and result.mean.rows > 1:
        change = f"{format_change(result.mean.ratio)} %"
        yield f"geometric mean of the {result.mean.rows} rows that were timed: {change}"
    if result.run:
        alarms = result.false_alarms
        yield _describe_alarms(result, timed) + (f": {', '.join(alarms)}" if alarms else "")
    yield from describe_controls(result)
    smallest = [f"{100 * row.smallest:.1f}" for row in timed if row.smallest is not None]
    if smallest:
        ends = dict.fromkeys((min(smallest, key=float), max(smallest, key=float)))
        yield (
            f"smallest change that could have been seen: {' to '.join(ends)} %; a smaller one beyond the "
            "margin may have been missed"
        )


def _describe_alarms(result: Regression, timed: Sequence[TimedRow]) -> str:
    """The control of all rows."""
    alarms = len(result.false_alarms)
    found = count_of(alarms, "false alarm") if alarms else "no false alarm"
    return f"base against itself, as a control: {found} in {count_of(len(timed), result.compared)}"


def describe_controls(result: Regression) -> Iterator[str]:
    """``base against itself on cuda:1: +0.02 % (-0.10 .. +0.14)``, for several devices or an alarm."""
    for control in result.controls:
        if control.is_alarm or len(result.controls) > 1:
            alarm = ", a false alarm" if control.is_alarm else ""
            yield f"base against itself on {control.device}: {format_ratio(control.ratio)}{alarm}"


# ---- figures of binaries -------------------------------------------------------------------------


def describe_change(change: Change) -> str:
    """``registers 32 -> 40 (+25.0 %)``."""
    figure, base, head = _describe(change)
    ratio = _ratio(change)
    return f"{figure} {base} -> {head}" + (f" ({ratio})" if ratio else "")


def _list_changes(row: TimedRow) -> Iterator[str]:
    described = [(*_describe(change), _ratio(change)) for change in row.changes]
    cells = [tuple(map(clean_line, one)) for one in described]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for figure, base, head, ratio in cells:
        yield f"{figure:<{widths[0]}}  {base:>{widths[1]}} -> {head:<{widths[2]}}  {ratio:>9}".rstrip()


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


def describe_builds(result: Regression) -> Iterator[str]:
    """The total time of all builds, one line if it was compared."""
    if result.build is not None:
        yield _describe_times(result.build)


def _describe_times(build: BuildTimes) -> str:
    base, head = (format_seconds(statistics.median(one)) for one in (build.base_s, build.head_s))
    text = f"build time of what both build: base {base}, head {head}"
    if build.is_first:
        return (
            f"{text}; single builds, the first with a cold header cache: --rebuilds "
            f"{TELLING_ROUNDS} tells more"
        )
    spread = f"{build.ratio:.2f} x, in rounds {build.low:.2f} to {build.high:.2f}"
    rounds = len(build.base_s)
    verdict = "no difference that can be told from noise"
    if rounds < TELLING_ROUNDS:
        verdict = "too few to tell a difference from noise"
    elif build.low > 1 or build.high < 1:
        verdict = "all of them agree"
    return f"{text}: {spread}; {count_of(rounds, 'round')}, {verdict}"


def render_comment(result: Regression) -> str:
    """The whole comment."""
    return "".join(_blocks(result))


def _blocks(result: Regression) -> Iterator[str]:
    counts = Counter(row.verdict for row in result.rows)
    told = ", ".join(f"{counts[one]} {one}" for one in get_args(Verdict) if counts[one])
    yield (
        f"## {find_headline(result)}\n\n{count_of(len(result.rows), result.compared)}: {told}\n\n"
        f"{describe_gate(result)}\n\n"
    )
    folded = [row for row in result.rows if row.verdict in FOLDED and not row.gates]
    shown = [row for row in result.rows if row.verdict not in FOLDED or row.gates]
    if shown:
        yield from _table(result, shown)
    for row in shown[:ROWS]:
        changes = ", ".join(map(describe_change, row.changes))
        for message in filter(None, (changes, *describe_more(row))):
            yield f"\n{code(row.case)}: {text(message)}\n"
    if folded:
        yield f"\n<details><summary>{count_of(len(folded), 'other row')}</summary>\n\n"
        yield from _table(result, folded)
        yield "\n</details>\n"
    yield from _foot(result)


def _table(result: Regression, rows: list[TimedRow]) -> Iterator[str]:
    if result.of == "figures":
        yield f"| verdict | {result.compared} |\n| --- | --- |\n"
        yield from (f"| {row.verdict} | {code(row.case)} |\n" for row in rows[:ROWS])
    else:
        yield from _draw_rows(result, rows[:ROWS])
    if len(rows) > ROWS:
        yield f"\nand {len(rows) - ROWS} more\n"


def _draw_rows(result: Regression, rows: list[TimedRow]) -> Iterator[str]:
    reach = find_reach(result)
    yield (
        f"| verdict | {result.compared} | change | {-100 * reach:.0f} .. {100 * reach:+.0f} % | "
        f"base | head |\n"
    )
    yield "| --- | --- | ---: | --- | ---: | ---: |\n"
    for row in rows:
        change = f"{format_change(row.ratio.ratio)} %" if row.ratio else ""
        shown = [text(format_quantity(one, row.unit)) for one in (row.base, row.head)]
        times = shown if row.ratio else ("", "")
        margin = row.margin or result.margin
        drawn = code(draw_interval(row, margin, reach)) if row.ratio else ""
        yield f"| {row.verdict} | {code(row.case)} | {change} | {drawn} | {' | '.join(times)} |\n"


def find_reach(result: Regression) -> float:
    """The values at the ends of a drawing: five margins, or more if a changed row lies beyond."""
    changed = [row.ratio.ratio for row in result.rows if row.ratio and row.verdict in CHANGED]
    return max([5 * result.margin, *(1.1 * abs(ratio - 1) for ratio in changed)])


def draw_interval(row: TimedRow, margin: float, reach: float) -> str:
    """A line from -reach to +reach: the margin as bars, the interval as a line, its middle as a dot."""
    letters = ["·"] * WIDTH
    for share in (-margin, margin):
        letters[_place(share, reach)] = "¦"
    ratio = row.ratio
    if ratio is not None:
        low = -math.inf if ratio.low is None else ratio.low - 1
        high = math.inf if ratio.high is None else ratio.high - 1
        for place in range(_place(low, reach), _place(high, reach) + 1):
            letters[place] = "─"
        letters[_place(ratio.ratio - 1, reach)] = "●"
    return "".join(letters)


def _place(share: float, reach: float) -> int:
    bounded = min(max(share / reach, -1.0), 1.0)
    return round((bounded + 1) / 2 * (WIDTH - 1))


def _foot(result: Regression) -> Iterator[str]:
    yield f"\nbase {code(result.base)}, head {code(result.head)}, target {code(result.target)}"
    told = (*describe_builds(result), *describe_controls(result), *result.notes)
    notes = "".join(f"\n\n{text(note)}" for note in told) + "\n"
    if not result.run:
        yield notes
        return
    timed = [row for row in result.rows if row.ratio is not None]
    yield f" on {text(result.silicon)}; run {code(result.run)}, {format_seconds(result.seconds)}, "
    yield f"of which {format_seconds(result.timed_s)} on {code(result.device)}; "
    yield f"{_describe_alarms(result, timed)}{notes}"
