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
    """A limit that stands still while this process is stopped; None is no limit. Look every
    ``NAP_S``: a longer gap counts as that. It also stands still while what it limits waits for a
    core, ``waited`` seconds since its last call, but at least ``COUNTED`` of the time counts.
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
