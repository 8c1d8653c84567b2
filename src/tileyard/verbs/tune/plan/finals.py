"""Judges a study: finds the winner from screening and interleaved finals, and what finals are needed."""

import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Literal

from msgspec.structs import replace

from tileyard.artifacts.objects import canonical_json
from tileyard.base.model import WELL, Measurement, Record, Trial, median_ns
from tileyard.measure.paired import (
    FEWEST_ROUNDS,
    MIN_EFFECT,
    MOST_NS,
    LogRatio,
    rank,
    select_undisturbed,
)
from tileyard.measure.statistics import is_clearly_above, is_clearly_slower, median_interval, spread
from tileyard.verbs.tune.result import Control, Final

MARGIN = 1.05
"""On an undisturbed device a config may win if its interval begins within this factor of the best's end."""
SHARED_MARGIN = 2.0
"""The least such factor on a disturbed device: what shares its core with other work takes twice the time."""
FEWEST_FINALISTS = 5
"""This many may meet, however long they take."""
MEETING_NS = 1e9
"""Nanoseconds for which a meeting is planned if others may follow."""
START_S = 0.5
"""Seconds of a meeting besides its timing, as measured: processes start, and get their inputs."""
LATER_SHARE = 0.5
"""The timing of a later meeting relative to the first one, as measured: only tied ones take part."""
BETWEEN_MEETINGS = 0.04
"""On a disturbed device the ratio of two configs may differ by this much from one meeting to the next."""
CONTRADICTS = 2.5
"""Least factor by which finals contradict the screening. A core shared with a stranger doubles all times
alike, and turns still compare right.
"""
_HELD = re.compile(r"-held(\d+)")
Culprit = Literal["", "finals", "screening"]
"""The part of a study that other work has slowed."""


def contender_margin(trials: Sequence[Trial]) -> float:
    """MARGIN, or the factor by which two configs may be wrongly compared because of a device's slow and fast
    times: the square of the typical factor between slow and fast samples of one config, but at least
    SHARED_MARGIN, as all samples of a short screening may be slow.
    """
    timed = [trial.measurement.samples_ns for trial in trials if trial.measurement]
    factors = [spread(samples) for samples in timed if len(samples) >= FEWEST_ROUNDS]
    factor = statistics.median(factors) ** 2 if factors else 1.0
    return max(factor, SHARED_MARGIN) if factor > MARGIN else MARGIN


def is_disturbed(trials: Sequence[Trial]) -> bool:
    """Whether other work disturbs the device that screened these."""
    return contender_margin(trials) > MARGIN


def find_bound_ns(trials: Iterable[Trial]) -> float:
    """The lowest upper bound of their times; 0 if none was measured."""
    return min((trial.measurement.high_ns for trial in trials if trial.measurement), default=0.0)


def list_contenders(passed: Sequence[Trial]) -> list[Trial]:
    """The fastest of the trials, those that may beat it, and then those whose times decide nothing.
    ``passed`` are measured, fastest first, one per binary.
    """
    bound_ns, limit_ns = find_bound_ns(passed), _find_limit_ns(passed)
    timed = [(trial, trial.measurement) for trial in passed if trial.measurement is not None]
    may_win = [trial for trial, one in timed if one.low_ns <= limit_ns]
    return may_win + [
        trial for trial, one in timed if one.low_ns > limit_ns and not _is_clear(one, bound_ns)
    ]


def list_unclear(passed: Sequence[Trial]) -> list[Trial]:
    """Those whose times would let them lose although they decide nothing, or ended early in such a state."""
    bound_ns, limit_ns = find_bound_ns(passed), _find_limit_ns(passed)
    timed = [(trial, trial.measurement) for trial in passed if trial.measurement is not None]
    return [
        trial
        for trial, one in timed
        if (one.low_ns > limit_ns and not _is_clear(one, bound_ns))
        or (one.abandoned and not is_clearly_slower(one))
    ]


def choose_finalists(passed: Sequence[Trial], most: int, left_ns: float) -> Sequence[Trial]:
    """At most ``most`` contenders, as many as can be timed in turn, in ``left_ns``."""
    return fit_finalists(list_contenders(passed)[: max(most, 1)], passed, left_ns)


def fit_finalists(
    chosen: Sequence[Trial], passed: Sequence[Trial], left_ns: float, fewest: int = FEWEST_FINALISTS
) -> Sequence[Trial]:
    """As many of the chosen as can be timed in turn in ``left_ns``, and at least ``fewest``."""
    spent_ns = accumulate(2 * FEWEST_ROUNDS * median_ns(trial) for trial in chosen)
    # The first meeting may be longer than planned: what is not in it cannot win.
    time_ns = min(2 * MEETING_NS if is_disturbed(passed) else MOST_NS, left_ns)
    return chosen[: max(fewest, FEWEST_FINALISTS, sum(one <= time_ns for one in spent_ns))]


def _is_clear(measured: Measurement, bound_ns: float) -> bool:
    return is_clearly_above(measured.low_ns, measured.high_ns, bound_ns)


def _find_limit_ns(passed: Sequence[Trial]) -> float:
    best = passed[0].measurement if passed else None
    return 0.0 if best is None else best.high_ns * contender_margin(passed)


class Verdict(Record):
    """The winner's screening trial, the finalists' results against it, and the A/A control. ``least``: see
    ``StudyResult``. Of a disturbed study there is only the ``leader``, who would win.
    """

    best: Trial | None
    leader: Trial | None = None
    finals: tuple[Final, ...] = ()
    control: Control | None = None
    least: float = 0.0


def judge_finals(
    passed: Sequence[Trial],
    finals: Sequence[Trial],
    confidence: float,
    incumbents: Iterable[str] = (),
) -> Verdict:
    """The winner of ``finals``, or the first of ``passed``, the screening trials that may win, fastest first,
    if too few finalists were timed. Finals are of one or several meetings, each a batch, whose rounds are
    joined. The first of the ``incumbents``, canonical texts of configs, that is tied with the fastest wins;
    else of equal ones the first in canonical order.
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
    effect = max(MIN_EFFECT, between)
    rank_them = partial(rank, samples, confidence, control if control[0] else None, effect=effect)
    ranking = rank_them()
    kept = [keys.index(key) for key in incumbents if key in timed and len(timed[key]) == meetings]
    winner = next((i for i in kept if i in ranking.tied), ranking.fastest)
    against = ranking if winner == ranking.fastest else rank_them(base=winner)
    fastest_ns = statistics.median(samples[ranking.fastest])
    is_reused = any(trial.reused for trial in finals if trial.control)
    return Verdict(
        best=by_config[keys[winner]],
        finals=tuple(
            _final(
                by_config[keys[i]],
                _join(timed[keys[i]][0], samples[i], fastest_ns * ranking.ratios[i].ratio),
                against.ratios[i],
                tied=i in against.tied,
            )
            for i in against.order
        ),
        control=None
        if ranking.control is None
        else _control(ranking.control, effect, reused=is_reused),
        least=math.expm1(ranking.threshold),
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


def _control(control: LogRatio, effect: float, *, reused: bool) -> Control:
    threshold = math.log1p(effect)
    return Control(
        ratio=control.ratio,
        low=math.exp(control.low),
        high=math.exp(control.high),
        false_alarm=control.low > threshold or control.high < -threshold,
        reused=reused,
    )


def select_last(finals: Iterable[Trial]) -> list[Trial]:
    """Those of the last time that finals were held."""
    by_time: dict[int, list[Trial]] = {}
    for trial in finals:
        found = _HELD.search(trial.batch)
        by_time.setdefault(int(found[1]) if found else 1, []).append(trial)
    return by_time[max(by_time)] if by_time else []


def find_factor(screened: Mapping[str, Measurement], finals: Iterable[Trial]) -> float:
    """The factor from screening (times by a config's canonical text) to finals, beyond both intervals, for
    most configs; else 1. Of finals only rounds that compare configs count.
    """
    samples: dict[str, list[float]] = {}
    for one in finals:
        key = canonical_json(one.config)
        if (
            one.measurement is not None
            and one.outcome in WELL
            and not one.control
            and key in screened
        ):
            samples.setdefault(key, []).extend(one.measurement.samples_ns)
    factors = [_compare(screened[key], own) for key, own in samples.items()]
    if not factors:
        return 1.0
    slower, faster = statistics.median_low(factors), statistics.median_high(factors)
    return slower if slower > 1.0 else min(faster, 1.0)


def find_disturbed_share(finals: Iterable[Trial]) -> float:
    """The share of disturbed rounds, of the finalist for which it is the median; 0 without finals."""
    shares = [
        1.0 - len(select_undisturbed(one.measurement.samples_ns)) / len(one.measurement.samples_ns)
        for one in finals
        if one.measurement is not None and one.measurement.samples_ns
    ]
    return statistics.median_low(shares) if shares else 0.0


def _compare(alone: Measurement, samples_ns: Sequence[float]) -> float:
    kept = select_undisturbed(samples_ns)
    interval = median_interval(kept if len(kept) >= FEWEST_ROUNDS else samples_ns, alone.confidence)
    return max(interval.low / alone.high_ns, 1.0) * min(interval.high / alone.low_ns, 1.0)


def find_culprit(passed: Sequence[Trial], finals: Iterable[Trial]) -> tuple[Culprit, str]:
    """What other work disturbed of a study, and the contradiction that shows it, or both empty. ``passed``
    are the screening trials that may win.
    """
    screened = {canonical_json(one.config): one.measurement for one in passed if one.measurement}
    factor = find_factor(screened, finals)
    if 1.0 / CONTRADICTS <= factor <= CONTRADICTS:
        return "", ""
    most = "at least" if factor > 1.0 else "at most"
    why = f"the finals took {most} {factor:.3g} x as long as the screening of the same configs"
    return ("finals" if factor > 1.0 else "screening"), why


class Holding:
    """A contest's finals. ``trials`` are those last held, ``every`` all of them. ``said`` are the
    disturbances because of which they were held again; it ``is_open`` whether that helped.
    """

    def __init__(self) -> None:
        self.trials: list[Trial] = []
        self.every: list[Trial] = []
        self.said: list[str] = []
        self.is_open = False
        self.meetings = 0
        self._times = 1
        self._measured = 1
        self._series = 0

    @property
    def suffix(self) -> str:
        """The end of the names of the next meeting and its cases; empty for the very first."""
        held = f"-held{self._times}" if self._times > 1 else ""
        return held + (f".{self.meetings + 1}" if self.meetings else "")

    def begin_meeting(self) -> int:
        """Count a meeting; its number, of all of the same configs."""
        self.meetings += 1
        return 100 * self._series + self.meetings - 1

    def take(self, trial: Trial) -> None:
        """Record how a member of the meeting ended."""
        self.is_open &= trial.measurement is None
        self.trials.append(trial)
        self.every.append(trial)

    def may_restart(self, most: int) -> bool:
        """Whether finals took place less than ``most`` times in this run."""
        return self.are_known or self._measured < most

    def note(self, why: str) -> None:
        """Record a disturbance that is not yet resolved."""
        self.said.append(why)
        self.is_open = True

    def restart(self, *, are_slow: bool) -> None:
        """Leave out all meetings so far; those that ``are_slow`` do not answer for later ones."""
        if are_slow:
            self._measured += not self.are_known
            self._series += 1
        self.is_open = True
        self._times += 1
        self.meetings = 0
        self.trials = []

    @property
    def are_known(self) -> bool:
        """Whether the last finals took place in an earlier run."""
        return all(trial.reused for trial in self.trials)
