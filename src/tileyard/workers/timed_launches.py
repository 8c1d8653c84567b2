"""Times launches as their policy requires, and attributes what a launch raises to its own case."""

import random
from collections.abc import Sequence

import numpy as np

from tileyard.base.errors import TileyardError
from tileyard.base.model import Case, Measurement, TimingPolicy
from tileyard.measure.statistics import median_interval
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
    """A launch of an interleaved batch: whatever it raises while it is timed belongs to its own case."""

    def __init__(self, case: Case, launch: Launch) -> None:
        self._case = case
        self._launch = launch
        self.run, self.read, self.reset = launch.run, launch.read, launch.reset

    def prepare(self, policy: TimingPolicy) -> None:
        """Choose how samples are taken, as the policy requires."""
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
    """Makes arrays at random places of a page, the same for a ``seed``. The effect of addresses on
    a kernel's time then shows up as noise between processes.
    """

    def __init__(self, seed: str) -> None:
        self._draw = random.Random(seed)

    def __call__(self, shape: tuple[int, ...], dtype: "np.dtype[np.generic]") -> Array:
        """An array that begins at a cache line."""
        return allocate(shape, dtype, self._draw.randrange(0, PAGE, CACHE_LINE))


def prepare_timing(launch: Launch, policy: TimingPolicy) -> None:
    """Choose how samples are taken, if the launch knows several ways. Raises MemoryError."""
    if isinstance(launch, TimedByPolicy):
        launch.time_by(policy)


def summarize(samples: Sequence[float], case: Case, state: dict[str, str]) -> Measurement:
    """The measurement from the samples of a case that was timed in turn with others."""
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
