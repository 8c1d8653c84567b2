"""The pages of a site: one that names what changed and compares all cases, and one per case."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from markupsafe import Markup

from tileyard.base.model import Record
from tileyard.base.wording import count_of
from tileyard.pages.history import draw_sparkline
from tileyard.pages.page import render
from tileyard.show.words import format_rate, format_share, format_time
from tileyard.verbs.regress.plan.history import Point, Series, find_commit
from tileyard.verbs.regress.result import format_change
from tileyard.verbs.regress.view.case_history import SHORT
from tileyard.verbs.regress.view.history_page import STYLE as HISTORY_STYLE
from tileyard.verbs.regress.view.history_page import (
    ShownHistory,
    Spans,
    describe_cause,
    describe_place,
    describe_precision,
    describe_size,
    format_utc_day,
    format_utc_minute,
    list_steps,
    list_subjects,
    shorten,
    show_history,
)
from tileyard.verbs.site.result import (
    BASES,
    KINDS,
    Cause,
    Failure,
    Overview,
    Ratio,
    Recorded,
    Row,
)

STYLE, SCRIPTS = "assets/site.css", ("assets/table.js", "assets/site.js")
NAMED: Final = 3
"""Cases that a cause names."""


class Cell(Record):
    """A cell of the first page: its text, what it is sorted by, and ``more`` in small letters. ``tone`` is
    ``worse``, ``better`` or empty.
    """

    text: str
    by: float | str = ""
    tone: str = ""
    more: str = ""

    @property
    def is_short(self) -> bool:
        """Whether it is a number, whose line is not broken."""
        return isinstance(self.by, float)


class Line(Record):
    """A row of the first page; ``group`` is ``failed``, ``worse``, ``better`` or ``same``."""

    href: str
    name: str
    group: str
    cells: tuple[Cell, ...]
    spark: Markup


class CauseLine(Record):
    """A cause in words, with the ``commits`` that it may be, and the worst cases, each with its page."""

    name: str
    what: str
    commits: tuple[str, ...]
    tone: str
    counts: str
    cases: tuple[tuple[str, str], ...]


class Part(Record):
    """A series of a case, with its runs, the newest first."""

    title: str
    history: ShownHistory
    columns: tuple[str, ...]
    runs: tuple[tuple[str, ...], ...]


# ---- the first page -----------------------------------------------------------------------------


def render_index(overview: Overview, subjects: Mapping[str, str]) -> str:
    """The first page: an answer, the causes of changes, and a row per series."""
    rows = overview.rows
    makers = {
        "case": _show_name,
        "time": _show_time,
        "last change": _show_change,
        f"vs {overview.release}": lambda row: _show_ratio(
            row.since, overview.margin if row.change else math.inf
        ),
        "vs base": lambda row: _show_ratio(row.base, overview.margin),
        "vs run before": lambda row: _show_ratio(row.before, math.inf),
        "GFLOP/s": _show_rate,
        "of roofline": _show_roofline,
        "last commit": lambda row: _show_commit(row, subjects),
        "timed by": _show_place,
        "arguments": _show_arguments,
    }
    made = {name: [make(row) for row in rows] for name, make in makers.items()}
    # What nothing is known of has no column.
    columns = [name for name, cells in made.items() if any(one.text for one in cells)]
    lines = [
        Line(
            href=f"cases/{row.recorded.subject.file}.html",
            name=row.recorded.subject.case,
            group=_group_of(row),
            cells=tuple(made[name][number] for name in columns),
            spark=_spark(row),
        )
        for number, row in enumerate(rows)
    ]
    return render(
        "site_index.html",
        assets=(HISTORY_STYLE, STYLE, *SCRIPTS),
        title="Histories of all cases",
        answer=say_answer(overview),
        columns=columns,
        lines=lines,
        causes=[_show_cause(one) for one in overview.causes],
        margin=f"{100 * overview.margin:g} %",
        runs=count_of(overview.runs, "run"),
        groups=[
            (name, said)
            for name, said in (
                ("failed", "failing"),
                ("worse", "slower"),
                ("better", "faster"),
                ("same", "unchanged"),
            )
            if any(line.group == name for line in lines)
        ],
        data=None,
    )


def say_answer(overview: Overview) -> str:
    """What became of all cases, in a sentence or two."""
    rows = overview.rows
    failed = [row for row in rows if row.failure is not None]
    slower = [row for row in rows if _group_of(row) == "worse"]
    cases = count_of(_count(rows), "case")
    said = []
    if failed:
        verb = "fails: " if _count(failed) == 1 else "fail, among them "
        said.append(f"{_count(failed)} of {cases} {verb}{_name(failed[0])}.")
    worst = next((row for row in slower if row.change), None)
    if worst is not None and worst.change is not None:
        cause = _find_cause(overview.causes, worst)
        by = f", {_say_span(cause)}" if cause else ""
        size = f"{format_change(worst.change.ratio)} %"
        verb = "is slower: " if _count(slower) == 1 else "are slower, the most "
        said.append(f"{_count(slower)} of {cases} {verb}{_name(worst)}, {size}{by}.")
    if not said:
        said.append(
            f"No case is slower than before by more than {100 * overview.margin:g} % "
            f"in {count_of(overview.runs, 'run')}."
        )
    return " ".join(said)


def _count(rows: Iterable[Row]) -> int:
    """The cases of rows, of which one on several devices has several."""
    return len({row.recorded.subject for row in rows})


def _name(row: Row) -> str:
    return f"{row.recorded.subject.title} on {row.series.device or row.recorded.subject.target}"


def _find_cause(causes: Sequence[Cause], row: Row) -> Cause | None:
    return next(
        (
            cause
            for cause in causes
            if any(one.row is row and one.shift is row.change for one in cause.changes)
        ),
        None,
    )


def _say_span(cause: Cause) -> str:
    """The commit of a cause, or the two between which it is."""
    if not cause.is_of_code:
        return "because of the machine or its software"
    span = cause.span
    if len(span.commits) == 1:
        return f"since commit {span.first[:SHORT]}: {span.commits[0].subject}"
    what = "since a commit after" if find_commit(span.first) else "after"
    return f"{what} {shorten(span.last)}, not later than {shorten(span.first)}"


def _show_cause(cause: Cause) -> CauseLine:
    span = cause.span
    slower = sum(one.shift.ratio > 1 for one in cause.changes)
    faster = len(cause.changes) - slower
    counts = [f"{slower} slower"] * bool(slower) + [f"{faster} faster"] * bool(faster)
    what, name = "", shorten(span.first)
    if not cause.is_of_code:
        name, what = "the machine", "The code is the same, or base changed likewise."
    elif len(span.commits) == 1:
        what = span.commits[0].subject
    elif span.commits:
        several = count_of(len(span.commits) + span.left_out, "commit")
        what = f"One of {several}, not all of which were timed."
        name = f"after {shorten(span.last)}, not later than {name}"
    else:
        name = f"after {shorten(span.last)}, not later than {name}"
    return CauseLine(
        name=name,
        what=what,
        commits=list_subjects(span) if len(span.commits) > 1 else (),
        tone="worse" if slower else "better",
        counts=", ".join(counts),
        cases=tuple(
            (
                f"cases/{one.row.recorded.subject.file}.html",
                f"{one.row.recorded.subject.title}: {describe_size(one.shift)}",
            )
            for one in cause.changes[:NAMED]
        ),
    )


def _group_of(row: Row) -> str:
    if row.failure is not None:
        return "failed"
    if row.change is None:
        return "same"
    return "worse" if row.change.ratio > 1 else "better"


def _show_name(row: Row) -> Cell:
    return Cell(text=row.recorded.subject.case, by=row.recorded.subject.case)


def _show_arguments(row: Row) -> Cell:
    """What the case's name lacks: its arguments and its config, of a study that of its latest winner."""
    recorded, last = row.recorded, row.last
    parts = [recorded.shape, recorded.config]
    if recorded.subject.kind == "study" and last is not None:
        parts.append(_list_configs(recorded).get(last.run, ""))
    flat = recorded.subject.case.replace(",", " ")
    text = " ".join(one for one in parts if one and one not in flat)
    return Cell(text=text, by=text)


def _list_configs(recorded: Recorded) -> dict[str, str]:
    """The configs that won a study, by runs."""
    won = (place for place in recorded.places if not place.side)
    return {one.run: one.binary for place in won for one in place.times}


def _show_place(row: Row) -> Cell:
    recorded = row.recorded
    made_by = f"{KINDS[recorded.subject.kind]} {recorded.subject.suite}".strip()
    return Cell(text=made_by, by=made_by, more=describe_place(row.series))


def _show_time(row: Row) -> Cell:
    if row.failure is not None:
        return Cell(text=row.failure.outcome.value, by=-1.0, tone="worse")
    last = row.last
    if last is None:
        return Cell(text="")
    return Cell(text=format_time(last.time_ns), by=last.time_ns, more=describe_precision(last))


def _show_rate(row: Row) -> Cell:
    flops, last = row.recorded.flops, row.last
    if not flops or last is None:
        return Cell(text="", by=0.0)
    return Cell(text=format_rate(flops, last.time_ns), by=flops / last.time_ns)


def _show_roofline(row: Row) -> Cell:
    share = row.roofline
    return Cell(text="" if share is None else format_share(share), by=share or 0.0)


def _show_change(row: Row) -> Cell:
    change = row.change
    if change is None:
        return Cell(text="", by=0.0)
    points = row.series.points
    where = shorten(points[change.first].revision or points[change.first].run)
    return Cell(
        text=f"{format_change(change.ratio)} % {f'at {where}' if change.is_of_code else 'the machine'}",
        by=change.ratio - 1,
        tone="worse" if change.ratio > 1 else "better",
    )


def _show_ratio(ratio: Ratio | None, margin: float) -> Cell:
    """A ratio has a tone if it is beyond the margin, and its interval excludes 1. That of two runs has none
    unless the history has a change: runs differ by more than their intervals.
    """
    if ratio is None:
        return Cell(text="", by=0.0)
    if ratio.is_same:
        return Cell(text="same", by=0.0, more="an equal binary")
    is_interval = ratio.low < ratio.high
    is_notable = is_interval and ratio.is_certain and abs(ratio.ratio - 1) > margin
    return Cell(
        text=f"{format_change(ratio.ratio)} %",
        by=ratio.ratio - 1,
        tone=("worse" if ratio.ratio > 1 else "better") if is_notable else "",
        more=f"{format_change(ratio.low)} .. {format_change(ratio.high)}" if is_interval else "",
    )


def _show_commit(row: Row, subjects: Mapping[str, str]) -> Cell:
    """The commit and the day of its present time, or of the failure since."""
    ended: Point | Failure | None = row.failure or row.last
    if ended is None:
        return Cell(text="")
    commit = find_commit(ended.revision)
    day = format_utc_day(ended.at)
    return Cell(
        text=shorten(ended.revision) if ended.revision else day,
        by=ended.at,
        more=f"{day} {subjects.get(commit, '')}".strip() if ended.revision else "",
    )


def _spark(row: Row) -> Markup:
    points = row.series.points
    if len(points) < 2:
        return Markup("")
    return draw_sparkline([one.time_ns for one in points], list_steps(row.series))


# ---- a case -------------------------------------------------------------------------------------


def render_case(
    recorded: Recorded,
    all_series: Sequence[Series],
    failure: Failure | None,
    spans: Spans,
    subjects: Mapping[str, str],
) -> str:
    """The page of a case: an answer, and for each of its series a chart, its changes, and its runs."""
    subject = recorded.subject
    ordered = sorted(all_series, key=lambda one: one.side in BASES)
    facts = [
        ("kernel or testcase", recorded.name),
        ("shape or case", recorded.shape),
        ("config", recorded.config),
        ("suite", subject.suite),
        ("target", subject.target),
        ("timed by", f"tileyard {KINDS[subject.kind]}"),
    ]
    return render(
        "site_case.html",
        assets=(HISTORY_STYLE, STYLE),
        title=subject.title,
        answer=_answer_case(ordered, failure, spans),
        facts=facts,
        failures=[
            (
                format_utc_minute(one.at),
                one.run,
                shorten(one.revision) if one.revision else "",
                one.outcome.value,
                one.message,
            )
            for one in sorted(recorded.failures, key=lambda one: -one.at)
        ],
        parts=[_show_series(recorded, one, spans, subjects) for one in ordered],
        data=None,
    )


def _answer_case(all_series: Sequence[Series], failure: Failure | None, spans: Spans) -> str:
    said = []
    if failure is not None:
        where = f" at commit {shorten(failure.revision)}" if failure.revision else ""
        said.append(f"It failed last ({failure.outcome.value}){where}.")
    for series in all_series:
        if series.side in BASES or not series.points:
            continue
        last = series.points[-1]
        said.append(
            f"On {series.device} it takes {format_time(last.time_ns)} {describe_precision(last)}".rstrip()
        )
        if series.shifts:
            shift = series.shifts[-1]
            word = "slower" if shift.ratio > 1 else "faster"
            cause = describe_cause(series, shift, spans)
            said[-1] += f"; it became {word}, {describe_size(shift)}, {cause}."
        else:
            said[-1] += f"; nothing has changed in {count_of(len(series.points), 'run')}."
    return " ".join(said) or "It was never timed."


def _show_series(
    recorded: Recorded, series: Series, spans: Spans, subjects: Mapping[str, str]
) -> Part:
    side = f"{series.side}: " if series.side else ""
    silicon = f" ({series.silicon})" if series.silicon else ""
    configs = _list_configs(recorded)
    is_study = recorded.subject.kind == "study" and not series.side
    runs = tuple(
        (
            format_time(one.time_ns),
            describe_precision(one),
            *((configs.get(one.run, ""),) if is_study else ()),
            shorten(one.revision),
            subjects.get(find_commit(one.revision), ""),
            format_utc_minute(one.at),
            one.run,
        )
        for one in reversed(series.points)
    )
    config = ("config",) if is_study else ()
    columns = ("time", "± 95 %", *config, "commit", "subject", "at (UTC)", "run")
    told = [number for number in range(len(columns)) if any(row[number] for row in runs)]
    return Part(
        title=f"{side}{describe_place(series)}{silicon}",
        history=show_history(series, spans),
        columns=tuple(columns[number] for number in told),
        runs=tuple(tuple(row[number] for number in told) for row in runs),
    )
