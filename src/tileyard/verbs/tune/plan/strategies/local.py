"""Local search: from the best of some random points to better neighbours, and then from elsewhere."""

import math
from typing import Final

import numpy as np

from tileyard.verbs.tune.plan.strategies.base import Points
from tileyard.verbs.tune.plan.strategies.proposing import Proposing

FIRST: Final = 10
"""Random points from which the first descent begins."""
KICKS: Final = 3
"""Parameters that change between the best point and the begin of a later descent."""
RESTART: Final = 4
"""Points from which a later descent begins."""


class Local(Proposing):
    """Proposes neighbours of the best point of a descent, the nearest first, until none is better.

    Then another descent begins: from points a few changes away from the best of all, or from random ones,
    in turn. It begins at once, whatever is under way: a better neighbour that ends later is returned to.
    """

    def __init__(self, points: Points, *, trials: int, seed: int) -> None:
        super().__init__(points, seed=seed)
        self._descent: dict[int, None] = {}
        self._begin: list[int] = self._draw(FIRST)
        self._descents = 0
        self._centre: int | None = None
        self._around: list[int] = []

    def _choose(self) -> int:
        while True:
            while self._begin:
                number = self._begin.pop()
                if number not in self._proposed:
                    return self._follow(number)
            ended = [number for number in self._descent if number in self._times]
            if not ended and self._under_way.keys() & self._descent.keys():
                return self._follow(self._draw(1)[0])
            centre = min(ended, key=self._times.__getitem__, default=None)
            if centre != self._centre:
                self._centre = centre
                self._around = [] if centre is None else self._list_around(centre)
            while self._around:
                number = self._around.pop()
                if number not in self._proposed:
                    return self._follow(number)
            self._restart()

    def _notice(self, number: int) -> None:
        """A point better than all before is the centre of the descent, to whichever it belongs."""
        if self._times.get(number, math.inf) <= min(self._times.values(), default=math.inf):
            self._descent[number] = None

    def _follow(self, number: int) -> int:
        self._descent[number] = None
        return number

    def _list_around(self, number: int) -> list[int]:
        """Neighbours in the reverse of their order: one step, any other value, two steps."""
        (place,) = self._encoding.places_of([number])
        around: list[int] = []
        for places in reversed(self._encoding.find_neighbours(place, self._generator)):
            numbers = self._keep_left(self._encoding.numbers_of(places))
            around += [numbers[index] for index in self._generator.permutation(len(numbers))]
        return around

    def _restart(self) -> None:
        self._descent, self._centre, self._around = {}, None, []
        self._descents += 1
        best = min(self._times, key=self._times.__getitem__, default=None)
        if best is not None and self._descents % 2:
            self._begin = self._keep_left([self._kick(best) for _ in range(RESTART)])
        self._begin = self._begin or self._draw(RESTART)

    def _kick(self, number: int) -> int:
        (place,) = self._encoding.places_of([number])
        for _ in range(KICKS):
            near, far, _ = self._encoding.find_neighbours(place, self._generator)
            places = np.vstack([near, far])
            if len(places):
                place = places[self._generator.integers(len(places))]
        return self._encoding.numbers_of(place[None])[0]
