"""Slots without a device: they limit the number of programs that run at the same time.

For simulators and whatever else runs on a CPU and shares it. Nothing is leased; the step host runs
the programs and ends each at its own limit.
"""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

from tileyard.engine.hosting import StepHost
from tileyard.engine.provider import LeaseLostError, Slot, UnheldSlot, Watch
from tileyard.errors import TileyardError
from tileyard.model import Batch, Device, Outcome
from tileyard.workers.protocol import BatchRan, CaseBegan, CaseRan, RunBatch, RunEntry

KIND = "slot"


def make_slots(count: int) -> tuple[Device, ...]:
    """Slots as devices that own nothing."""
    return tuple(
        Device(name=f"{KIND}:{number}", kind=KIND, identity="anonymous slot")
        for number in range(count)
    )


class AnonymousSlots:
    """A provider of such slots, all served by one host, which it does not own."""

    def __init__(self, host: StepHost, devices: Sequence[Device]) -> None:
        self._host = host
        self._stopping: asyncio.Future[None] | None = None
        suspects: set[str] = set()
        self.slots: Sequence[Slot] = tuple(_Slot(host, device, suspects) for device in devices)

    async def open(self) -> None:
        """Nothing has to be asked for."""

    def withdraw(self) -> None:
        """Have no further case of what runs begun."""
        self._stopping = asyncio.ensure_future(self._host.stop_batches())

    async def close(self) -> None:
        """The host ends what still runs."""
        if self._stopping is not None:
            await asyncio.wait({self._stopping})


class _Slot(UnheldSlot):
    """One program at a time; it is always free, and its host runs already."""

    appetite = 0

    def __init__(self, host: StepHost, device: Device, suspects: set[str]) -> None:
        """``suspects`` are cases that were running when a host died."""
        self.device = device
        self._host = host
        self._suspects = suspects

    async def run(self, batch: Batch, entries: Sequence[RunEntry], watch: Watch) -> bool:
        """Run them all; see ``Slot``. A suspect has a host of its own, so that it takes nobody along."""
        if self._suspects.isdisjoint(entry.case for entry in entries):
            return await self._run(self._host, batch, entries, watch)
        async with aclosing(self._host.another()) as host:
            return await self._run(host, batch, entries, watch)

    async def _run(
        self, host: StepHost, batch: Batch, entries: Sequence[RunEntry], watch: Watch
    ) -> bool:
        request = RunBatch(batch=batch, entries=tuple(entries), plugins={}, device=self.device)
        current = ""
        try:
            async for reply in host.follow(request):
                match reply:
                    case CaseBegan(case=case):
                        current = case
                        watch.began(case)
                    case CaseRan():
                        current = ""
                        watch.ran(reply, self.device.name, 0)
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
            watch.ran(lost, self.device.name, 0)
            return True
        raise AssertionError("a step host ended a batch without saying so")
