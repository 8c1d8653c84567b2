"""Finds strategies by name; each is loaded at its first use."""

from pkgutil import resolve_name

from tileyard.base.errors import UsageError
from tileyard.verbs.tune.plan.strategies.base import Strategy
from tileyard.verbs.tune.plan.strategies.points import Points

STRATEGIES: dict[str, str] = {
    "random": "tileyard.verbs.tune.plan.strategies.at_random:AtRandom",
    "grid": "tileyard.verbs.tune.plan.strategies.grid:Grid",
}
"""Names of strategies, each with its ``module:Class``."""


def make_strategy(name: str, points: Points, *, trials: int, seed: int) -> Strategy:
    """The strategy of this name for a space of which at most ``trials`` points are tried. Raises
    UsageError.
    """
    if name not in STRATEGIES:
        known = ", ".join(sorted(STRATEGIES))
        raise UsageError(f"there is no strategy {name!r}", hint=f"known strategies: {known}")
    strategy: Strategy = resolve_name(STRATEGIES[name])(points, trials=trials, seed=seed)
    return strategy
