"""The history of a case on pages: a chart, its changes, and the commits that can have caused them."""

import datetime
from collections.abc import Mapping
from typing import Final

import msgspec
from markupsafe import Markup

from tileyard.base.model import Record
from tileyard.base.wording import count_of
from tileyard.pages.history import Dot, Step, draw_history
from tileyard.show.words import clean_line, find_unit, format_time
from tileyard.verbs.regress.plan.causes import Span, name_end
from tileyard.verbs.regress.plan.history import Point, Series, Shift, find_commit
from tileyard.verbs.regress.result import format_change
from tileyard.verbs.regress.view.case_history import SHORT, format_revision

STYLE: Final = "assets/history.css"
Spans = Mapping[str, Span]


class Change(Record):
    """A change of a series in words, and the commits that can have caused it."""

    text: str
    tone: str
    commits: tuple[str, ...]


class ShownHistory(Record):
    """A series: its chart, what to see there, and its changes, the newest first. The ``note`` says what more
    runs would confirm.
    """

    see: str
    chart: Markup
    changes: tuple[Change, ...]
    note: str


def show_history(series: Series, spans: Spans) -> ShownHistory:
    """What a page has of a series, as far as ``spans`` know its commits."""
    points = series.points
    unit, size = find_unit(max(one.time_ns for one in points))
    order = "commits" if series.is_by_commit else "runs"
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
            name=shorten(one.revision)[:7]
            if find_commit(one.revision)
            else format_utc_day(one.at)[5:],
            about=f"{format_utc_minute(one.at)}, run {one.run}, {format_revision(one)}: "
            f"{format_time(one.time_ns)} {describe_precision(one)}",
            is_borrowed=not one.processes,
        )
        for one in points
    ]
    changes = tuple(
        Change(
            text=f"{describe_size(one)} {describe_cause(series, one, spans)}",
            tone="worse" if one.ratio > 1 else "better",
            commits=list_subjects(span) if (span := _span_of(series, one, spans)) else (),
        )
        for one in reversed(series.shifts)
    )
    said = "; ".join(one.text for one in changes) or "no change"
    label = clean_line(f"{count_of(len(points), 'run')}, {said}", 300)
    return ShownHistory(
        see=see,
        chart=draw_history(
            dots, list_steps(series), (unit, size), f"runs, in the order of {order}", label
        ),
        changes=changes,
        note=_describe_possible(series),
    )


def keep_last(series: Series, most: int) -> Series:
    """The same series, of which a page has at most this many points, the last ones."""
    left_out = max(len(series.points) - most, 0)
    return msgspec.structs.replace(
        series,
        points=series.points[left_out:],
        shifts=tuple(
            msgspec.structs.replace(one, last=one.last - left_out, first=one.first - left_out)
            for one in series.shifts
            if one.last >= left_out
        ),
    )


def shorten(revision: str) -> str:
    """A revision with its commit cut short."""
    commit = find_commit(revision)
    return f"{commit[:SHORT]}{revision.removeprefix(commit)}"


def list_subjects(span: Span) -> tuple[str, ...]:
    """The commits of a span, the newest first."""
    shown = [f"{one.sha[:SHORT]} {one.subject}" for one in reversed(span.commits)]
    return (*shown, *([f"and {span.left_out} earlier ones"] if span.left_out else ()))


def describe_place(series: Series) -> str:
    """The target, and the device if there is one."""
    return f"{series.target} on {series.device}" if series.device else series.target


def describe_precision(point: Point) -> str:
    """Half the interval of a point as a share; empty without an interval."""
    if not point.processes:
        return "not timed"
    half = 50 * (point.high_ns - point.low_ns) / point.time_ns
    return f"±{half:.2g} %" if half else ""


def list_steps(series: Series) -> list[Step]:
    """The changes of a series, as its charts draw them."""
    return [
        Step(at=one.first, name=f"{format_change(one.ratio)} %", is_worse=one.ratio > 1)
        for one in series.shifts
    ]


def format_utc_day(at: float) -> str:
    """The same text wherever the page is made."""
    return datetime.datetime.fromtimestamp(at, datetime.UTC).strftime("%Y-%m-%d")


def format_utc_minute(at: float) -> str:
    """Likewise, to the minute."""
    return datetime.datetime.fromtimestamp(at, datetime.UTC).strftime("%Y-%m-%d %H:%M")


def describe_size(shift: Shift) -> str:
    """``+8.90 % (+7.01 .. +10.80)``."""
    return f"{format_change(shift.ratio)} % ({format_change(shift.low)} .. {format_change(shift.high)})"


def _span_of(series: Series, shift: Shift, spans: Spans) -> Span | None:
    last, first = series.points[shift.last], series.points[shift.first]
    return spans.get(Span(last=name_end(last), first=name_end(first)).key)


def describe_cause(series: Series, shift: Shift, spans: Spans) -> str:
    """What can have caused a change: the machine, a commit, or one of those between two."""
    last, first = series.points[shift.last], series.points[shift.first]
    if not shift.is_of_code:
        return "because of the machine or its software"
    span = _span_of(series, shift, spans)
    if span is not None and len(span.commits) == 1:
        return f"with commit {shorten(first.revision)}: {span.commits[0].subject}"
    if last.revision and first.revision:
        return f"after commit {shorten(last.revision)}, not later than {shorten(first.revision)}"
    return f"after run {last.run}, not later than run {first.run}"


def _describe_possible(series: Series) -> str:
    possible = series.possible
    if possible is None:
        return ""
    return (
        f"{count_of(possible.runs, 'more run')} like the last one would confirm a change of "
        f"{describe_size(possible.shift)}."
    )
