"""The times that ``regress`` or ``tune`` measured for a case, run by run, and where they changed."""

import datetime
from collections.abc import Iterator
from typing import Final

from rich.console import Console
from rich.text import Text

from tileyard.base.wording import count_of
from tileyard.show.words import clean_line, format_time
from tileyard.verbs.regress.plan.history import CaseHistory, Point, Series, Shift, find_commit
from tileyard.verbs.regress.result import format_change

WIDTH: Final = 25
"""Characters of a drawing."""
SHORT: Final = 10
"""Characters of a commit."""
LONGEST: Final = 24
"""Characters of a revision."""


def print_case_history(console: Console, found: CaseHistory) -> None:
    """Print a block of lines for each series."""
    for series in found.series:
        for line, style in _lines(series, found.margin):
            console.print(Text(line, style=style), soft_wrap=True, highlight=False)


def _lines(series: Series, margin: float) -> Iterator[tuple[str, str]]:
    """The lines of a series, each with its style."""
    points = series.points
    yield clean_line(describe_series(series)), "bold"
    shifts = {shift.first: shift for shift in series.shifts}
    for number, (point, drawn) in enumerate(zip(points, _draw(points), strict=True)):
        if shift := shifts.get(number):
            yield f"  {describe_shift(series, shift)}", "red" if shift.ratio > 1 else "green"
        yield f"  {_describe(point, drawn)}", ""
    if not all(point.processes for point in points):
        yield (
            "  not timed: both sides had the same binary; its time is that of the nearest other run",
            "",
        )
    order = f"in the order of {'commits' if series.is_by_commit else 'runs'}"
    changes = f"{count_of(len(series.shifts), 'change')} of more than {100 * margin:g} %"
    if (possible := series.possible) is not None:
        more = f"{count_of(possible.runs, 'more run')} like the last one would confirm"
        changes += f" certain; {more} {describe_shift(series, possible.shift)}"
    yield f"  {count_of(len(points), 'run')}, {changes}; {order}", ""


def describe_series(series: Series) -> str:
    """The case, its side and the device on which it was timed."""
    silicon = f" ({series.silicon})" if series.silicon else ""
    what = ", ".join(filter(None, (series.case, series.side)))
    return f"{what}, {series.target} on {series.device}{silicon}"


def describe_shift(series: Series, shift: Shift) -> str:
    """``+8.90 % (+7.01 .. +10.80) after 1a2b3c4d5e, not later than 5e4d3c2b1a``: the range of causes."""
    change = f"{format_change(shift.ratio)} % ({format_change(shift.low)} .. {format_change(shift.high)})"
    last, first = series.points[shift.last], series.points[shift.first]
    if not shift.is_of_code:
        return f"{change} at {format_revision(last)}: of the machine or its software, the code is the same"
    if last.revision and first.revision:
        return f"{change} after {format_revision(last)}, not later than {format_revision(first)}"
    return f"{change} after run {last.run}, not later than run {first.run}"


def format_revision(point: Point) -> str:
    """A short commit, or the side's other name."""
    commit = find_commit(point.revision)
    rest = point.revision.removeprefix(commit)
    return clean_line(f"{commit[:SHORT]}{rest}" or "not recorded", LONGEST)


def format_day(point: Point) -> str:
    """The time of the measurement, to the minute."""
    at = datetime.datetime.fromtimestamp(point.at).astimezone()
    return at.strftime("%Y-%m-%d %H:%M")


def _describe(point: Point, drawn: str) -> str:
    half = 50 * (point.high_ns - point.low_ns) / point.time_ns
    worth = f"±{half:.2g} %" if point.processes else "not timed"
    time = f"{format_time(point.time_ns):>9} {worth:<9}"
    return f"{format_day(point)}  {point.run}  {time}  {drawn}  {format_revision(point)}"


def _draw(points: tuple[Point, ...]) -> Iterator[str]:
    """Each point as a dot on its interval, on one axis a little wider than the times; it cuts intervals."""
    times = [point.time_ns for point in points]
    left, right = min(times) * 0.98, max(times) * 1.02

    def place(time_ns: float) -> int:
        bounded = min(max((time_ns - left) / (right - left), 0.0), 1.0)
        return round(bounded * (WIDTH - 1))

    for point in points:
        letters = ["·"] * WIDTH
        for at in range(place(point.low_ns), place(point.high_ns) + 1):
            letters[at] = "─"
        letters[place(point.time_ns)] = "●"
        yield "".join(letters)
