"""Clocks and limits that are passed in, so that code that waits or measures can be tested without waiting."""

import math
import time
from collections.abc import Callable
from typing import Final

LONGEST_S: Final = 1_000_000.0
"""Most seconds that a user may give for a duration. The Linux kernel's waiting calls take at most 24 days."""

NAP_S: Final = 0.5
"""Most seconds between two looks at a countdown."""

COUNTED: Final = 0.25
"""The part of the time that counts even if what is limited waits for a core all the time."""


class Clock:
    """The two kinds of time the project uses, by the machine's own clock; tests pass others."""

    def monotonic_s(self) -> float:
        """Seconds from an arbitrary start; never goes back."""
        return time.monotonic()

    def wall_s(self) -> float:
        """Seconds since the epoch, for records that people read."""
        return time.time()


class Countdown:
    """A limit that does not run while the process that looks at it is stopped. None is not a limit.

    Look at least every ``NAP_S``: a longer gap between two looks, as after SIGSTOP and SIGCONT, counts
    as ``NAP_S``. Nor does it run while what it limits waits for a core: ``waited`` gives these seconds since its
    last call. At least a part of the time, ``COUNTED``, counts in any case.
    """

    def __init__(
        self,
        seconds: float | None,
        monotonic: Callable[[], float] = time.monotonic,
        waited: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._left_s = math.inf if seconds is None else seconds
        self._monotonic = monotonic
        self._waited = waited
        self._seen_at = monotonic()

    def left_s(self) -> float:
        """Seconds left, 0 once it is over; infinity without a limit."""
        now = self._monotonic()
        passed_s = min(now - self._seen_at, NAP_S)
        self._left_s = max(0.0, self._left_s - max(passed_s - self._waited(), COUNTED * passed_s))
        self._seen_at = now
        return self._left_s

    def wait_s(self) -> float:
        """Seconds to wait before the next look."""
        return min(self.left_s(), NAP_S)
