"""Reports: pages of one subject or several, each with the answer first; and what a run's events add."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

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
