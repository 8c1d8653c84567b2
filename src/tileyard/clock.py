"""Time as something passed in, so that code which waits or measures can be tested without waiting."""

import time
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
