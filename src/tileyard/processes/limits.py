"""A limit on what is waited for on the loop, counted only while this process runs."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from tileyard.clock import Countdown


class Limit:
    """How long something may take; ``reset`` lets it count anew."""

    def __init__(self, timeout: asyncio.Timeout, seconds: float | None) -> None:
        self._timeout = timeout
        self._countdown = Countdown(None)
        self._timer: asyncio.TimerHandle | None = None
        self.reset(seconds)

    def reset(self, seconds: float | None) -> None:
        """Allow so many seconds from now on, or any number."""
        self._countdown = Countdown(seconds)
        # Moved on with each message, it costs a timer only where that would come too late.
        wait_s, loop = self._countdown.wait_s(), asyncio.get_running_loop()
        if self._timer is None or self._timer.when() > loop.time() + wait_s:
            self.stop()
            self._timer = loop.call_later(wait_s, self._look)

    def left_s(self) -> float:
        """How much is left."""
        return self._countdown.left_s()

    def stop(self) -> None:
        """Count no longer."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        loop, wait_s = asyncio.get_running_loop(), self._countdown.wait_s()
        if wait_s:
            self._timer = loop.call_later(wait_s, self._look)
        else:
            self._timeout.reschedule(loop.time())


@contextlib.asynccontextmanager
async def time_limit(seconds: float | None) -> AsyncIterator[Limit]:
    """Raise TimeoutError where the block takes longer; None for never.

    A process that is stopped for a while, and its children with it, loses nothing of the time.
    """
    async with asyncio.timeout(None) as timeout:
        limit = Limit(timeout, seconds)
        try:
            yield limit
        finally:
            limit.stop()
