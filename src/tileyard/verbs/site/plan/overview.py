"""What the first page says of each series: its present time, its changes, and their commits."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from tileyard.verbs.regress.plan.causes import Span
from tileyard.verbs.regress.plan.history import (
    Point,
    Series,
    blame_machine,
    find_commit,
    list_series,
    rank_run,
)
from tileyard.verbs.site.plan.collecting import as_found
from tileyard.verbs.site.result import (
    BASES,
    Cause,
    Change,
    Failure,
    Ratio,
    Recorded,
    Roof,
    Row,
)

FindSpan = Callable[[Point, Point], Span]
"""The commits between two points."""


def list_rows(
    recorded: Recorded, margin: float, order: Sequence[str], released: Collection[str]
) -> tuple[list[Series], list[Row]]:
    """The series of a case, and a row for each but those of base. ``released`` are the commits of a release,
    if any.
    """
    found = list(list_series(as_found(recorded), margin, order))
    ranks = {commit: number for number, commit in enumerate(order)}
    bases = {(one.device, one.silicon): one for one in found if one.side in BASES}
    rows = []
    for number, one in enumerate(found):
        if one.side in BASES:
            continue
        base = bases.get((one.device, one.silicon))
        series = found[number] = blame_machine(one, base)
        points, last = series.points, series.points[-1]
        own = {point.run: point for point in base.points} if base else {}
        rows.append(
            Row(
                recorded=recorded,
                series=series,
                base=compare(last, own[last.run]) if last.run in own else None,
                before=compare(last, points[-2]) if len(points) > 1 else None,
                since=_compare_release(points, released),
                failure=_find_failure(recorded.failures, ranks, series),
            )
        )
    if not rows and (failure := _find_failure(recorded.failures, ranks)):
        rows.append(Row(recorded=recorded, series=_no_series(recorded), failure=failure))
    return found, rows


def add_rooflines(rows: Iterable[Row], roofs: Sequence[Roof]) -> list[Row]:
    """The rows with the share of the roofline, where the silicon's roof and the launch's work are known: of a
    case of ``regress`` that of the same kernel and shape in a study.
    """
    found = list(rows)
    works = {
        (one.recorded.name, one.recorded.shape): (one.recorded.flops, one.recorded.moved_bytes)
        for one in found
        if one.recorded.flops
    }

    def find_share(row: Row) -> float | None:
        last, series = row.last, row.series
        work = works.get((row.recorded.name, row.recorded.shape))
        where = f"{series.device} {series.silicon}"
        roof = next((one for one in roofs if one.name in where), None)
        if last is None or work is None or roof is None:
            return None
        return max(work[0] / roof.flops, work[1] / roof.moved_bytes) / last.time_ns

    return [msgspec.structs.replace(one, roofline=find_share(one)) for one in found]


def compare(now: Point, then: Point) -> Ratio:
    """The ratio of two times. Its interval adds the variances of both."""
    size = math.log(now.time_ns / then.time_ns)
    half = math.hypot(*(math.log(one.high_ns / one.low_ns) / 2 for one in (now, then)))
    return Ratio(
        ratio=math.exp(size),
        low=math.exp(size - half),
        high=math.exp(size + half),
        is_same=not now.processes,
    )


def _compare_release(points: Sequence[Point], released: Collection[str]) -> Ratio | None:
    then = [one for one in points if find_commit(one.revision) in released]
    return compare(points[-1], then[-1]) if then else None


def _find_failure(
    failures: Iterable[Failure], ranks: Mapping[str, int], series: Series | None = None
) -> Failure | None:
    """The latest failure, if it comes after the last point of a series in the order of that: a failure of an
    older commit does not count, and a newer commit that failed is not well because an older one was timed
    again.
    """

    def is_after(one: Failure) -> bool:
        if series is None:
            return True
        last = series.points[-1]
        is_by_commit = series.is_by_commit and find_commit(one.revision) in ranks
        own = ranks if is_by_commit else {}
        return rank_run(one.revision, one.at, own) > rank_run(last.revision, last.at, own)

    found = filter(is_after, failures)
    return max(found, key=lambda one: rank_run(one.revision, one.at, ranks), default=None)


def _no_series(recorded: Recorded) -> Series:
    subject = recorded.subject
    return Series(
        case=subject.case,
        side="",
        target=subject.target,
        device="",
        silicon="",
        is_by_commit=False,
        points=(),
        shifts=(),
    )


def list_causes(rows: Iterable[Row], find_span: FindSpan) -> list[Cause]:
    """The changes of all rows by their commits, the worst first."""
    groups: dict[tuple[str, bool], list[Change]] = {}
    spans: dict[str, Span] = {}
    for row in rows:
        for shift in row.series.shifts:
            points = row.series.points
            span = find_span(points[shift.last], points[shift.first])
            spans[span.key] = span
            changes = groups.setdefault((span.key, shift.is_of_code), [])
            changes.append(Change(row=row, shift=shift))
    causes = [
        Cause(
            span=spans[key],
            is_of_code=is_of_code,
            changes=tuple(sorted(changes, key=lambda one: -one.shift.ratio)),
        )
        for (key, is_of_code), changes in groups.items()
    ]
    return sorted(causes, key=lambda one: (not one.is_of_code, -one.worst, one.span.key))


def sort_rows(rows: Iterable[Row]) -> list[Row]:
    """Rows that fail first, then those that became slower, the worst first, then faster, then all others."""

    def key(row: Row) -> tuple[int, float, str, str, str]:
        change = row.change
        rank, size = 3, 0.0
        if change is not None:
            rank = 2 if change.ratio < 1 else 1
            size = -abs(math.log(change.ratio))
        if row.failure is not None:
            rank = 0
        subject = row.recorded.subject
        return rank, size, subject.case, subject.target, row.series.device

    return sorted(rows, key=key)


def list_commits(all_recorded: Iterable[Recorded]) -> set[str]:
    """All commits of which something is remembered."""
    revisions = set()
    for recorded in all_recorded:
        revisions |= {one.revision for place in recorded.places for one in place.times}
        revisions |= {one.revision for one in recorded.untimed}
        revisions |= {one.revision for one in recorded.failures}
    return {find_commit(one) for one in revisions} - {""}
