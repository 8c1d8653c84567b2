"""Batches on slots without a device, which wait for a place on the cores."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from tileyard.base.model import Batch
from tileyard.engine.hosting import AnonymousSlots, StepHost, make_slots
from tileyard.engine.provider import Watch
from tileyard.workers.protocol import BatchRan, CaseRan, RunBatch


class NotingHost(StepHost):
    """Runs nothing, and notes which batches it was given."""

    def __init__(self) -> None:
        super().__init__(Path("/nowhere"), ())
        self.ran: list[str] = []

    async def follow(self, request: object) -> AsyncIterator[BatchRan]:
        """The end of a batch."""
        assert isinstance(request, RunBatch)
        self.ran.append(request.batch.id)
        yield BatchRan(batch=request.batch.id)


class Unwatched(Watch):
    """No case begins."""

    def began(self, case: str) -> None:
        """No case begins."""
        raise AssertionError(case)

    def ran(self, reply: CaseRan, device: str, lease: int) -> None:
        """No case ends."""
        raise AssertionError(reply)


def test_a_batch_that_is_withdrawn_while_it_waits_is_not_run_and_later_ones_are() -> None:
    """A run goes on after it dropped what had not begun."""
    host = NotingHost()

    async def main() -> list[bool]:
        places = asyncio.Semaphore(1)
        slots = AnonymousSlots(host, make_slots(2), places)
        first, second = slots.slots
        await places.acquire()
        waiting = asyncio.create_task(first.run(Batch(id="early", cases=()), (), Unwatched()))
        await asyncio.sleep(0)
        slots.withdraw()
        places.release()
        replies = [await waiting, await second.run(Batch(id="late", cases=()), (), Unwatched())]
        await slots.close()
        return replies

    assert asyncio.run(main()) == [True, True]
    assert host.ran == ["late"]
