"""Devices that a run has given up are called one at a time each, and left alone completely at the end."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from tileyard.base.model import Batch, Device
from tileyard.engine.commands import Readmitted
from tileyard.engine.provider import UnheldSlot, Watch
from tileyard.engine.readmission import Readmission
from tileyard.workers.protocol import RunEntry

HOUR_S = 3600.0


class Called(UnheldSlot):
    """A slot whose host is called until ``is_well``, and needs a moment to be left alone."""

    appetite = 0

    def __init__(self, name: str) -> None:
        self.device = Device(name=name, kind="npu", identity="x")
        self.is_well = asyncio.Event()
        self.may_end = asyncio.Event()
        self.said: list[str] = []

    async def run(self, batch: Batch, entries: Sequence[RunEntry], watch: Watch) -> bool:
        """Is not called."""
        raise NotImplementedError

    async def recover(self) -> None:
        """See ``Slot``."""
        self.said.append("begun")
        try:
            await self.is_well.wait()
        except asyncio.CancelledError:
            await self.may_end.wait()
            self.said.append("ended")
            raise


def use(steps: Callable[[Readmission, Called], Awaitable[None]]) -> list[str]:
    """What is said of one device in these steps."""
    told: list[str] = []

    async def run() -> None:
        slot = Called("npu:0@a")

        def tell(fact: Readmitted) -> None:
            told.append(fact.device)

        try:
            await steps(Readmission([slot], HOUR_S, tell), slot)
        finally:
            slot.may_end.set()
        told.extend(slot.said)

    asyncio.run(run())
    return told


async def settle() -> None:
    """Let all tasks go on until they wait."""
    for _ in range(10):
        await asyncio.sleep(0)


def test_a_device_that_is_well_again_is_reported() -> None:
    """Once."""

    async def steps(readmission: Readmission, slot: Called) -> None:
        readmission.look_after(["npu:0@a"])
        readmission.look_after(["npu:0@a"])
        slot.is_well.set()
        await settle()
        await readmission.close()

    assert use(steps) == ["npu:0@a", "begun"]


def test_the_end_waits_for_what_was_begun() -> None:
    """Also for a device that was dropped before: an agent that is being started is not left alone."""

    async def steps(readmission: Readmission, slot: Called) -> None:
        readmission.look_after(["npu:0@a"])
        await settle()
        readmission.look_after([])  # does not wait
        closing = asyncio.ensure_future(readmission.close())
        await settle()
        assert not closing.done()
        slot.may_end.set()
        await closing

    assert use(steps) == ["begun", "ended"]


def test_a_device_is_called_again_after_it_was_left_alone() -> None:
    """Two calls at a time would be two agents of one session."""

    async def steps(readmission: Readmission, slot: Called) -> None:
        readmission.look_after(["npu:0@a"])
        await settle()
        readmission.look_after([])
        readmission.look_after(["npu:0@a"])
        await settle()
        assert slot.said == ["begun"]
        slot.may_end.set()
        await settle()
        await readmission.close()

    assert use(steps) == ["begun", "ended", "begun", "ended"]
