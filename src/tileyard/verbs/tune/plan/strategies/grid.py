"""The strategy ``grid``: the order of the space."""

from tileyard.verbs.tune.plan.strategies.in_order import InOrder
from tileyard.verbs.tune.plan.strategies.points import Points


class Grid(InOrder):
    """All points in the order of the space, the last axis fastest."""

    def __init__(self, points: Points, *, trials: int, seed: int) -> None:
        super().__init__(points, range(points.size))
