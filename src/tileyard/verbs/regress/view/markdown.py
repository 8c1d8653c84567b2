"""The times of two versions as a pull request's comment: the worst first, equal rows folded."""

import math
from collections import Counter
from collections.abc import Iterator
from typing import Final, get_args

from tileyard.base.wording import count_of
from tileyard.show.words import format_quantity, format_seconds
from tileyard.verbs.regress.result.timed import Regression, TimedRow, Verdict, format_change
from tileyard.verbs.regress.view.regress import (
    describe_builds,
    describe_change,
    describe_controls,
    describe_gate,
    describe_more,
    find_headline,
)
from tileyard.verbs.test.view.markdown import code, text

WIDTH: Final = 21
"""Characters of a drawing, an odd number: the middle is no change."""
ROWS: Final = 200
CHANGED: Final = frozenset({"regressed", "improved"})
FOLDED: Final = frozenset({"equivalent", "unchanged", "inconclusive"})


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
    reach = _find_reach(result)
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


def _find_reach(result: Regression) -> float:
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
    yield f"of which {format_seconds(result.timed_s)} on {code(result.device)}; base against itself: "
    yield f"{count_of(len(result.false_alarms), 'false alarm')} in {count_of(len(timed), 'row')}{notes}"
