"""States that change, and those who watch them: one task makes the states of a page for all its subscribers,
and each gets the latest, whatever it has missed.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Final, Self

MOST_SUBSCRIBERS: Final = 64
HEARTBEAT_S: Final = 15.0
"""Seconds after which a subscriber gets a line although nothing has changed."""
log = logging.getLogger(__name__)

Make = Callable[[], AsyncIterator[bytes]]
"""Makes the states of a page until it has none any more, or is closed."""


class Topic:
    """The states of one page, as one task makes them."""

    def __init__(self) -> None:
        self.latest = b""
        self.version = 0
        self.users = 0
        self.is_over = False
        self.changed = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    async def keep(self, make: Make) -> None:
        """Make states, and publish those that differ from the one before."""
        try:
            async with contextlib.aclosing(make()) as states:  # type: ignore[type-var] # a generator
                async for state in states:
                    if state != self.latest:
                        self.latest, self.version = state, self.version + 1
                        self._wake()
        except Exception:
            log.exception("the states of a page ended")
        finally:
            self.is_over = True
            self._wake()

    def _wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


class Subscription:
    """The place of one subscriber, a context manager; what it reads is an endless event stream."""

    def __init__(self, hub: "Hub", page: str, make: Make) -> None:
        self._hub = hub
        self._page = page
        self._make = make

    def __enter__(self) -> Self:
        self._topic = self._hub.join(self._page, self._make)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._hub.leave(self._page, self._topic)

    async def events(self, heartbeat_s: float = HEARTBEAT_S) -> AsyncIterator[bytes]:
        """The latest state whenever there is another one, as server-sent events."""
        topic, seen = self._topic, 0
        while True:
            changed = topic.changed
            if topic.version > seen:
                seen = topic.version
                yield b"data: %b\n\n" % topic.latest
            elif topic.is_over:
                return
            else:
                try:
                    async with asyncio.timeout(heartbeat_s):
                        await changed.wait()
                except TimeoutError:
                    yield b":\n\n"


class Hub:
    """The pages that somebody watches: a fixed number of subscribers."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self._places = MOST_SUBSCRIBERS

    @property
    def is_full(self) -> bool:
        """Whether there is no place for one more subscriber."""
        return self._places == 0

    def join(self, page: str, make: Make) -> Topic:
        """Take a place, and make the states of a page if nobody does so yet. There must be a place."""
        self._places -= 1
        topic = self.topics.get(page)
        if topic is None or topic.is_over:
            topic = self.topics[page] = Topic()
            topic.task = asyncio.create_task(topic.keep(make))
        topic.users += 1
        return topic

    def leave(self, page: str, topic: Topic) -> None:
        """Give the place up. With the last subscriber the states of a page end."""
        self._places += 1
        topic.users -= 1
        if not topic.users:
            if topic.task is not None:
                topic.task.cancel()
            if self.topics.get(page) is topic:
                del self.topics[page]
