"""Proposes points in an order that no result changes."""

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from tileyard.base.model import Trial
from tileyard.verbs.tune.plan.strategies.base import Config, Points

MOST_LISTED: Final = 1 << 20
"""Of a larger space no order of all points is made: this many times a point is drawn, each of them
proposed once.
"""


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

    @property
    def expected_gain(self) -> float | None:
        """Not known."""
        return None

    def ask(self, limit: int) -> Sequence[Config]:
        """The next ``limit`` points, as far as there are any."""
        taken = [*self._next, *itertools.islice(self._numbers, limit)]
        self._next = taken[limit:]
        return [self._points.config_at(number) for number in taken[:limit]]

    def tell(self, trial: Trial) -> None:
        """The order stays."""

    def reject(self, config: Config) -> None:
        """The order stays."""


class Grid(InOrder):
    """All points in the order of the space, the last axis fastest."""

    def __init__(self, points: Points, *, trials: int, seed: int) -> None:
        super().__init__(points, range(points.size))


class AtRandom(InOrder):
    """Points in a random order; in the order of the space if all of them, or only one, are to be tried."""

    def __init__(self, points: Points, *, trials: int, seed: int) -> None:
        super().__init__(points, _order(points.size, trials, random.Random(seed)))


def _order(size: int, trials: int, generator: random.Random) -> Iterator[int]:
    if size <= trials or trials == 1:
        yield from range(size)
    elif size <= MOST_LISTED:
        yield from generator.sample(range(size), size)
    else:
        seen: set[int] = set()
        for _ in range(MOST_LISTED):
            number = generator.randrange(size)
            if number not in seen:
                seen.add(number)
                yield number
