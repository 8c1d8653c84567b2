"""Reports: pages of one subject or several, the answer first; what a run's events add; tables of all rows."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tileyard.base.errors import HomeError
from tileyard.base.model import Record
from tileyard.pages.page import render
from tileyard.pages.timeline import pack_timeline, show_timeline
from tileyard.show.timeline import Timeline, fold_run
from tileyard.show.view import RunView
from tileyard.show.words import clean_line
from tileyard.store.events import read_events, run_file


@dataclass(frozen=True, kw_only=True)
class RunLog:
    """The state of a run in the data directory ``home`` after all its events, and its timeline; they may be
    gone.
    """

    home: Path
    view: RunView = field(default_factory=RunView)
    timeline: Timeline | None = None

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """What was asked, and when, if that is recorded."""
        about = self.view.about
        if not about.run:
            return ()
        begun = time.strftime("%Y-%m-%d %H:%M %Z", time.localtime(about.at))
        return (("asked", about.title), ("begun", begun))


def read_log(home: Path, run: str) -> RunLog:
    """The log of a run; an empty one if it is gone or cannot be read."""
    try:
        timeline, view = fold_run(read_events(run_file(home, run)))
    except HomeError:
        return RunLog(home=home)
    return RunLog(home=home, view=view, timeline=timeline)


ASSETS = (
    "vendor/uPlot.min.css",
    "vendor/uPlot.iife.min.js",
    "assets/history.css",
    "assets/report.css",
    "assets/table.js",
    "assets/report.js",
)
"""Styles and scripts of reports."""


class Words(Record):
    """Words above a table: what to see, and an example of a filter."""

    see: str
    example: str


class Section(Record):
    """A titled part of a subject: the template that shows it, what it shows, and data for scripts."""

    name: str
    title: str
    template: str
    shown: object = None
    data: object = None


class Subject(Record):
    """One run, or the part of it on one kind of device. ``kind`` says what it is, ``answer`` the result in
    one sentence, ``facts`` are words with their values.
    """

    title: str
    kind: str
    answer: str
    facts: tuple[tuple[str, str], ...] = ()
    sections: tuple[Section, ...] = ()


def find_timeline(log: RunLog, whole_s: float) -> Iterator[Section]:
    """When each worker and device did what, if that is recorded, in a run that took ``whole_s``."""
    timeline = log.timeline
    if timeline is not None and any(lane.spans for lane in timeline.lanes):
        yield Section(
            name="timeline",
            title="Where the time went",
            template="timeline.html",
            shown=show_timeline(timeline, whole_s=whole_s),
            data=pack_timeline(timeline),
        )


def render_report(subjects: Sequence[Subject], links: Sequence[tuple[str, str]] = ()) -> str:
    """One page of all subjects, with links to other pages at its top: their addresses and words."""
    first = subjects[0]
    is_one = len(subjects) == 1
    return render(
        "report.html",
        assets=ASSETS,
        title=clean_line(first.title) if is_one else f"{len(subjects)} results",
        answer=first.answer if is_one else "",
        kind=first.kind if is_one else "",
        subjects=subjects,
        links=links,
        data=[{one.name: one.data for one in subject.sections if one.data} for subject in subjects],
    )


Cell = str | float | int | bool | None
MOST_ROWS = 10_000
"""Maximum number of rows of a table: a page of more is slow to open."""
Kind = Literal["text", "shared", "number", "time", "seconds", "percent"]
"""``shared``: a text that many rows have; ``time``: nanoseconds."""


class Column(Record, rename="camel"):
    """A column; one with a ``parameter`` is found by ``NAME=VALUE``, too."""

    name: str
    kind: Kind = "text"
    parameter: bool = False
    is_long: bool = False


class Kept(Record):
    """The rows that a table has, and a ``note`` if these are not all."""

    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""


class Table(Record):
    """Rows, at first in the order of column ``by``. Column ``choice`` has few values, of which the reader
    chooses one. A shared text is a number of ``texts``. The ``note`` says which rows are not in it.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    choice: int
    by: int = 0
    texts: tuple[str, ...] = ()
    note: str = ""


def keep_first(
    rows: Sequence[tuple[Cell, ...]], run: str, urgency: Callable[[tuple[Cell, ...]], float]
) -> Kept:
    """All rows of a ``run``, in their order; of too many those of the lowest ``urgency``."""
    if len(rows) <= MOST_ROWS:
        return Kept(rows=tuple(rows))
    chosen = sorted(range(len(rows)), key=lambda place: urgency(rows[place]))[:MOST_ROWS]
    return Kept(
        rows=tuple(rows[place] for place in sorted(chosen)),
        note=f"The table has {MOST_ROWS:,} of {len(rows):,} rows, those first that matter most; "
        f"tileyard trials export {run} -o trials.jsonl writes all.",
    )


def make_table(columns: Sequence[Column], kept: Kept, choice: str, by: str) -> Table:
    """The table of these rows, sorted ``by`` and chosen by these columns. Numbers are rounded."""
    texts: dict[str, int] = {}
    names = [one.name for one in columns]

    def shorten(cell: Cell, kind: Kind) -> Cell:
        if kind == "shared" and isinstance(cell, str):
            return texts.setdefault(cell, len(texts))
        # The value of a parameter, which is a text, can be given to an option as it is.
        return round_figure(cell) if type(cell) is float and kind != "text" else cell

    made = tuple(
        tuple(shorten(cell, column.kind) for cell, column in zip(row, columns, strict=True))
        for row in kept.rows
    )
    return Table(
        columns=tuple(columns),
        rows=made,
        choice=names.index(choice),
        by=names.index(by),
        texts=tuple(texts),
        note=kept.note,
    )


def round_figure(number: float) -> float:
    """Six significant digits, which are enough for every reader."""
    return float(f"{number:.6g}")
