"""The base of strategies that learn: which points are left, which are under way, how others ended."""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tileyard.base.model import INFRASTRUCTURE, WELL, Outcome, Trial
from tileyard.verbs.tune.plan.strategies.base import Config, Points
from tileyard.verbs.tune.plan.strategies.encoding import Encoding

MOST_PROPOSED: Final = 1 << 20
"""Proposals after which a strategy is exhausted, however large the space is."""
MOST_HINTS: Final = 5
"""Points that earlier runs found best and this study tries first."""
UNKNOWN: Final = INFRASTRUCTURE | {Outcome.NOT_RUN, Outcome.SKIPPED}
"""Outcomes, if nothing was measured, that show nothing about a config."""


class Proposing:
    """Proposes points one by one, as ``_choose`` does, and remembers them.

    ``_times`` are logarithms of times in ns by number of a point, ``_failed`` the points that have none:
    those that failed, and those that the kernel's ``where`` rejects.
    """

    learns = True

    def __init__(self, points: Points, *, seed: int) -> None:
        self._points = points
        self._encoding = Encoding(points)
        self._generator = np.random.default_rng(seed)
        self._times: dict[int, float] = {}
        self._failed: dict[int, None] = {}
        self._under_way: dict[int, None] = {}
        self._proposed: set[int] = set()
        self._most = min(points.size, MOST_PROPOSED)
        self._is_small = points.size <= 2 * MOST_PROPOSED
        self._left: NDArray[np.int64] = np.arange(points.size if self._is_small else 0)
        self._is_left = np.ones(len(self._left), dtype=bool)
        self._hinted: dict[int, None] = {}
        self._hints = MOST_HINTS

    @property
    def expected_gain(self) -> float | None:
        """Not known, unless there is a model."""
        return None

    @property
    def is_exhausted(self) -> bool:
        """Whether all points of the space, or of a large one very many, were proposed."""
        return len(self._proposed) >= self._most

    def ask(self, limit: int) -> Sequence[Config]:
        """The next configs, at most ``limit``: first those that earlier runs found best."""
        numbers: list[int] = []
        while len(numbers) < limit and not self.is_exhausted:
            number = self._next_hint()
            number = self._choose() if number is None else number
            self._proposed.add(number)
            self._under_way[number] = None
            if self._is_small:
                self._is_left[number] = False
            numbers.append(number)
        return [self._points.config_at(number) for number in numbers]

    def tell(self, trial: Trial) -> None:
        """Learn a time, or that there is none."""
        number = self._points.find(trial.config)
        if number is None:
            return
        self._under_way.pop(number, None)
        if trial.outcome in WELL and trial.measurement is not None:
            self._failed.pop(number, None)
            self._times[number] = math.log(max(trial.measurement.median_ns, 1e-3))
            if number not in self._proposed:
                self._hinted[number] = None
        elif trial.outcome not in UNKNOWN:
            self._times.pop(number, None)
            self._failed[number] = None
        self._notice(number)

    def reject(self, config: Config) -> None:
        """Learn that a config cannot be tried."""
        number = self._points.find(config)
        if number is not None:
            self._under_way.pop(number, None)
            self._failed[number] = None
            self._notice(number)

    def _choose(self) -> int:
        """The number of the next point, one that is left."""
        raise NotImplementedError

    def _notice(self, number: int) -> None:
        """The result of this point is new."""

    def _draw(self, count: int) -> list[int]:
        """At most ``count`` different points that are left, at random; at least one unless exhausted."""
        if self._is_small:
            self._left = self._left[self._is_left[self._left]]
            count = min(count, len(self._left))
            return list(map(int, self._generator.choice(self._left, count, replace=False)))
        found: list[int] = []
        while not found:
            found = self._keep_left(self._encoding.sample(self._generator, count))
        return found

    def _keep_left(self, numbers: Sequence[int]) -> list[int]:
        """Those that were not proposed, each once."""
        return [number for number in dict.fromkeys(numbers) if number not in self._proposed]

    def _next_hint(self) -> int | None:
        """The best point that only an earlier run has tried, as long as there were few of them."""
        hinted = [one for one in self._hinted if one in self._times and one not in self._proposed]
        if not hinted or not self._hints:
            self._hinted.clear()
            return None
        self._hints -= 1
        return min(hinted, key=self._times.__getitem__)
