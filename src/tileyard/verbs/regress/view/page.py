"""A comparison as a page: intervals against the margin, the worst first."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import get_args

import msgspec

from tileyard.base.wording import count_of
from tileyard.pages.charts import Axis, Chart, Group, Line, draw_axis, draw_band, draw_interval
from tileyard.pages.report import (
    Cell,
    Column,
    RunLog,
    Section,
    Subject,
    Table,
    Words,
    find_timeline,
    keep_first,
    make_table,
)
from tileyard.show.words import clean_line, format_quantity, format_seconds
from tileyard.verbs.regress.plan.causes import RowHistory, read_histories
from tileyard.verbs.regress.result import Regression, TimedRow, Verdict, format_change, format_ends
from tileyard.verbs.regress.view.history_page import (
    ShownHistory,
    describe_place,
    keep_last,
    show_history,
)
from tileyard.verbs.regress.view.regress import (
    describe_change,
    describe_gate,
    describe_more,
    find_headline,
    find_reach,
    list_lines,
    needs_look,
)

MOST_ROWS = 60
"""Maximum number of rows with an interval; the table has all."""
MOST_HISTORIES = 10
MOST_POINTS = 200
"""Maximum number of runs in the chart of a history, so that a page stays small."""
MESSAGE = 160
KINDS: dict[Verdict, str] = {
    "failed": "bad",
    "missing": "bad",
    "regressed": "bad",
    "improved": "good",
    "inconclusive": "worse",
    "not_run": "worse",
}
"""The look of rows; others have the usual one."""
INTERVALS = (
    "Intervals are at 95 %: of the changes that comparisons report, at most 5 % are outside theirs."
)
ALL_ROWS = Words(
    see="Click a column's head to sort. The filter finds rows with all of its words. Low and high are the "
    "ends of the interval at 95 %.",
    example="gemm regressed",
)


def describe_regression(result: Regression, log: RunLog) -> list[Subject]:
    """A comparison of two sides."""
    gate = describe_gate(result)
    return [
        Subject(
            title=f"{result.head} against {result.base}",
            kind=f"Comparison{f', run {result.run}' if result.run else ''}",
            answer=f"{find_headline(result)}. {gate[0].upper()}{gate[1:]}.",
            facts=(*log.facts, *_list_facts(result)),
            sections=tuple(_list_sections(result, log)),
        )
    ]


def _list_facts(result: Regression) -> Iterator[tuple[str, str]]:
    yield "base", result.base
    yield "head", result.head
    yield "target", result.target
    yield "machine", result.silicon
    yield "device", result.device
    yield "margin", f"{100 * result.margin:g} %" if result.of == "time" else ""
    yield "fails beyond", f"{100 * result.fail_over:g} %" if result.fail_over else ""
    yield "time", format_seconds(result.seconds) if result.seconds else ""


def _list_sections(result: Regression, log: RunLog) -> Iterator[Section]:
    if timed := [row for row in result.rows if row.ratio is not None]:
        chart = _draw_rows(result, timed)
        yield Section(name="intervals", title=chart.title, template="rows.html", shown=chart)
    if others := [row for row in result.rows if row.ratio is None and row.verdict != "unchanged"]:
        chart = _draw_others(result, others)
        yield Section(name="others", title=chart.title, template="rows.html", shown=chart)
    looked = [row for row in timed if needs_look(row)][:MOST_HISTORIES]
    histories = islice(read_histories(log.home, result, looked), MOST_HISTORIES)
    if shown := [_show_history(one) for one in histories]:
        yield Section(name="histories", title="Histories", template="histories.html", shown=shown)
    yield from find_timeline(log, result.seconds)
    yield Section(
        name="rows",
        title="All rows",
        template="table.html",
        shown=ALL_ROWS,
        data=_list_rows(result),
    )
    lines = [clean_line(line) for line in list_lines(result)]
    yield Section(name="lines", title="In the run's own words", template="lines.html", shown=lines)


def _draw_rows(result: Regression, timed: Sequence[TimedRow]) -> Chart:
    """Changes of head against base in percent, the worst first."""
    rows = sorted(timed, key=lambda row: -row.worse)[:MOST_ROWS]
    reach = 100 * find_reach(result)
    axis = Axis(low=-reach, high=reach)
    counts = Counter(row.verdict for row in timed)
    told = ", ".join(f"{counts[one]} {one}" for one in get_args(Verdict) if counts[one])
    more = f" These are the worst {len(rows)} of {len(timed)}." if len(rows) < len(timed) else ""
    return Chart(
        title="Changes, the worst first",
        see=f"{told}. The grey band is the margin: what is within it is equal, what is beyond it is worse "
        f"(red) or better (green). {INTERVALS}{more}",
        label="change of head against base, %",
        axis=draw_axis(axis),
        columns=("verdict", result.compared),
        after=("change", "interval", "base", "head"),
        groups=(Group(rows=tuple(_draw_row(row, result, axis) for row in rows)),),
    )


def _draw_row(row: TimedRow, result: Regression, axis: Axis) -> Line:
    margin = 100 * (row.margin or result.margin)
    ratio = row.ratio
    middle = 0.0 if ratio is None else 100 * (ratio.ratio - 1)
    low = -math.inf if ratio is None or ratio.low is None else 100 * (ratio.low - 1)
    high = math.inf if ratio is None or ratio.high is None else 100 * (ratio.high - 1)
    kind = KINDS.get(row.verdict, "")
    base, head = (format_quantity(one, row.unit) for one in (row.base, row.head))
    return Line(
        before=(row.verdict, clean_line(row.case)),
        drawing=draw_interval(axis, (low, high), middle, kind, draw_band(axis, -margin, margin)),
        after=(
            "" if ratio is None else f"{format_change(ratio.ratio)} %",
            "" if ratio is None else format_ends(ratio),
            base,
            head,
        ),
        kind=kind,
    )


def _draw_others(result: Regression, others: Sequence[TimedRow]) -> Chart:
    """Rows that no time decides, with the reason."""
    return Chart(
        title="Not timed",
        see=f"{count_of(len(others), result.compared)} without a time on both sides.",
        label="",
        columns=("verdict", result.compared, "why"),
        groups=(
            Group(
                rows=tuple(
                    Line(
                        before=(
                            row.verdict,
                            clean_line(row.case),
                            clean_line("; ".join(_say_all(row, result)), MESSAGE),
                        ),
                    )
                    for row in others[:MOST_ROWS]
                )
            ),
        ),
    )


def _say_all(row: TimedRow, result: Regression) -> Iterator[str]:
    if row.verdict == "unchanged":
        yield "the same figures" if result.of == "figures" else "the same binary: not timed"
    yield from describe_more(row)
    yield from map(describe_change, row.changes)


def _show_history(found: RowHistory) -> tuple[str, ShownHistory]:
    """The title of a history, and what is shown of it."""
    series = found.series
    title = clean_line(f"{series.case}, {describe_place(series)}")
    shown = show_history(keep_last(series, MOST_POINTS), found.spans)
    told = count_of(len(series.points), "run")
    if len(series.points) > MOST_POINTS:
        told = f"The last {MOST_POINTS} of {told}"
    if not shown.changes:
        told += f" without a certain change of more than {100 * found.margin:g} %"
    return title, msgspec.structs.replace(shown, see=f"{told}. {shown.see}")


def _list_rows(result: Regression) -> Table:
    columns = (
        Column(name="worst", kind="number"),
        Column(name="verdict", kind="shared"),
        Column(name=result.compared),
        Column(name="change", kind="percent"),
        Column(name="low", kind="percent"),
        Column(name="high", kind="percent"),
        Column(name="base"),
        Column(name="head"),
        Column(name="remarks", kind="shared", is_long=True),
    )
    rows = [
        (
            number,
            row.verdict,
            clean_line(row.case),
            *_list_changes(row),
            *(format_quantity(one, row.unit) if row.ratio else "" for one in (row.base, row.head)),
            clean_line("; ".join(_say_all(row, result)), MESSAGE),
        )
        for number, row in enumerate(result.rows, start=1)
    ]
    kept = keep_first(rows, result.run, lambda row: float(row[0] or 0))
    return make_table(columns, kept, choice="verdict", by="worst")


def _list_changes(row: TimedRow) -> tuple[Cell, Cell, Cell]:
    if row.ratio is None:
        return None, None, None
    low, high = (None if one is None else one - 1 for one in (row.ratio.low, row.ratio.high))
    return row.ratio.ratio - 1, low, high
