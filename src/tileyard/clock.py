"""Time as something passed in, so that code which waits or measures can be tested without waiting."""

import math
import time
from collections.abc import Callable
from typing import Final

LONGEST_S: Final = 1_000_000.0
"""Most seconds that a user may give for a duration. The kernel's calls that wait take 24 days at most."""


class Clock:
    """The two kinds of time the project uses, by the machine's own clock; tests pass others."""

    def monotonic_s(self) -> float:
        """Seconds from an arbitrary start; never goes back."""
        return time.monotonic()

    def wall_s(self) -> float:
        """Seconds since the epoch, for records that people read."""
        return time.time()


NAP_S: Final = 0.5
"""The longest that whoever keeps a limit waits without a look at the clock."""


class Countdown:
    """A limit that counts only the time in which this process ran.

    Who keeps it looks at least every ``NAP_S``. Where much more time has gone by between two looks this process
    was stopped, or its host was asleep, and so was what it waits for as a rule.
    """

    def __init__(
        self, seconds: float = math.inf, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._left_s = seconds
        self._monotonic_s = monotonic_s
        self._seen_s = monotonic_s()

    def left_s(self) -> float:
        """How much is left, negative once it is over."""
        now_s = self._monotonic_s()
        self._left_s -= min(now_s - self._seen_s, 2 * NAP_S)
        self._seen_s = now_s
        return self._left_s

    def wait_s(self) -> float:
        """For how long to wait before the next look; 0 once it is over."""
        return max(0.0, min(self.left_s(), NAP_S))
