"""Judges all pairs of builds together: rows, false alarms and a mean."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import get_args

from tileyard.artifacts.manifest import Build
from tileyard.base.measures import Better
from tileyard.base.model import INFRASTRUCTURE, Outcome
from tileyard.measure.looks import MeanInterval, mean_interval
from tileyard.verbs.regress.plan.pairs import FALSE_DISCOVERIES, Pair, Pairs
from tileyard.verbs.regress.result.gate import Gate
from tileyard.verbs.regress.result.timed import (
    Control,
    Mean,
    Ratio,
    TimedRow,
    Verdict,
    format_change,
)


def fold_pairs(
    source: Pairs, refused: Mapping[str, Sequence[Build]], gate: Gate
) -> tuple[tuple[TimedRow, ...], tuple[str, ...], Mean | None]:
    """All rows, the worst first; rows whose control differs from base; the mean of timed rows. Benjamini and
    Hochberg: R of N rows are changed if R intervals at level ``q R / N`` are beyond the margin, for the
    largest such R. All intervals are shown at that level. ``refused`` are kernels that a side could not plan.
    """
    timed = [pair for pair in source.pairs if pair.batches and not pair.failure]
    edges = [math.log1p(gate.margin_of(pair.name)) for pair in timed]
    level = find_level([pair.values("head") for pair in timed], edges)
    control_level = find_level([pair.values("control") for pair in timed], edges)
    rows = [describe_pair(pair, level, gate.margin_of(pair.name)) for pair in source.pairs]
    rows += _describe_refused(refused)
    told = {row.case for row in rows}
    rows += [TimedRow(case=name, verdict="missing") for name in source.missing if name not in told]
    rows += [TimedRow(case=name, verdict="new") for name in source.new if name not in told]
    alarms = (
        pair.name
        for pair, edge in zip(timed, edges, strict=True)
        if mean_interval(pair.values("control"), control_level).is_beyond(edge)
    )
    return sort_rows(rows), tuple(alarms), find_mean(rows)


def find_controls(source: Pairs, margin: float) -> tuple[Control, ...]:
    """The controls, base against itself, per device, in the order of names."""
    values: dict[str, list[float]] = {}
    for pair in source.pairs:
        for device, value in zip(pair.devices, pair.values("control"), strict=True):
            values.setdefault(device, []).append(value)
    level = FALSE_DISCOVERIES / max(len(values), 1)
    found = {device: mean_interval(own, level) for device, own in sorted(values.items())}
    return tuple(
        Control(
            device=device,
            ratio=as_ratio(one, len(values[device])),
            is_alarm=one.is_beyond(math.log1p(margin)),
        )
        for device, one in found.items()
    )


def sort_rows(rows: Sequence[TimedRow]) -> tuple[TimedRow, ...]:
    """Rows in order, the worst first."""
    return tuple(sorted(rows, key=_badness))


def find_mean(rows: Sequence[TimedRow]) -> Mean | None:
    """The geometric mean of the ratios of rows that are not missing; None if there is none."""
    ratios = [row.worse for row in rows if row.ratio and row.verdict != "missing"]
    return Mean(ratio=statistics.geometric_mean(ratios), rows=len(ratios)) if ratios else None


def _badness(row: TimedRow) -> tuple[int, float]:
    return get_args(Verdict).index(row.verdict), -row.worse if row.ratio else 0.0


def _describe_refused(refused: Mapping[str, Sequence[Build]]) -> list[TimedRow]:
    messages: dict[str, dict[str, str]] = {}
    for side, builds in refused.items():
        for build in builds:
            messages.setdefault(build.case, {})[side] = build.message
    return [
        TimedRow(
            case=case,
            verdict="failed",
            base_message=found.get("base", ""),
            head_message=found.get("head", ""),
        )
        for case, found in messages.items()
    ]


def find_level(
    all_values: Sequence[Sequence[float]],
    edges: Sequence[float],
    all_earlier: Sequence[Sequence[float]] | None = None,
) -> float:
    """The level of all intervals by Benjamini and Hochberg, see ``fold_pairs``; ``edges`` are log margins."""
    count = len(all_values)
    known = all_earlier or [()] * count
    for changed in range(count, 1, -1):
        level = FALSE_DISCOVERIES * changed / count
        beyond = sum(
            mean_interval(values, level, earlier).is_beyond(edge)
            for values, edge, earlier in zip(all_values, edges, known, strict=True)
        )
        if beyond >= changed:
            return level
    return FALSE_DISCOVERIES / max(count, 1)


def describe_pair(pair: Pair, level: float, margin: float) -> TimedRow:
    """The row of a pair, with intervals at this level."""
    messages = {
        side: f"{pair.failure[side].outcome}: {pair.failure[side].message}"
        if side in pair.failure
        else ""
        for side in ("base", "head")
    }
    if pair.failure:
        is_ours = {t.outcome for t in pair.failure.values()} <= INFRASTRUCTURE | {Outcome.NOT_RUN}
        return TimedRow(
            case=pair.name,
            verdict="not_run" if is_ours else "failed",
            base_message=messages["base"],
            head_message=messages["head"],
        )
    if len(pair.built) == 2 and pair.is_same:
        return TimedRow(case=pair.name, verdict="unchanged")
    if pair.refusal:
        return TimedRow(case=pair.name, verdict="failed", message=pair.refusal)
    if not pair.batches:  # no time was left, or other work disturbed all batches
        return TimedRow(case=pair.name, verdict="inconclusive", disturbed=pair.disturbed)
    found = mean_interval(pair.values("head"), level)
    half = (found.high - found.low) / 2
    unit, better = pair.measure
    verdict, message = judge_interval(found, math.log1p(margin), better), ""
    shifted = [one.values("head")[0] for one in pair.shifted if one.batches]
    if verdict in ("regressed", "improved") and pair.shifted:
        there = statistics.median([found.mean, *shifted]) * math.copysign(1.0, found.mean)
        others = ", ".join(format_change(math.exp(one)) for one in shifted)
        if there <= math.log1p(margin):
            verdict = "inconclusive"
            message = f"not with its code at other places in memory: {others} % there"
        elif len(shifted) < len(pair.shifted):
            message = f"confirmed at {len(shifted)} of {len(pair.shifted)} other places in memory"
    return TimedRow(
        case=pair.name,
        verdict=verdict,
        message=message,
        shifted=tuple(map(math.exp, shifted)),
        ratio=as_ratio(found, len(pair.batches)),
        control=as_ratio(mean_interval(pair.values("control"), level), len(pair.batches)),
        disturbed=pair.disturbed,
        base=pair.median("base"),
        head=pair.median("head"),
        unit=unit,
        better=better,
        smallest=math.expm1(math.log1p(margin) + half) if math.isfinite(half) else None,
    )


def judge_interval(found: MeanInterval, margin: float, better: Better = "lower") -> Verdict:
    """The verdict for an interval of ln(head / base); ``margin`` is a logarithm as well."""
    if found.is_beyond(margin):
        return "regressed" if (found.mean > 0) == (better == "lower") else "improved"
    return "equivalent" if found.is_within(margin) else "inconclusive"


def as_ratio(found: MeanInterval, processes: int) -> Ratio:
    """An interval of logarithms as an interval of ratios."""
    is_known = math.isfinite(found.high)
    return Ratio(
        ratio=math.exp(found.mean),
        low=math.exp(found.low) if is_known else None,
        high=math.exp(found.high) if is_known else None,
        processes=processes,
    )
