"""Provides slots without a device, which limit how many programs run at once; the step host runs them."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

from tileyard.base.errors import TileyardError
from tileyard.base.model import Batch, Device, Outcome
from tileyard.engine.hosting import StepHost
from tileyard.engine.provider import LeaseLostError, Slot, UnheldSlot, Watch
from tileyard.workers.protocol import BatchRan, CaseBegan, CaseRan, RunBatch, RunEntry

KIND = "slot"


def make_slots(count: int) -> tuple[Device, ...]:
    """Return ``count`` slots as devices that own nothing."""
    return tuple(
        Device(name=f"{KIND}:{number}", kind=KIND, identity="anonymous slot")
        for number in range(count)
    )


class AnonymousSlots:
    """A provider of anonymous slots. One host, which it does not own, serves all of them."""

    def __init__(
        self, host: StepHost, devices: Sequence[Device], places: asyncio.Semaphore
    ) -> None:
        """``places`` limit the programs that run at once, steps beside the slots included."""
        self._host = host
        self._places = places
        self._suspects: set[str] = set()  # the cases that were running when a host died
        self._stopping: asyncio.Future[None] | None = None
        self.slots: Sequence[Slot] = tuple(_Slot(self, device) for device in devices)

    async def open(self) -> None:
        """Do nothing: there is nothing to ask for."""

    def withdraw(self) -> None:
        """Begin no further case of the batches that run."""
        self._stopping = asyncio.ensure_future(self._host.stop_batches())

    async def close(self) -> None:
        """Do nothing: the host ends what still runs."""
        if self._stopping is not None:
            await asyncio.wait({self._stopping})

    async def run(self, batch: RunBatch, watch: Watch) -> bool:
        """Run a batch once there is a place; see ``Slot``. A suspect gets a host of its own."""
        stopping = self._stopping
        async with self._places:
            if self._stopping is not stopping:  # withdrawn while it waited; later batches still run
                return True
            if self._suspects.isdisjoint(entry.case for entry in batch.entries):
                return await self._run(self._host, batch, watch)
            async with aclosing(self._host.another()) as host:
                return await self._run(host, batch, watch)

    async def _run(self, host: StepHost, batch: RunBatch, watch: Watch) -> bool:
        name, current = batch.device.name, ""
        try:
            async for reply in host.follow(batch):
                match reply:
                    case CaseBegan(case=case):
                        current = case
                        watch.began(case)
                    case CaseRan():
                        current = ""
                        watch.ran(reply, name, 0)
                    case BatchRan():
                        return True
                    case _:
                        raise AssertionError(f"a step host answered a batch with {reply}")
        except TileyardError as error:
            if not current:
                raise LeaseLostError(str(error)) from error
            self._suspects.add(current)
            lost = CaseRan(
                case=current, outcome=Outcome.INFRA_ERROR, seconds=0.0, message=str(error)
            )
            watch.ran(lost, name, 0)
            return True
        raise AssertionError("a step host ended a batch without saying so")


class _Slot(UnheldSlot):
    appetite = 0

    def __init__(self, slots: AnonymousSlots, device: Device) -> None:
        self.device = device
        self._slots = slots

    async def run(self, batch: Batch, entries: Sequence[RunEntry], watch: Watch) -> bool:
        """Run all entries; see ``Slot``."""
        request = RunBatch(batch=batch, entries=tuple(entries), plugins={}, device=self.device)
        return await self._slots.run(request, watch)
