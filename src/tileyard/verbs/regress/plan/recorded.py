"""Judges numbers that were measured elsewhere: reports of both sides, or one file per side."""

import itertools
import json
import math
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tileyard.base.errors import UsageError
from tileyard.base.model import Record
from tileyard.base.wording import count_of
from tileyard.measure.looks import MeanInterval, mean_interval
from tileyard.show.words import NANOSECONDS
from tileyard.verbs.regress.plan.pairs import (
    as_ratio,
    find_level,
    find_mean,
    judge_interval,
    sort_rows,
)
from tileyard.verbs.regress.result import Gate, Regression, TimedRow, Verdict

TILELANG: Final = "__TILELANG_PERF_RESULTS_JSON__="
"""Begins the output of TileLang's benchmarks with TL_PERF_REGRESSION_FORMAT=json; names, ms follow."""
FEWEST_EARLIER: Final = 19
"""Fewest earlier numbers for one number per side: an outlier beyond all comes once in 20 times."""
NO_TIME: Final = "what it has is no time: a time is a number greater than 0"
_RULE: Final = re.compile(r"\|?(\s*:?-+:?\s*\|)+(\s*:?-+:?\s*)?\|?")


class Report(Record):
    """One measurement of both sides: nanoseconds per benchmark, 0 if a side has none. ``lost`` are those that
    base, or head, has without a valid time.
    """

    name: str
    times: dict[str, tuple[float, float]]
    lost: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())


class _Row(Record):
    benchmark: str
    base: object = None
    head: object = None


class _Rows(Record):
    rows: tuple[_Row, ...]
    report: str | int = ""


class _Reports(Record):
    """JSON: ``{"unit": "ms", "reports": [{"report": 1, "rows": [{"benchmark", "base", "head"}]}]}``."""

    reports: tuple[_Rows, ...]
    unit: str


def read_reports(path: Path) -> list[Report]:
    """The reports of JSON like ``_Reports``, or of tables of name, base and head. Raises UsageError."""
    text = _read(path)
    reports = _read_json(text, path) if text.lstrip().startswith("{") else _read_tables(text)
    if not any(any(pair) for report in reports for pair in report.times.values()):
        raise UsageError(f"{path} has no table of a name, base and head")
    return reports


def _read_json(text: str, path: Path) -> list[Report]:
    try:
        found = msgspec.convert(json.loads(text), _Reports)  # numbers such as NaN pass
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} holds no reports: {error}") from None
    if found.unit not in NANOSECONDS:
        known = ", ".join(NANOSECONDS)
        raise UsageError(f"{path}: there is no unit {found.unit!r}", f"there are: {known}")
    return [
        _pair(
            str(one.report or number),
            *(
                _take_times(((row.benchmark, getattr(row, side)) for row in one.rows), found.unit)
                for side in ("base", "head")
            ),
        )
        for number, one in enumerate(found.reports, start=1)
    ]


def _read_tables(text: str) -> list[Report]:
    """Each table of a page, with milliseconds in its second and third column."""
    found: list[list[list[str]]] = []
    is_table = False
    for line in text.splitlines():
        cells = [cell.strip(" `*") for cell in line.strip().strip("|").split("|")]
        if _RULE.fullmatch(line.strip()):
            found.append([])
            is_table = True
        elif is_table and len(cells) > 2:
            found[-1].append(cells)
        else:
            is_table = False
    sides = (
        [
            _take_times(((row[0], row[side].removesuffix("ms")) for row in rows), "ms")
            for side in (1, 2)
        ]
        for rows in found
    )
    tables = [(base, head) for base, head in sides if any((*base.values(), *head.values()))]
    return [_pair(str(number), *one) for number, one in enumerate(tables, start=1)]


def _take_times(rows: Iterable[tuple[str, object]], unit: str) -> dict[str, float]:
    """The nanoseconds of benchmarks by name; 0 for what is no time, such as 0, null or nothing."""
    return {name: _read_time(given) * NANOSECONDS[unit] for name, given in rows}


def _read_time(given: object) -> float:
    """A positive, finite number; 0 for anything else."""
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        return 0.0
    try:
        time = float(given)
    except (ValueError, OverflowError):
        return 0.0
    return time if math.isfinite(time) and time > 0 else 0.0


def read_side(path: Path) -> dict[str, float]:
    """Nanoseconds per benchmark, 0 without a valid time, in pytest-benchmark's JSON or the output of
    TileLang's benchmarks. Raises UsageError.
    """
    text = _read(path)
    lines = [line for line in text.splitlines() if line.startswith(TILELANG)]
    try:
        if lines:
            rows = [row for line in lines for row in json.loads(line.removeprefix(TILELANG))]
            return _take_times(_list_rows(rows, "name", ("latency",)), "ms")
        rows = json.loads(text)["benchmarks"]
        return _take_times(_list_rows(rows, "fullname", ("stats", "median")), "s")
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UsageError(
            f"{path} is neither pytest-benchmark's JSON nor what TileLang's benchmarks print",
            "set TL_PERF_REGRESSION_FORMAT=json for the latter",
        ) from None


def _list_rows(rows: object, name: str, keys: Sequence[str]) -> Iterator[tuple[str, object]]:
    """Each benchmark's name and what it has at these keys. Raises TypeError and KeyError for other rows."""
    if not isinstance(rows, list):
        raise TypeError("the benchmarks are no list")
    for row in rows:
        found = row
        for key in keys:
            found = found.get(key) if isinstance(found, dict) else None
        yield str(row[name]), found


def pair_sides(base: Mapping[str, float], head: Mapping[str, float]) -> list[Report]:
    """Both sides as one report; a benchmark that a side lacks has no time there."""
    return [_pair("1", base, head)]


def _pair(name: str, base: Mapping[str, float], head: Mapping[str, float]) -> Report:
    names = dict.fromkeys([*base, *head])
    times = {one: (base.get(one, 0.0), head.get(one, 0.0)) for one in names}
    base_lost, head_lost = (frozenset(n for n, t in side.items() if not t) for side in (base, head))
    return Report(name=name, times=times, lost=(base_lost, head_lost))


class Noise(Record):
    """The noise of each benchmark in ``count`` earlier reports or sides: values of ln(head / base)."""

    count: int = 0
    values: dict[str, tuple[float, ...]] = {}


UNKNOWN: Final = Noise()
"""No earlier numbers."""


def find_noise(reports: Sequence[Report], others: Sequence[Report]) -> Noise:
    """The noise of reports of the same or other versions: each change in them is noise. Reports among
    ``others`` add nothing. Raises UsageError for fewer than two.
    """
    found = _drop_equal([*others, *reports])[len(_drop_equal(others)) :]
    if len(found) < 2:
        raise UsageError("--noise-from takes two or more reports or sides that differ")
    names = dict.fromkeys(name for report in found for name in report.times)
    return Noise(count=len(found), values={name: tuple(_log_ratios(found, name)) for name in names})


def as_reports(sides: Sequence[Mapping[str, float]]) -> list[Report]:
    """Single sides as reports: a ratio has the noise of both, root 2 times that of one."""
    root = math.sqrt(2)
    return [
        Report(name="", times={name: (1.0, time**root) for name, time in side.items()})
        for side in sides
    ]


def judge_reports(
    reports: Sequence[Report], labels: tuple[str, str], gate: Gate, noise: Noise = UNKNOWN
) -> Regression:
    """The comparison of the same benchmarks in reports, each of which gives one value, like a process of a
    run. With one report only ``noise`` tells the noise; one that equals another adds nothing. A benchmark
    that a report or a side lacks is ``missing``.
    """
    reports = _drop_equal(reports)
    names = dict.fromkeys(name for report in reports for name in report.times)
    values = {name: list(_log_ratios(reports, name)) for name in names}
    whole = {name: own for name, own in values.items() if len(own) == len(reports)}
    edges = [math.log1p(gate.margin_of(name)) for name in whole]
    fewest = 2 if len(reports) > 1 else FEWEST_EARLIER
    earlier = {name: own for name, own in noise.values.items() if len(own) >= fewest}
    level = find_level(list(whole.values()), edges, [earlier.get(name, ()) for name in whole])
    means = {
        name: mean_interval(own, level, earlier.get(name, ()))
        for name, own in values.items()
        if own
    }
    found = [_describe(name, means.get(name), reports, gate.margin_of(name)) for name in names]
    rows, notes = gate.judge(sort_rows(found))
    return Regression(
        run="",
        target="recorded",
        device="",
        silicon="",
        base=labels[0],
        head=labels[1],
        margin=gate.margin,
        fail_over=gate.fail_over,
        rows=rows,
        mean=find_mean(rows),
        notes=(*_doubt(reports, noise), *notes),
    )


def _drop_equal(reports: Sequence[Report]) -> list[Report]:
    times = [report.times for report in reports]
    return [one for number, one in enumerate(reports) if one.times not in times[:number]]


def _log_ratios(reports: Sequence[Report], name: str) -> Iterator[float]:
    for report in reports:
        base, head = report.times.get(name, (0.0, 0.0))
        if base and head:
            yield math.log(head / base)


def _describe(
    name: str, found: MeanInterval | None, reports: Sequence[Report], margin: float
) -> TimedRow:
    pairs = [report.times[name] for report in reports if name in report.times]
    base, head = ([pair[side] for pair in pairs if pair[side]] for side in (0, 1))
    lacks = [report.name for report in reports if not all(report.times.get(name, (0.0,)))]
    verdict: Verdict = "missing"
    message = ""
    if head and not base:
        verdict = "new"
    elif lacks:
        message = f"not in {'report' if len(lacks) == 1 else 'reports'} {', '.join(lacks)}"
    base_message, head_message = (
        NO_TIME if any(name in report.lost[side] for report in reports) else "" for side in (0, 1)
    )
    if found is None:
        return TimedRow(
            case=name, verdict=verdict, base_message=base_message, head_message=head_message
        )
    if not lacks:
        verdict = judge_interval(found, math.log1p(margin))
    half = (found.high - found.low) / 2
    return TimedRow(
        case=name,
        verdict=verdict,
        message=message if len(reports) > 1 else "",
        base_message=base_message,
        head_message=head_message,
        ratio=as_ratio(found, sum(map(all, pairs))),
        base=statistics.median(base),
        head=statistics.median(head),
        smallest=math.expm1(math.log1p(margin) + half) if math.isfinite(half) else None,
    )


def _doubt(reports: Sequence[Report], noise: Noise) -> Iterator[str]:
    """Notes on how far the reports agree with each other, and on one number per side."""
    if noise.count:
        few = (
            ""
            if len(reports) > 1
            else f"; one number for each side takes {FEWEST_EARLIER} of these"
        )
        yield f"noise from {noise.count} earlier runs{few}"
    elif len(reports) == 1:
        yield (
            "one number for each side says nothing of noise: a second report of the same two "
            "versions does, or --noise-from"
        )
    for one, two in itertools.pairwise(reports):
        both = [(one.times[name], two.times[name]) for name in one.times if name in two.times]
        both = [pairs for pairs in both if all(map(all, pairs))]
        if not both:
            continue
        moved = [abs(math.log(new[0] / old[0])) for old, new in both]
        largest, middle = (100 * math.expm1(find(moved)) for find in (max, statistics.median))
        turned = sum((old[1] - old[0]) * (new[1] - new[0]) < 0 for old, new in both)
        yield (
            f"from report {one.name} to {two.name} base alone moved by up to {largest:.1f} %, "
            f"{middle:.1f} % in the middle "
            f"of {count_of(len(both), 'row')}; {turned} changes turned their sign"
        )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
