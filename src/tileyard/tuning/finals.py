"""Judges a study: finds the winner from the screening and the interleaved finals."""

import math
from collections.abc import Sequence

from tileyard.artifacts.keys import canonical_json
from tileyard.measure.paired import LogRatio, rank
from tileyard.model import Record, Trial
from tileyard.tuning.request import Control, Final


class Verdict(Record):
    """The winner's screening trial, the results of the finalists against it, and the A/A control."""

    best: Trial | None
    finals: tuple[Final, ...] = ()
    control: Control | None = None


def judge_finals(passed: Sequence[Trial], finals: Sequence[Trial], confidence: float) -> Verdict:
    """The winner of ``finals``, or the first of ``passed`` if too few finalists were timed.

    ``passed`` are the screening trials that may win, fastest first. A finalist's ratio is to the
    fastest of the finals, which may lose in a tie. Ties are broken by the canonical text of the
    configs, so that the same trials always give the same winner.
    """
    by_config = {canonical_json(trial.config): trial for trial in passed}
    control = next((trial for trial in finals if trial.control and trial.measurement), None)
    members = sorted(
        (
            trial
            for trial in finals
            if not trial.control and trial.measurement and canonical_json(trial.config) in by_config
        ),
        key=lambda trial: canonical_json(trial.config),
    )
    if len(members) < 2 or len({len(_samples(trial)) for trial in members}) != 1:
        return Verdict(best=passed[0] if passed else None)
    samples = [_samples(trial) for trial in members]
    pair, reused = None, control is not None and control.reused
    if control is not None and len(_samples(control)) == len(samples[0]):
        twin = next((i for i, trial in enumerate(members) if trial.config == control.config), None)
        if twin is not None:
            samples.append(_samples(control))
            pair = (twin, len(members))
    ranking = rank(samples, confidence, control=pair)
    winner = by_config[canonical_json(members[ranking.winner].config)]
    return Verdict(
        best=winner,
        finals=tuple(
            _final(
                by_config[canonical_json(members[i].config)],
                members[i],
                ranking.ratios[i],
                tied=i in ranking.tied,
            )
            for i in ranking.order
        ),
        control=None if ranking.control is None else _control(ranking.control, reused=reused),
    )


def _final(trial: Trial, member: Trial, ratio: LogRatio, *, tied: bool) -> Final:
    return Final(
        trial=trial.id,
        config=dict(trial.config),
        ratio=ratio.ratio,
        low=math.exp(ratio.low),
        high=math.exp(ratio.high),
        tied=tied,
        measurement=member.measurement,
    )


def _control(control: LogRatio, *, reused: bool) -> Control:
    return Control(
        ratio=control.ratio,
        low=math.exp(control.low),
        high=math.exp(control.high),
        false_alarm=control.excludes_tie,
        reused=reused,
    )


def _samples(trial: Trial) -> tuple[float, ...]:
    return trial.measurement.samples_ns if trial.measurement is not None else ()
