"""A model of what a launch costs: each amount of ``ir/work.py`` has a time of its own."""

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from tileyard.base.model import Value

Floats = NDArray[np.float64]

CACHES_BYTES: Final = {"beyond_first": 32 << 10, "beyond_second": 512 << 10}
"""Bytes of the caches of a core, by the name of the accesses to tiles that exceed them."""
STEEPNESS: Final = 2.0
"""How fast their share rises with the logarithm of the bytes of all tiles."""
USUAL_NS: Final = {
    "product_flops": 0.004,
    "products": 10.0,
    "left": 0.02,
    "right": 0.02,
    "sums": 0.02,
    "operations": 0.01,
    "functions": 0.1,
    "conversions": 0.03,
    "steps": 2.0,
    "rows": 1.0,
    "lines": 0.3,
    "evicted": 2.0,
    "guarded": 0.1,
    "accesses": 0.005,
    "strided": 0.1,
    "blocks": 10.0,
    "beyond_first": 0.005,
    "beyond_second": 0.02,
    "spills": 0.01,
    "waits": 0.02,
}
"""What each amount costs, as a guess that no trial has changed."""
USUAL: Final[Floats] = np.log(list(USUAL_NS.values()))
LARGEST: Final = 1e30
"""A larger amount, or one below its inverse, is none of a launch, but of a foreign tuner's file."""
CERTAINTY: Final = 0.02
"""Weight of this guess beside the squared errors of logarithms of times."""


def list_amounts(work: Mapping[str, Value], units: int) -> list[float]:
    """Amounts that cost time, in the order of USUAL_NS, of the core or multiprocessor with most blocks; none
    if that is not known. Threads of a binary write and read its ``spilled_bytes`` each, and with a low
    ``occupancy`` fewer lines are waited for at once.
    """
    known = {
        name: float(value)
        for name, value in work.items()
        if isinstance(value, int | float) and 1 / LARGEST < value < LARGEST
    }
    tiles = known.get("shared_tile_bytes", 0.0) + known.get("private_tile_bytes", 0.0)
    for name, cache in CACHES_BYTES.items():
        known[name] = known.get("accesses", 0.0) / (1 + (cache / max(tiles, 1.0)) ** STEEPNESS)
    spilled_bytes = known.get("spilled_bytes", 0.0)
    known["spills"] = known.get("blocks", 0.0) * known.get("threads", 0.0) * spilled_bytes
    known["waits"] = known.get("lines", 0.0) * (1 / min(known.get("occupancy", 1.0), 1.0) - 1)
    if (blocks := known.get("blocks", 0.0)) < 1:
        return []
    share = math.ceil(blocks / units) / blocks
    return [share * known.get(name, 0.0) for name in USUAL_NS]


def predict(amounts: Floats, costs: Floats) -> Floats:
    """The logarithms of times in ns, from rows of amounts and the logarithms of what they cost."""
    result: Floats = np.log(np.maximum(amounts @ np.exp(costs), 1.0))
    return result


def learn(spaces: Sequence[tuple[Floats, Floats]], usual: Floats = USUAL) -> Floats:
    """The logarithms of what amounts cost, ``usual`` before anything is known, from amounts and logarithms of
    times of each space: how its configs differ counts, not how long all take. One that takes twice the best
    time counts half.
    """
    weights = [np.exp(times.min() - times) for _, times in spaces]
    weights = [one / one.sum() for one in weights]

    def loss(costs: Floats) -> tuple[float, Floats]:
        value, slope = 0.0, np.zeros_like(costs)
        for (amounts, times), weight in zip(spaces, weights, strict=True):
            parts = amounts * np.exp(costs)
            totals = parts.sum(axis=1)
            away = np.log(totals) - times
            away -= weight @ away
            shares = parts / totals[:, None]
            value += float(weight @ (away * away))
            slope += 2 * ((weight * away) @ (shares - weight @ shares))
        beyond = costs - usual
        return value + CERTAINTY * float(beyond @ beyond), slope + 2 * CERTAINTY * beyond

    found: Floats = minimize(loss, usual, jac=True, method="L-BFGS-B").x
    return found
