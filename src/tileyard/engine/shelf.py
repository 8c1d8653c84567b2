"""A provider that runs nothing: what is ready to run is laid on a shelf, to be packed."""

from collections.abc import Callable, Sequence

from tileyard.engine.provider import Slot, Waiting, Watch
from tileyard.model import Batch, Device, Outcome
from tileyard.workers.protocol import CaseRan, RunEntry

MESSAGE = "built to be run elsewhere"


class Shelf:
    """Ends every case as skipped, and keeps what a runner would have been given, by the case."""

    def __init__(self, devices: Sequence[Device]) -> None:
        self.entries: dict[str, RunEntry] = {}
        self.slots: Sequence[Slot] = tuple(_Place(device, self.entries) for device in devices)

    async def open(self) -> None:
        """Nothing has to be asked for."""

    def withdraw(self) -> None:
        """Nothing runs."""

    async def close(self) -> None:
        """Nothing is held."""


class _Place:
    appetite = 0

    def __init__(self, device: Device, entries: dict[str, RunEntry]) -> None:
        self.device = device
        self._entries = entries

    async def warm(self) -> None:
        """Nothing has to be started."""

    async def acquire(self, memory_bytes: int, waiting: Callable[[Waiting], None]) -> int:
        """Always free."""
        return 0

    async def release(self) -> None:
        """Nothing is held."""

    async def run(self, batch: Batch, entries: Sequence[RunEntry], watch: Watch) -> bool:
        """Keep them all."""
        for entry in entries:
            self._entries[entry.case] = entry
            reply = CaseRan(case=entry.case, outcome=Outcome.SKIPPED, seconds=0.0, message=MESSAGE)
            watch.ran(reply, self.device.name, 0)
        return True
