"""A Python function, timed as a launch is."""

import time
from collections.abc import Callable, Sequence
from typing import Any


class CalledLaunch:
    """A function as a launch that can be timed."""

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function

    def run(self) -> None:
        """Call it once."""
        self._function()

    def sample_ns(self, samples: int, launches: int) -> Sequence[float]:
        """``samples`` times of ``launches`` calls each, in nanoseconds per call."""
        times = []
        for _ in range(samples):
            start = time.perf_counter_ns()
            for _ in range(launches):
                self._function()
            times.append((time.perf_counter_ns() - start) / launches)
        return times

    def read(self) -> Sequence[Any]:
        """Nothing: what the function makes is its caller's."""
        return ()

    def reset(self) -> None:
        """Nothing is kept between calls."""
