"""Makes the pages of a site that are no longer up to date, and says what changed."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console

import tileyard.pages
import tileyard.verbs.regress.view
import tileyard.verbs.site
from tileyard.artifacts.objects import canonical_json, digest_parts
from tileyard.base.errors import UsageError
from tileyard.base.model import Record
from tileyard.base.wording import count_of
from tileyard.show.console import say
from tileyard.show.values import parse_pairs
from tileyard.verbs.regress.plan.causes import Commits, Span, name_end
from tileyard.verbs.regress.plan.history import Series, find_commit
from tileyard.verbs.site.plan.folder import INDEX, SiteFolder, digest_files
from tileyard.verbs.site.plan.overview import (
    add_rooflines,
    list_causes,
    list_commits,
    list_rows,
    sort_rows,
)
from tileyard.verbs.site.plan.updating import Fresh
from tileyard.verbs.site.result import (
    Failure,
    Manifest,
    Overview,
    Recorded,
    Roof,
    Row,
    Subject,
)
from tileyard.verbs.site.view.pages import render_case, render_index, say_answer

FOLDERS: Final = tuple(
    Path(one)
    for room in (tileyard.pages, tileyard.verbs.regress.view, tileyard.verbs.site)
    for one in room.__path__
)
"""What pages are made by: if it changes, all are made again."""


class Wanted(Record):
    """The release that cases are compared with, if any, the smallest change that counts, and known roofs."""

    release: str
    margin: float
    roofs: tuple[Roof, ...] = ()


def read_roofs(given: Sequence[str]) -> tuple[Roof, ...]:
    """The roofs that a command names. Raises UsageError."""
    roofs = []
    for name, text in parse_pairs(given, "--roof").items():
        try:
            flops, moved_bytes = map(float, text.split(","))
            if not (0 < flops < math.inf and 0 < moved_bytes < math.inf):
                raise ValueError
        except ValueError:
            raise UsageError(
                f"--roof {name}={text} is not two numbers above 0, GFLOP/s and GB/s",
                "for example --roof H100=989000,3350",
            ) from None
        roofs.append(Roof(name=name, flops=flops, moved_bytes=moved_bytes))
    return tuple(roofs)


class Made(Record):
    """What a command has written: the first page, and the answer that it begins with."""

    page: str
    answer: str
    runs: int
    new_runs: int
    cases: int
    written: tuple[str, ...]


def make_pages(site: SiteFolder, fresh: Fresh, wanted: Wanted) -> Made:
    """Add what is fresh, and write what that changes. Raises UsageError if the site would be empty."""
    release, margin = wanted.release, wanted.margin
    before = site.manifest
    cases = site.read_all()
    for recorded in fresh.add_to(cases):
        site.write_data(recorded)
    if not cases:
        raise UsageError(
            "no run has timed anything yet",
            "tileyard regress, tune and test time kernels and programs",
        )
    commits = Commits(
        Path.cwd(), list_commits(cases.values()), before.order, before.subjects, before.spans
    )
    released = commits.find_released(release) if release else frozenset()
    rows: list[Row] = []
    series_of: dict[Subject, tuple[list[Series], Failure | None]] = {}
    for subject, recorded in sorted(cases.items(), key=lambda item: item[0].file):
        all_series, own = list_rows(recorded, margin, commits.order, released)
        rows += own
        if own:  # otherwise no run has timed it: both sides always had the same binary
            failed = [one.failure for one in own if one.failure is not None]
            series_of[subject] = all_series, failed[0] if len(failed) == len(own) else None
    rows = add_rooflines(rows, wanted.roofs)
    causes = list_causes(rows, commits.find_span)
    makers = digest_files(
        sorted(one for folder in FOLDERS for one in folder.rglob("*.*") if _is_maker(one))
    )
    pages: dict[str, str] = {}
    for subject, (all_series, failure) in series_of.items():
        used = _name_used(cases[subject], all_series, failure, commits)
        pages[subject.file] = digest_parts("page", makers, used)
        if before.pages.get(subject.file) != pages[subject.file] or not site.has_page(subject):
            page = render_case(cases[subject], all_series, failure, commits.used, commits.subjects)
            site.write_page(subject, page)
    runs = before.runs | fresh.runs
    overview = Overview(
        rows=tuple(sort_rows(rows)),
        causes=tuple(causes),
        runs=len(runs),
        margin=margin,
        release=release,
    )
    manifest = Manifest(
        runs=runs,
        pages=pages,
        order=commits.order,
        subjects=commits.subjects,
        spans=commits.used,
    )
    site.write_index(render_index(overview, commits.subjects), manifest)
    return Made(
        page=str(site.root / INDEX),
        answer=say_answer(overview),
        runs=len(runs),
        new_runs=len(fresh.runs),
        cases=len(pages),
        written=tuple(site.written),
    )


def _is_maker(file: Path) -> bool:
    return file.suffix in (".py", ".html", ".css", ".js")


def _name_used(
    recorded: Recorded, all_series: list[Series], failure: Failure | None, commits: Commits
) -> str:
    """All that the page of a case is made from."""
    spans = [
        commits.used.get(_key(series, number)) for series in all_series for number in _ends(series)
    ]
    revisions = {point.revision for series in all_series for point in series.points}
    named = {find_commit(one) for one in revisions}
    subjects = {one: commits.subjects[one] for one in named if one in commits.subjects}
    return canonical_json((recorded, all_series, failure, spans, subjects))


def _ends(series: Series) -> list[tuple[int, int]]:
    return [(one.last, one.first) for one in series.shifts]


def _key(series: Series, ends: tuple[int, int]) -> str:
    last, first = (name_end(series.points[one]) for one in ends)
    return Span(last=last, first=first).key


def print_made(console: Console, made: Made) -> None:
    """Print the answer, and where the pages are."""
    say(console, made.answer)
    new = f"{count_of(made.new_runs, 'new run')} of {made.runs}"
    pages = count_of(len(made.written), "file")
    say(
        console, f"{made.page}: {count_of(made.cases, 'case')}, {new}, {pages} written", style="dim"
    )
