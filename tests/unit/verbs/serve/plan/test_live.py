"""States and those who follow them: one task for all, the latest state for each."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import ExitStack

import pytest

from tileyard.verbs.serve.plan.live import MOST_SUBSCRIBERS, Hub, Subscription


class Source:
    """Makes the states that it is given, and counts who makes them."""

    def __init__(self) -> None:
        self.states: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.begun = 0
        self.ended = 0

    async def make(self) -> AsyncIterator[bytes]:
        """The states, until one is None."""
        self.begun += 1
        try:
            while (state := await self.states.get()) is not None:
                yield state
        finally:
            self.ended += 1

    async def put(self, *states: bytes | None) -> None:
        """Give it states, and let it make them."""
        for state in states:
            self.states.put_nowait(state)
        for _ in range(10):
            await asyncio.sleep(0)


def test_all_subscribers_share_one_task_that_ends_with_the_last() -> None:
    """Each gets every state once; the next one after them begins anew."""

    async def use() -> None:
        hub, source = Hub(), Source()
        with ExitStack() as stack:
            places = [stack.enter_context(Subscription(hub, "p", source.make)) for _ in range(3)]
            streams = [place.events() for place in places]
            for state in (b"a", b"b"):
                await source.put(state, state)
                assert [await anext(one) for one in streams] == [b"data: %b\n\n" % state] * 3
            assert (source.begun, source.ended) == (1, 0)
        await source.put()
        assert (source.begun, source.ended, hub.topics) == (1, 1, {})
        with Subscription(hub, "p", source.make) as place:
            await source.put(b"a")
            assert await anext(place.events()) == b"data: a\n\n"
        assert source.begun == 2

    asyncio.run(use())


def test_a_slow_subscriber_gets_the_latest_state() -> None:
    """What it has missed is not kept."""

    async def use() -> None:
        source = Source()
        with Subscription(Hub(), "p", source.make) as place:
            stream = place.events()
            await source.put(b"a")
            assert await anext(stream) == b"data: a\n\n"
            await source.put(*(b"%d" % i for i in range(50)))
            assert await anext(stream) == b"data: 49\n\n"
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(stream), 0.01)

    asyncio.run(use())


def test_a_stream_ends_with_its_states() -> None:
    """After the last one; a later subscriber gets states made anew."""

    async def use() -> None:
        hub, source = Hub(), Source()
        with Subscription(hub, "p", source.make) as place:
            await source.put(b"a", None)
            assert [one async for one in place.events()] == [b"data: a\n\n"]
            with Subscription(hub, "p", source.make) as later:
                await source.put(b"b", None)
                assert [one async for one in later.events()] == [b"data: b\n\n"]
            assert hub.topics == {}

    asyncio.run(use())


def test_states_that_cannot_be_made_end_their_streams(caplog: pytest.LogCaptureFixture) -> None:
    """The error is logged, and other pages go on."""

    async def fail() -> AsyncIterator[bytes]:
        yield b"a"
        raise ValueError("broken")

    async def use() -> None:
        hub, source = Hub(), Source()
        with (
            Subscription(hub, "p", fail) as place,
            Subscription(hub, "q", source.make) as other,
        ):
            assert [one async for one in place.events()] == [b"data: a\n\n"]
            await source.put(b"b")
            assert await anext(other.events()) == b"data: b\n\n"

    with caplog.at_level(logging.ERROR):
        asyncio.run(use())
    assert "ValueError: broken" in caplog.text


def test_a_silent_stream_says_that_it_is_there() -> None:
    """A comment, which browsers ignore: a connection that has gone is noticed by it."""

    async def use() -> None:
        with Subscription(Hub(), "p", Source().make) as place:
            stream = place.events(heartbeat_s=0.0)
            assert [await anext(stream), await anext(stream)] == [b":\n\n"] * 2

    asyncio.run(use())


def test_places_are_counted_over_all_pages() -> None:
    """And given back."""

    async def use() -> None:
        hub, source = Hub(), Source()
        with ExitStack() as stack:
            for i in range(MOST_SUBSCRIBERS):
                assert not hub.is_full
                stack.enter_context(Subscription(hub, f"p{i % 7}", source.make))
            assert hub.is_full
        assert not hub.is_full

    asyncio.run(use())
