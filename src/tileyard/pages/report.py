"""Reports: pages of one subject or several, each with the answer first."""

from collections.abc import Iterator, Sequence

from tileyard.base.model import Record
from tileyard.pages.page import render
from tileyard.pages.run_log import RunLog
from tileyard.pages.timeline import pack_timeline, show_timeline
from tileyard.show.words import clean_line

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
