"""Proposes points in an order that no result changes."""

import itertools
from collections.abc import Iterable, Sequence

from tileyard.base.model import Trial
from tileyard.verbs.tune.plan.strategies.points import Config, Points


class InOrder:
    """The points with these numbers, which are read as they are needed."""

    learns = False

    def __init__(self, points: Points, numbers: Iterable[int]) -> None:
        self._points = points
        self._numbers = iter(numbers)
        self._next = list(itertools.islice(self._numbers, 1))

    @property
    def is_exhausted(self) -> bool:
        """Whether all points were proposed."""
        return not self._next

    def ask(self, limit: int) -> Sequence[Config]:
        """The next ``limit`` points, as far as there are any."""
        taken = [*self._next, *itertools.islice(self._numbers, limit)]
        self._next = taken[limit:]
        return [self._points.config_at(number) for number in taken[:limit]]

    def tell(self, trial: Trial) -> None:
        """The order stays."""

    def reject(self, config: Config) -> None:
        """The order stays."""
