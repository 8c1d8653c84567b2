"""Judges a study: finds the winner from screening and interleaved finals, and what finals are needed."""

import math
import statistics
from collections.abc import Sequence

from msgspec.structs import replace

from tileyard.artifacts.keys import canonical_json
from tileyard.base.model import Measurement, Record, Trial
from tileyard.measure.paired import MIN_EFFECT, LogRatio, rank
from tileyard.measure.statistics import median_interval
from tileyard.verbs.tune.plan.contenders import is_disturbed
from tileyard.verbs.tune.result.records import Control, Final

BETWEEN_MEETINGS = 0.04
"""On a disturbed device the ratio of two configs may differ by this much from one meeting to the next."""


class Verdict(Record):
    """The winner's screening trial, the finalists' results against it, and the A/A control. Of a disturbed
    study there is only the ``leader``, who would win.
    """

    best: Trial | None
    leader: Trial | None = None
    finals: tuple[Final, ...] = ()
    control: Control | None = None


def judge_finals(passed: Sequence[Trial], finals: Sequence[Trial], confidence: float) -> Verdict:
    """The winner of ``finals``, or the first of ``passed``, the screening trials that may win, fastest first,
    if too few finalists were timed. Finals are of one or several meetings, each a batch, whose rounds are
    joined. Of equal ones the first in the canonical order of configs wins.
    """
    by_config = {canonical_json(trial.config): trial for trial in passed}
    timed: dict[str, list[Measurement]] = {}
    control: tuple[list[float], list[float]] = ([], [])
    meetings = 0
    for batch in sorted({trial.batch for trial in finals}):
        times = {
            canonical_json(one.config): one.measurement
            for one in finals
            if one.batch == batch and not one.control and one.measurement
        }
        again = [key for key in times if len(timed.get(key, ())) == meetings and key in by_config]
        if not again:
            break
        meetings += 1
        for key in again:
            timed.setdefault(key, []).append(times[key])
        for one in finals:
            twin = times.get(canonical_json(one.config))
            if one.batch == batch and one.control and one.measurement and twin is not None:
                for own, measured in zip(control, (twin, one.measurement), strict=True):
                    own.extend(measured.samples_ns)
    keys = sorted(timed)
    if len(keys) < 2:
        return Verdict(best=passed[0] if passed else None)
    # Not scaled: of a meeting in which the device was slow no round should count.
    samples = [tuple(t for one in timed[key] for t in one.samples_ns) for key in keys]
    between = BETWEEN_MEETINGS / math.sqrt(meetings) if is_disturbed(passed) else 0.0
    ranking = rank(
        samples, confidence, control if control[0] else None, effect=max(MIN_EFFECT, between)
    )
    fastest_ns = statistics.median(samples[ranking.fastest])
    is_reused = any(trial.reused for trial in finals if trial.control)
    return Verdict(
        best=by_config[keys[ranking.fastest]],
        finals=tuple(
            _final(
                by_config[keys[i]],
                _join(timed[keys[i]][0], samples[i], fastest_ns * ranking.ratios[i].ratio),
                ranking.ratios[i],
                tied=i in ranking.tied,
            )
            for i in ranking.order
        ),
        control=None if ranking.control is None else _control(ranking.control, reused=is_reused),
    )


def list_complete(finals: Sequence[Final]) -> list[Final]:
    """Those that took part in all meetings; the intervals of others are wider."""
    rounds = [len(one.measurement.samples_ns) if one.measurement else 0 for one in finals]
    return [one for one, own in zip(finals, rounds, strict=True) if own == max(rounds)]


def _join(first: Measurement, samples_ns: tuple[float, ...], median_ns: float) -> Measurement:
    """A finalist's measurement over all its meetings, the first of which is given, with this median."""
    interval = median_interval(samples_ns, first.confidence)
    unit_ns = median_ns / interval.median
    return replace(
        first,
        median_ns=median_ns,
        low_ns=interval.low * unit_ns,
        high_ns=interval.high * unit_ns,
        samples_ns=samples_ns,
    )


def _final(trial: Trial, measured: Measurement, ratio: LogRatio, *, tied: bool) -> Final:
    return Final(
        trial=trial.id,
        config=dict(trial.config),
        ratio=ratio.ratio,
        low=math.exp(ratio.low),
        high=math.exp(ratio.high),
        tied=tied,
        measurement=measured,
    )


def _control(control: LogRatio, *, reused: bool) -> Control:
    return Control(
        ratio=control.ratio,
        low=math.exp(control.low),
        high=math.exp(control.high),
        false_alarm=control.excludes_tie,
        reused=reused,
    )
