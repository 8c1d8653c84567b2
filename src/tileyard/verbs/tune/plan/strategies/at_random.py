"""The strategy ``random``: a seeded random order."""

import random
from collections.abc import Iterator
from typing import Final

from tileyard.verbs.tune.plan.strategies.in_order import InOrder
from tileyard.verbs.tune.plan.strategies.points import Points

MOST_LISTED: Final = 1 << 20
"""Of a larger space no order of all points is made: this many times a point is drawn, each of them
proposed once.
"""


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
