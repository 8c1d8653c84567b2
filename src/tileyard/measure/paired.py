"""Compares launches that are timed in turn: rounds, log-ratios, an A/A control, a winner.

In a round every member is timed twice, in a random order and then in reverse order (ABBA for
two members). The two times of a member are symmetric about the middle of the round, so a
machine that drifts linearly during the round adds the same to every member's mean, and
members are compared within rounds only. The rest is noise, which the control measures: the same
binary, entered twice, must have equal times.
"""

import math
import random
import statistics
from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec.structs import asdict
from numpy.typing import NDArray

from tileyard.measure.statistics import MedianInterval, median_interval
from tileyard.model import Record
from tileyard.targets.base import Launch

FEWEST_ROUNDS = 8
"""Fewest rounds: enough for an interval at 0.95, which needs six."""
CALM: Final = 1.05


class LogRatio(MedianInterval):
    """The median over rounds of ln(head / base), and its interval; negative if head is faster."""

    rounds: int

    @property
    def ratio(self) -> float:
        """Head's time as a multiple of base's."""
        return math.exp(self.median)

    @property
    def excludes_tie(self) -> bool:
        """Whether the interval excludes equal times: between two entries of one binary, a false alarm.

        On an undisturbed machine that happens in at most 1 - ``confidence`` of all batches.
        """
        return self.low > 0.0 or self.high < 0.0


class Ranking(Record):
    """The members of an interleaved batch, judged; members are named by their index.

    ``fastest`` has the smallest median, and no other member is faster in its pairing with it (unless
    pairings form a cycle). ``ratios`` has one entry per member: its time against that of
    ``fastest``. ``tied`` are the members that cannot be distinguished from ``fastest``, including
    itself, in canonical order; ``winner`` is the first of these whose median is within the smallest
    effect that counts. ``order`` has all members except the control, the winner first, then by median.
    ``control`` is the second entry of a binary against its first.
    """

    winner: int
    fastest: int
    tied: tuple[int, ...]
    order: tuple[int, ...]
    ratios: tuple[LogRatio, ...]
    control: LogRatio | None


def interleave(  # noqa: PLR0913 - bounds, by keyword only
    launches: Sequence[Launch],
    rounds: int,
    launches_each: Sequence[int],
    *,
    max_ns: float = math.inf,
    calm: int = 0,
    seed: int = 0,
) -> list[list[float]]:
    """Time ``launches`` in turn; returns one value per launch and round, in nanoseconds per launch.

    There are ``rounds`` rounds, or as many as fit into ``max_ns`` or as are needed for ``calm`` calm ones, but at least
    FEWEST_ROUNDS.

    A sample of member i is ``launches_each[i]`` launches. A value is the mean of the two samples of
    its round; each member is sampled once before the first round, to warm up. ``seed`` decides the
    orders. A launch that appears twice in ``launches`` is timed as two members.
    """
    draw = random.Random(seed)
    members = list(zip(launches, launches_each, strict=True))
    for launch, count in members:
        launch.sample_ns(1, count)
    values: list[list[float]] = [[] for _ in members]
    spent_ns = 0.0
    for number in range(rounds):
        if number >= FEWEST_ROUNDS and spent_ns >= max_ns:
            break
        if 0 < calm <= number and find_calm(values).sum() >= calm:
            break
        order = draw.sample(range(len(members)), len(members))
        sums = [0.0] * len(members)
        for index in (*order, *reversed(order)):
            launch, count = members[index]
            sums[index] += float(launch.sample_ns(1, count)[0])
        for own, total, count in zip(values, sums, launches_each, strict=True):
            own.append(total / 2.0)
            spent_ns += total * count
    return values


def find_calm(samples: Sequence[Sequence[float]]) -> NDArray[np.bool_]:
    """The rounds without interference: no member took more than CALM times its own lower decile.

    ``samples`` has one value per round for each member.
    """
    times = np.asarray(samples)
    is_usual = times <= CALM * np.quantile(times, 0.1, axis=1, keepdims=True)
    calm: NDArray[np.bool_] = is_usual.all(axis=0)
    return calm


def compare_pair(base: Sequence[float], head: Sequence[float], confidence: float) -> LogRatio:
    """Compare head with base, round by round; both have one positive value per round.

    The interval is that of a median by order statistics, which only assumes independent rounds:
    times have long right tails, so a mean or a normal interval would follow single disturbed
    rounds, and a bootstrap of a median covers too little at the usual number of about twenty
    rounds. 0.95 needs at least six rounds.
    """
    logs = np.log(np.asarray(head, dtype=np.float64) / np.asarray(base, dtype=np.float64))
    interval = median_interval([float(value) for value in logs], confidence)
    return LogRatio(**asdict(interval), rounds=len(logs))


def rank(
    samples: Sequence[Sequence[float]],
    confidence: float,
    min_effect: float = 0.005,
    control: tuple[int, int] | None = None,
) -> Ranking:
    """Find the winner among members timed by ``interleave``; ``samples`` is its result.

    The order of the members is canonical and breaks ties: the first of those
    whose medians are within ``min_effect`` of the fastest one's wins. ``control`` is a
    member's index and that of its second entry, which cannot win. A member is tied with the
    fastest unless its whole interval is above ``min_effect`` and above both the half width and
    the median of the control's interval, because a binary does not differ from itself.
    """
    itself = (
        None
        if control is None
        else compare_pair(samples[control[0]], samples[control[1]], confidence)
    )
    entries = [i for i in range(len(samples)) if control is None or i != control[1]]
    # Relative to the round's own mean, so that drift between rounds moves no median.
    logs = np.log(np.asarray(samples, dtype=np.float64))
    typical = [statistics.median(own) for own in (logs - logs.mean(axis=0)).tolist()]
    by_median = sorted(entries, key=lambda i: (typical[i], i))
    fastest = _unbeaten(by_median, samples, confidence)
    ratios = tuple(compare_pair(samples[fastest], own, confidence) for own in samples)
    threshold = math.log1p(min_effect)
    if itself is not None:
        half_width = (itself.high - itself.low) / 2.0
        threshold = max(threshold, half_width, abs(itself.median))
    tied = tuple(i for i in entries if i == fastest or ratios[i].low <= threshold)
    winner = next(i for i in tied if ratios[i].median <= math.log1p(min_effect))
    return Ranking(
        winner=winner,
        fastest=fastest,
        tied=tied,
        order=(winner, *(i for i in by_median if i != winner)),
        ratios=ratios,
        control=itself,
    )


def _unbeaten(
    candidates: Sequence[int], samples: Sequence[Sequence[float]], confidence: float
) -> int:
    """The first candidate, replaced by any that beats it in their own pairing until none does."""
    fastest = candidates[0]
    for _ in candidates:
        medians = {
            i: compare_pair(samples[fastest], samples[i], confidence).median for i in candidates
        }
        best = min(candidates, key=lambda i: medians[i])
        if medians[best] >= 0.0:
            break
        fastest = best
    return fastest
