"""Two numbers that are both to be small: their scales, and the volume that a set of trade-offs dominates."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Pairs = Sequence[tuple[float, float]]
"""Times and amounts, each above 0 and at least 0."""

BEYOND: Final = 0.1
"""How far the reference of a volume is beyond the set: the share of its extent, and the least logarithm."""


def find_least(pairs: Pairs) -> float:
    """The amount as which 0 counts, which has no logarithm: half the least other one."""
    return min((amount for _, amount in pairs if amount > 0), default=2.0) / 2


def take_logs(pairs: Pairs, least: float) -> Floats:
    """Logarithms, one row per pair, of amounts that are at least ``least``."""
    logs: Floats = np.log(np.maximum(np.array(pairs, dtype=float).reshape(-1, 2), (0.0, least)))
    return logs


def weigh_both(pairs: Pairs, share: float) -> Floats:
    """One number per pair, small for a good one: the augmented Chebyshev norm of their logarithms, each
    relative to its range, with weights ``share`` and 1 - ``share``, as in ParEGO (Knowles 2006,
    doi:10.1109/TEVC.2005.851274).
    """
    logs = take_logs(pairs, find_least(pairs))
    extent = np.ptp(logs, axis=0)
    parts = (logs - logs.min(axis=0)) / np.where(extent > 0, extent, 1.0) * (share, 1 - share)
    result: Floats = parts.max(axis=1) + 0.05 * parts.sum(axis=1)
    return result


def list_undominated(pairs: Pairs) -> list[int]:
    """The places of the pairs to which no other is equal or better in both numbers, the fastest first."""
    front: list[int] = []
    for at in sorted(range(len(pairs)), key=pairs.__getitem__):
        if not front or pairs[at][1] < pairs[front[-1]][1]:
            front.append(at)
    return front


class Volume:
    """The hypervolume that trade-offs among ``pairs`` dominate: an area of logarithms, up to a reference a
    little beyond the worst of the Pareto set of all.
    """

    def __init__(self, pairs: Pairs) -> None:
        self._least = find_least(pairs)
        front = take_logs([pairs[at] for at in list_undominated(pairs)], self._least)
        best, worst = front.min(axis=0), front.max(axis=0)
        self._reference = worst + np.maximum(BEYOND * (worst - best), BEYOND)
        self._whole = self._area(pairs)

    def missing(self, found: Pairs) -> float:
        """The share of the whole volume that these do not dominate: 0 is none of it."""
        return 1.0 - self._area(found) / self._whole

    def _area(self, pairs: Pairs) -> float:
        front = take_logs([pairs[at] for at in list_undominated(pairs)], self._least)
        room = np.maximum(self._reference - front, 0.0)
        # The fastest first: each adds what it dominates beyond the amounts of those before.
        return float((room[:, 0] * np.diff(room[:, 1], prepend=0.0)).sum())
