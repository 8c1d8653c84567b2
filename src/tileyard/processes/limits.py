"""Limits waits on the event loop, counting only the time while this process runs."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from tileyard.base.clock import Countdown


class Limit:
    """The time that something may take; ``reset`` restarts it."""

    def __init__(self, timeout: asyncio.Timeout, seconds: float | None) -> None:
        self._timeout = timeout
        self._countdown = Countdown(None)
        self._timer: asyncio.TimerHandle | None = None
        self.reset(seconds)

    def reset(self, seconds: float | None) -> None:
        """Allow ``seconds`` from now on; None for no limit."""
        self._countdown = Countdown(seconds)
        # It is moved with each message, so it sets a timer only if the present one would be too late.
        wait_s, loop = self._countdown.wait_s(), asyncio.get_running_loop()
        if self._timer is None or self._timer.when() > loop.time() + wait_s:
            self.stop()
            self._timer = loop.call_later(wait_s, self._look)

    def left_s(self) -> float:
        """The seconds that are left."""
        return self._countdown.left_s()

    def stop(self) -> None:
        """Stop counting."""
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
    """Raise TimeoutError after ``seconds``, None for never; time in which this process is stopped is free."""
    async with asyncio.timeout(None) as timeout:
        limit = Limit(timeout, seconds)
        try:
            yield limit
        finally:
            limit.stop()
