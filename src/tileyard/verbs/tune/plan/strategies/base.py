"""The interface of a strategy."""

from collections.abc import Sequence
from typing import Protocol

from tileyard.base.model import Trial
from tileyard.verbs.tune.plan.strategies.points import Config, Points


class Strategy(Protocol):
    """Chooses the configs of one study, while any number of those that it has proposed are under way.

    No method waits: what takes long belongs in a thread, and its result in a later proposal. Equal seeds,
    limits and results give equal proposals. ``learns``: proposals depend on results. Such a strategy is
    asked for no more than can be tried now, and learns what was recorded before; others are asked ahead.
    """

    learns: bool

    def __init__(self, points: Points, *, trials: int, seed: int) -> None:
        """A strategy for these points, of which the study tries at most ``trials``."""

    @property
    def is_exhausted(self) -> bool:
        """Whether nothing will be proposed any more."""
        ...

    def ask(self, limit: int) -> Sequence[Config]:
        """The next configs, at most ``limit``, each a point of the space that was not proposed before.

        At least one, unless the strategy is exhausted: the results of those under way are not waited for.
        """
        ...

    def tell(self, trial: Trial) -> None:
        """Learn how a config ended, whatever the outcome, in any order.

        A config may be told of several times, for each kind of device and if it is measured again: the
        latest counts. One that was not proposed is from an earlier run (``reused``), and is still to be
        proposed.
        """
        ...

    def reject(self, config: Config) -> None:
        """Learn that the kernel's ``where`` rejects a proposed config: it will have no trial, and does
        not count as one.
        """
        ...
