"""Compares launches that are timed in turn: rounds, log-ratios, an A/A control, a winner. In a
round each member is timed in a random and then the reverse order (ABBA), so that linear drift
cancels. The control, one binary entered twice, measures the noise.
"""

import math
import random
from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec.structs import asdict
from numpy.typing import NDArray

from tileyard.base.model import Record
from tileyard.measure.statistics import MedianInterval, median_interval
from tileyard.targets.base import Launch

FEWEST_ROUNDS = 8
"""Fewest rounds: enough for an interval at 0.95, which needs six."""
MOST_NS: Final = 6e9
"""Nanoseconds for which members are timed in turn, unless their fewest rounds take longer."""
CALM: Final = 1.05
UNDISTURBED: Final = 1.15
"""Two members are compared in rounds in which neither took more than this times its own lower decile."""
FEWEST_SHARE: Final = 0.25
"""Fewer than FEWEST_ROUNDS undisturbed rounds suffice if they are this share of all."""
MIN_EFFECT: Final = 0.005
"""The smallest difference that counts."""


class LogRatio(MedianInterval):
    """The median of ln(head / base) over ``rounds``, with its interval; negative if head is faster.
    ``is_disturbed``: other work disturbed nearly all rounds.
    """

    rounds: int
    is_disturbed: bool = False

    @property
    def ratio(self) -> float:
        """Head's time as a multiple of base's."""
        return math.exp(self.median)

    @property
    def excludes_tie(self) -> bool:
        """Whether the interval excludes equal times. For one binary that is a false alarm, in at
        most 1 - ``confidence`` of batches.
        """
        return self.low > 0.0 or self.high < 0.0


class Ranking(Record):
    """The judged members of an interleaved batch, by index. None beats ``fastest`` in its pairing (unless
    these form a cycle). ``ratios``: each member against it; ``tied``: not to be distinguished from it, with
    itself; ``order``: fastest first, then by ratio; ``control``: a binary's second entry against its first.
    An interval that begins at the ``threshold``, a logarithm, or below is a tie.
    """

    fastest: int
    tied: tuple[int, ...]
    order: tuple[int, ...]
    ratios: tuple[LogRatio, ...]
    control: LogRatio | None
    threshold: float


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
    There are ``rounds``, or as many as fit into ``max_ns`` or give ``calm`` calm ones, at least
    FEWEST_ROUNDS. A value is the mean of a round's two samples, of ``launches_each[i]`` launches,
    after a first one to warm up. ``seed`` decides the orders. A launch given twice is two members.
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
    """The calm rounds: no member took more than CALM times its lower decile. ``samples`` are by member."""
    times = np.asarray(samples)
    is_usual = times <= CALM * np.quantile(times, 0.1, axis=1, keepdims=True)
    calm: NDArray[np.bool_] = is_usual.all(axis=0)
    return calm


def compare_pair(base: Sequence[float], head: Sequence[float], confidence: float) -> LogRatio:
    """Compare head with base in the rounds that both have, of positive values. Disturbed rounds do
    not count if FEWEST_ROUNDS others are left. The interval is of a median by order statistics,
    since times have long right tails; 0.95 needs six rounds.
    """
    shared = min(len(base), len(head))
    bases, heads = np.asarray(base[:shared]), np.asarray(head[:shared])
    counts = _is_undisturbed(bases) & _is_undisturbed(heads)
    logs = np.log(heads / bases)
    kept = logs[counts] if counts.sum() >= FEWEST_ROUNDS else logs
    interval = median_interval(kept.tolist(), confidence)
    is_disturbed = bool(counts.sum() < min(FEWEST_ROUNDS, FEWEST_SHARE * shared))
    return LogRatio(**asdict(interval), rounds=len(kept), is_disturbed=is_disturbed)


def select_undisturbed(samples_ns: Sequence[float]) -> list[float]:
    """The rounds of a member without disturbance; those of two members count if they do for both."""
    times = np.asarray(samples_ns)
    return [float(time_ns) for time_ns in times[_is_undisturbed(times)]]


def _is_undisturbed(times: NDArray[np.float64]) -> NDArray[np.bool_]:
    usual: NDArray[np.bool_] = times <= UNDISTURBED * np.sort(times)[len(times) // 10]
    return usual


def rank(
    samples: Sequence[Sequence[float]],
    confidence: float,
    control: tuple[Sequence[float], Sequence[float]] | None = None,
    *,
    effect: float = MIN_EFFECT,
    base: int | None = None,
) -> Ranking:
    """Find the fastest of members timed by ``interleave``, in one or joined batches, among those
    with the most rounds. ``control`` are samples of a binary and its second entry. A member is tied
    with the fastest if disturbed, or unless its interval is above ``effect``, the smallest
    difference that counts, and above half width and median of the control's. With a ``base``
    that member takes the place of the fastest.
    """
    itself = None if control is None else compare_pair(*control, confidence)
    most = max(map(len, samples))
    complete = [i for i, own in enumerate(samples) if len(own) == most]
    fastest = _unbeaten(complete, samples, confidence) if base is None else base
    ratios = tuple(compare_pair(samples[fastest], own, confidence) for own in samples)
    threshold = math.log1p(effect)
    if itself is not None:
        half_width = (itself.high - itself.low) / 2.0
        threshold = max(threshold, half_width, abs(itself.median))
    others = [i for i in range(len(samples)) if i != fastest]
    return Ranking(
        fastest=fastest,
        tied=tuple(
            i
            for i, one in enumerate(ratios)
            if i == fastest or one.is_disturbed or one.low <= threshold
        ),
        order=(fastest, *sorted(others, key=lambda i: (ratios[i].median, ratios[i].low))),
        ratios=ratios,
        control=itself,
        threshold=threshold,
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
