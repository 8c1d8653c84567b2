"""The pages of a site: one that names what changed and compares all cases, and one per case."""

import datetime
from collections.abc import Mapping, Sequence
from typing import Final

from markupsafe import Markup

from tileyard.base.model import Record
from tileyard.base.wording import count_of
from tileyard.pages.history import Dot, Step, draw_history, draw_sparkline
from tileyard.pages.page import render
from tileyard.show.words import clean_line, format_rate, format_share, format_time
from tileyard.verbs.regress.plan.history import Point, Series, Shift, find_commit
from tileyard.verbs.regress.result import format_change
from tileyard.verbs.regress.view.case_history import SHORT, format_revision
from tileyard.verbs.site.result import (
    BASES,
    KINDS,
    Cause,
    Failure,
    Overview,
    Ratio,
    Recorded,
    Row,
    Span,
    name_end,
)

STYLE, SCRIPT = "assets/site.css", "assets/site.js"
UNITS: Final = (("s", 1e9), ("ms", 1e6), ("us", 1e3), ("ns", 1.0))
NAMED: Final = 3
"""Cases that a cause names."""
Spans = Mapping[str, Span]


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


class Change(Record):
    """A change of a series in words, and the commits that can have caused it."""

    text: str
    tone: str
    commits: tuple[str, ...]


class Part(Record):
    """A series of a case: its chart, its changes, and its runs, the newest first."""

    title: str
    see: str
    chart: Markup
    changes: tuple[Change, ...]
    note: str
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
        f"vs {overview.release}": lambda row: _show_ratio(row.since, overview.margin),
        "vs base": lambda row: _show_ratio(row.base, overview.margin),
        "vs run before": lambda row: _show_ratio(row.before, overview.margin),
        "GFLOP/s": _show_rate,
        "of roofline": _show_roofline,
        "commit": lambda row: _show_commit(row, subjects),
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
        assets=(STYLE, SCRIPT),
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
    said = []
    if failed:
        verb = "fails: " if len(failed) == 1 else "fail, among them "
        said.append(f"{_count(len(failed), len(rows))} {verb}{_name(failed[0])}.")
    worst = next((row for row in slower if row.change), None)
    if worst is not None and worst.change is not None:
        cause = _find_cause(overview.causes, worst)
        by = f", {_say_span(cause)}" if cause else ""
        size = f"{format_change(worst.change.ratio)} %"
        verb = "is" if len(slower) == 1 else "are"
        said.append(
            f"{_count(len(slower), len(rows))} {verb} slower, most {_name(worst)}: {size}{by}."
        )
    if not said:
        said.append(
            f"No case is slower than before by more than {100 * overview.margin:g} % "
            f"in {count_of(overview.runs, 'run')}."
        )
    return " ".join(said)


def _count(some: int, all_rows: int) -> str:
    return f"{some} of {count_of(all_rows, 'case')}"


def _name(row: Row) -> str:
    return f"{row.recorded.subject.case} on {row.series.device or row.recorded.subject.target}"


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
    return f"{what} {_short(span.last)}, not later than {_short(span.first)}"


def _short(revision: str) -> str:
    commit = find_commit(revision)
    return f"{commit[:SHORT]}{revision.removeprefix(commit)}"


def _show_cause(cause: Cause) -> CauseLine:
    span = cause.span
    slower = sum(one.shift.ratio > 1 for one in cause.changes)
    faster = len(cause.changes) - slower
    counts = [f"{slower} slower"] * bool(slower) + [f"{faster} faster"] * bool(faster)
    what, name = "", _short(span.first)
    if not cause.is_of_code:
        name, what = "the machine", "The code is the same, or base changed likewise."
    elif len(span.commits) == 1:
        what = span.commits[0].subject
    elif span.commits:
        what = f"One of {count_of(len(span.commits), 'commit')}, not all of which were timed."
        name = f"after {_short(span.last)}, not later than {name}"
    else:
        name = f"after {_short(span.last)}, not later than {name}"
    return CauseLine(
        name=name,
        what=what,
        commits=_list_commits(span) if len(span.commits) > 1 else (),
        tone="worse" if slower else "better",
        counts=", ".join(counts),
        cases=tuple(
            (
                f"cases/{one.row.recorded.subject.file}.html",
                f"{one.row.recorded.subject.case}: {_say_size(one.shift)}",
            )
            for one in cause.changes[:NAMED]
        ),
    )


def _list_commits(span: Span) -> tuple[str, ...]:
    return tuple(f"{one.sha[:SHORT]} {one.subject}" for one in reversed(span.commits))


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
    made_by = f"{KINDS[recorded.subject.kind]} {recorded.group}".strip()
    return Cell(text=made_by, by=made_by, more=_say_place(row.series))


def _say_place(series: Series) -> str:
    return f"{series.target} on {series.device}" if series.device else series.target


def _show_time(row: Row) -> Cell:
    if row.failure is not None:
        return Cell(text=row.failure.outcome.value, by=-1.0, tone="worse")
    last = row.last
    if last is None:
        return Cell(text="")
    return Cell(text=format_time(last.time_ns), by=last.time_ns, more=_say_interval(last))


def _say_interval(point: Point) -> str:
    if not point.processes:
        return "not timed"
    half = 50 * (point.high_ns - point.low_ns) / point.time_ns
    return f"±{half:.2g} %" if half else ""


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
    where = _short(points[change.first].revision or points[change.first].run)
    return Cell(
        text=f"{format_change(change.ratio)} %",
        by=change.ratio - 1,
        tone="worse" if change.ratio > 1 else "better",
        more=f"at {where}" if change.is_of_code else "the machine",
    )


def _show_ratio(ratio: Ratio | None, margin: float) -> Cell:
    """A ratio has a tone if it is beyond the margin, and its interval excludes 1."""
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
    """The commit and the day of the last run."""
    ended: Point | Failure | None = row.failure or row.last
    if ended is None:
        return Cell(text="")
    commit = find_commit(ended.revision)
    day = _format_day(ended.at)
    return Cell(
        text=_short(ended.revision) if ended.revision else day,
        by=ended.at,
        more=f"{day} {subjects.get(commit, '')}".strip() if ended.revision else "",
    )


def _spark(row: Row) -> Markup:
    points = row.series.points
    if len(points) < 2:
        return Markup("")
    return draw_sparkline([one.time_ns for one in points], _steps(row.series))


def _steps(series: Series) -> list[Step]:
    return [
        Step(at=one.first, name=f"{format_change(one.ratio)} %", is_worse=one.ratio > 1)
        for one in series.shifts
    ]


def _format_day(at: float) -> str:
    """The same text wherever the page is made."""
    return datetime.datetime.fromtimestamp(at, datetime.UTC).strftime("%Y-%m-%d")


def _format_minute(at: float) -> str:
    return datetime.datetime.fromtimestamp(at, datetime.UTC).strftime("%Y-%m-%d %H:%M")


def _say_size(shift: Shift) -> str:
    return f"{format_change(shift.ratio)} % ({format_change(shift.low)} .. {format_change(shift.high)})"


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
        ("suite", recorded.group),
        ("target", subject.target),
        ("timed by", f"tileyard {KINDS[subject.kind]}"),
    ]
    return render(
        "site_case.html",
        assets=(STYLE,),
        title=subject.case,
        answer=_answer_case(ordered, failure, spans),
        facts=facts,
        failures=[
            (
                _format_minute(one.at),
                one.run,
                _short(one.revision) if one.revision else "",
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
        where = f" at commit {_short(failure.revision)}" if failure.revision else ""
        said.append(f"It failed last ({failure.outcome.value}){where}.")
    for series in all_series:
        if series.side in BASES or not series.points:
            continue
        last = series.points[-1]
        said.append(
            f"On {series.device} it takes {format_time(last.time_ns)} {_say_interval(last)}".rstrip()
        )
        if series.shifts:
            shift = series.shifts[-1]
            word = "slower" if shift.ratio > 1 else "faster"
            cause = _say_shift(series, shift, spans)
            said[-1] += f"; it became {word}, {_say_size(shift)}, {cause}."
        else:
            said[-1] += f"; nothing has changed in {count_of(len(series.points), 'run')}."
    return " ".join(said) or "It was never timed."


def _span_of(series: Series, shift: Shift, spans: Spans) -> Span | None:
    last, first = series.points[shift.last], series.points[shift.first]
    return spans.get(Span(last=name_end(last), first=name_end(first)).key)


def _say_shift(series: Series, shift: Shift, spans: Spans) -> str:
    last, first = series.points[shift.last], series.points[shift.first]
    if not shift.is_of_code:
        return "because of the machine or its software"
    span = _span_of(series, shift, spans)
    if span is not None and len(span.commits) == 1:
        return f"with commit {_short(first.revision)}: {span.commits[0].subject}"
    if last.revision and first.revision:
        return f"after commit {_short(last.revision)}, not later than {_short(first.revision)}"
    return f"after run {last.run}, not later than run {first.run}"


def _show_series(
    recorded: Recorded, series: Series, spans: Spans, subjects: Mapping[str, str]
) -> Part:
    points = series.points
    unit, size = next(
        one for one in UNITS if max(p.time_ns for p in points) >= one[1] or one[1] == 1
    )
    order = "commits" if series.is_by_commit else "runs"
    side = f"{series.side}: " if series.side else ""
    silicon = f" ({series.silicon})" if series.silicon else ""
    has_intervals = any(one.low_ns < one.high_ns for one in points)
    see = (
        f"Each dot is a run, the oldest at the left, in the order of {order}"
        + ("; its line is the 95 % interval" if has_intervals else "")
        + ". A vertical line is a change, a horizontal one the mean between changes. "
        f"The axis is the time of a launch or run, in {unit}."
    )
    borrowed = not all(one.processes for one in points)
    if borrowed:
        see += " A hollow dot was not timed: its binary was that of another run."
    dots = [
        Dot(
            value=one.time_ns,
            low=one.low_ns,
            high=one.high_ns,
            name=_short(one.revision)[:7] if find_commit(one.revision) else _format_day(one.at)[5:],
            about=f"{_format_minute(one.at)}, run {one.run}, {format_revision(one)}: "
            f"{format_time(one.time_ns)} {_say_interval(one)}",
            is_borrowed=not one.processes,
        )
        for one in points
    ]
    changes = tuple(
        Change(
            text=f"{_say_size(one)} {_say_shift(series, one, spans)}",
            tone="worse" if one.ratio > 1 else "better",
            commits=_list_commits(span) if (span := _span_of(series, one, spans)) else (),
        )
        for one in reversed(series.shifts)
    )
    said = "; ".join(one.text for one in changes) or "no change"
    label = clean_line(f"{count_of(len(points), 'run')}, {said}", 300)
    configs = _list_configs(recorded)
    is_study = recorded.subject.kind == "study" and not series.side
    runs = tuple(
        (
            format_time(one.time_ns),
            _say_interval(one),
            *((configs.get(one.run, ""),) if is_study else ()),
            _short(one.revision),
            subjects.get(find_commit(one.revision), ""),
            _format_minute(one.at),
            one.run,
        )
        for one in reversed(points)
    )
    config = ("config",) if is_study else ()
    columns = ("time", "± 95 %", *config, "commit", "subject", "at (UTC)", "run")
    told = [number for number in range(len(columns)) if any(row[number] for row in runs)]
    return Part(
        title=f"{side}{_say_place(series)}{silicon}",
        see=see,
        chart=draw_history(
            dots, _steps(series), (unit, size), f"runs, in the order of {order}", label
        ),
        changes=changes,
        note=_say_possible(series),
        columns=tuple(columns[number] for number in told),
        runs=tuple(tuple(row[number] for number in told) for row in runs),
    )


def _say_possible(series: Series) -> str:
    possible = series.possible
    if possible is None:
        return ""
    return (
        f"{count_of(possible.runs, 'more run')} like the last one would confirm a change of "
        f"{_say_size(possible.shift)}."
    )
