"""Keeps a contest's finals, and decides whether the screening of the same configs contradicts them."""

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

from tileyard.artifacts.keys import canonical_json
from tileyard.base.model import WELL, Measurement, Trial
from tileyard.measure.paired import FEWEST_ROUNDS, select_undisturbed
from tileyard.measure.statistics import median_interval

CONTRADICTS: Final = 2.5
"""Least factor by which finals contradict the screening. A core shared with a stranger doubles all times
alike, and turns still compare right.
"""
_HELD: Final = re.compile(r"-held(\d+)")

Culprit = Literal["", "finals", "screening"]
"""The part of a study that other work has slowed."""


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
