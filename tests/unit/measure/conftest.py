"""What the tests of measurement share: launches whose times are scripted."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from tileyard.targets.base import Launch


class ScriptedLaunch:
    """A launch that takes, one sample after another, the times it was told. Keeps what was asked."""

    def __init__(self, times_ns: Iterator[float]) -> None:
        self.times_ns = times_ns
        self.asked: list[tuple[int, int]] = []

    def run(self) -> None:
        """Nothing to launch."""

    def sample_ns(self, samples: int, launches: int) -> Sequence[float]:
        """The next times of the script."""
        self.asked.append((samples, launches))
        return [next(self.times_ns) for _ in range(samples)]

    def read(self) -> Sequence[NDArray[np.generic]]:
        """No outputs."""
        return []

    def reset(self) -> None:
        """Nothing to reset."""


@pytest.fixture
def script() -> Callable[[Iterator[float]], Launch]:
    """Makes a launch out of an iterator of times."""
    return ScriptedLaunch
