"""Finds which configs of a study may still win according to their screening."""

import statistics
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final

from tileyard.base.model import Measurement, Trial, median_ns
from tileyard.measure.paired import FEWEST_ROUNDS, MOST_NS
from tileyard.measure.statistics import is_clearly_above, is_clearly_slower, spread

MARGIN: Final = 1.05
"""On an undisturbed device a config may win if its interval begins within this factor of the best's end."""
SHARED_MARGIN: Final = 2.0
"""The least such factor on a disturbed device: what shares its core with other work takes twice the time."""
FEWEST_FINALISTS: Final = 5
"""This many may meet, however long they take."""
MEETING_NS: Final = 1e9
"""Nanoseconds for which a meeting is planned if others may follow."""


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


def choose_finalists(passed: Sequence[Trial], most: int, left_ns: float) -> list[Trial]:
    """At most ``most`` contenders, as many as can be timed in turn, in ``left_ns``."""
    chosen = list_contenders(passed)[: max(most, 1)]
    spent_ns = accumulate(2 * FEWEST_ROUNDS * median_ns(trial) for trial in chosen)
    # The first meeting may be longer than planned: what is not in it cannot win.
    time_ns = min(2 * MEETING_NS if is_disturbed(passed) else MOST_NS, left_ns)
    return chosen[: max(FEWEST_FINALISTS, sum(one <= time_ns for one in spent_ns))]


def _is_clear(measured: Measurement, bound_ns: float) -> bool:
    return is_clearly_above(measured.low_ns, measured.high_ns, bound_ns)


def _find_limit_ns(passed: Sequence[Trial]) -> float:
    best = passed[0].measurement if passed else None
    return 0.0 if best is None else best.high_ns * contender_margin(passed)
