"""Launches while they are timed: as their policy says, and each to blame for what it raises itself."""

import random
from collections.abc import Sequence

import numpy as np

from tileyard.errors import TileyardError
from tileyard.measure.statistics import median_interval
from tileyard.model import Case, Measurement, TimingPolicy
from tileyard.targets.arguments import PAGE, allocate
from tileyard.targets.base import Array, Launch, TimedByPolicy

CACHE_LINE = 64


class TimingFailed(Exception):
    """A launch failed while it was timed, after it had passed its check."""

    def __init__(self, case: Case, error: MemoryError | TileyardError) -> None:
        super().__init__(case.key)
        self.case = case
        self.error = error


class TimedLaunch:
    """A launch of an interleaved batch: whatever it raises while it is timed is its own case's."""

    def __init__(self, case: Case, launch: Launch) -> None:
        self._case = case
        self._launch = launch
        self.run, self.read, self.reset = launch.run, launch.read, launch.reset

    def prepare(self, policy: TimingPolicy) -> None:
        """Have samples be taken as the policy says."""
        try:
            prepare_timing(self._launch, policy)
        except (MemoryError, TileyardError) as error:
            raise TimingFailed(self._case, error) from error

    def sample_ns(self, samples: int, launches: int) -> Sequence[float]:
        """The launch's own samples."""
        try:
            return self._launch.sample_ns(samples, launches)
        except (MemoryError, TileyardError) as error:
            raise TimingFailed(self._case, error) from error


class Scattered:
    """Makes arrays that begin at random places of a page, always the same ones for a ``seed``.

    What a kernel's time owes to where its arrays lie so differs from process to process, and is seen as noise.
    """

    def __init__(self, seed: str) -> None:
        self._draw = random.Random(seed)

    def __call__(self, shape: tuple[int, ...], dtype: "np.dtype[np.generic]") -> Array:
        """An array, of which each line of the cache is whole."""
        return allocate(shape, dtype, self._draw.randrange(0, PAGE, CACHE_LINE))


def prepare_timing(launch: Launch, policy: TimingPolicy) -> None:
    """Have samples be taken as the policy says, where the launch knows several ways. Raises MemoryError."""
    if isinstance(launch, TimedByPolicy):
        launch.time_by(policy)


def summarize(samples: Sequence[float], case: Case, state: dict[str, str]) -> Measurement:
    """What samples of a case that was timed in turn with others come to."""
    confidence = (case.timing or TimingPolicy()).confidence
    interval = median_interval(samples, confidence)
    return Measurement(
        median_ns=interval.median,
        low_ns=interval.low,
        high_ns=interval.high,
        confidence=confidence,
        samples_ns=tuple(samples),
        device_state=state,
    )
