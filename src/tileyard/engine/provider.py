"""Defines what feeds the engine: a verb's choice of cases; and the sources of devices: this host's own
locks, or an existing queue. A *slot* of this host borrows its device and keeps a runner warm; one of a queue
submits our runner as a task. The engine decides what follows from a batch's fate.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from tileyard.base.model import Batch, Case, Device, KernelWork, Outcome, Record, Trial
from tileyard.workers.protocol import CaseRan, RunEntry


class CaseSource(Protocol):
    """Feeds the engine. A suite is a fixed source; a study's strategy reacts to results."""

    async def ask(self, limit: int) -> Sequence[Batch]:
        """The next batches to start, best first; none right now if empty. May take long; one call at a
        time.
        """

    def tell(self, trial: Trial) -> None:
        """Take in how a case ended. Builds that failed are trials too."""

    def done(self) -> bool:
        """Whether no further batches will ever come."""


class Waiting(Record):
    """Somebody else has a device: who, and our place in its queue; 0 and empty if unknown."""

    place: int = 0
    holder: str = ""


class LeaseLostError(Exception):
    """A device did not come in time (``queue_timeout``), or its runner began no case (``infra_error``)."""

    def __init__(self, message: str, outcome: Outcome = Outcome.INFRA_ERROR) -> None:
        super().__init__(message)
        self.message = message
        self.outcome = outcome


def infra_error(case: str, message: str) -> CaseRan:
    """The answer for a case that the device, the host or the queue has failed."""
    return CaseRan(case=case, outcome=Outcome.INFRA_ERROR, seconds=0.0, message=message)


class Watch(Protocol):
    """Receives what a slot reports of a batch while it runs."""

    def began(self, case: str) -> None:
        """The runner turned to this case: what happens next is attributed to the case."""

    def ran(self, reply: CaseRan, device: str, lease: int) -> None:
        """A case ended, on this device and under this lease; ``infra_error`` alone is not final."""


class Slot(Protocol):
    """A place where batches run, one after another. ``device`` is what the engine plans with; ``appetite``
    the number of cases it takes at once if as many are ready, 0 for the engine's choice.
    """

    device: Device
    appetite: int

    async def warm(self) -> None:
        """Prepare what ``acquire`` needs besides the device, which reports failures. Repeatable."""

    async def acquire(self, memory_bytes: int, waiting: Callable[[Waiting], None]) -> int:
        """Return the number of the lease once held; 0 if none is held between batches. Calls
        ``waiting`` if that takes long. Raises LeaseLostError if the device is sick, its runner does
        not start, or the queue limit passes. Holds nothing then, or if cancelled.
        """

    async def run(self, batch: Batch, entries: Sequence[RunEntry], watch: Watch) -> bool:
        """Run ``entries`` of ``batch``; return whether the lease is still held. ``watch.ran`` is called at
        most once for each; the rest must still run: a fault is blamed on the case that was running. At least
        one is answered, or LeaseLostError is raised, or what had not begun was withdrawn, or the lease is
        given up because its process has run too much for a ``fresh`` batch.
        """

    async def release(self) -> None:
        """End the runner and give the lease up. Harmless if nothing is held."""

    async def recover(self) -> None:
        """Return once a device that was given up can be asked for again. One with locks is probed instead."""


class UnrecoveredSlot:
    """A slot of which nothing but a probe tells that its device is well again."""

    async def recover(self) -> None:
        """Never return."""
        await asyncio.get_running_loop().create_future()


class UnheldSlot(UnrecoveredSlot):
    """The methods of a slot that holds nothing between batches."""

    async def warm(self) -> None:
        """Do nothing: nothing is prepared before a batch."""

    async def acquire(self, memory_bytes: int, waiting: Callable[[Waiting], None]) -> int:
        """Return at once: the batch itself waits for what it needs."""
        return 0

    async def release(self) -> None:
        """Do nothing: nothing is held."""


Join = Callable[[Sequence[Slot], Mapping[str, Sequence[Device]]], None]
"""Receives slots that come while a run goes on, and their devices by the targets whose cases they run."""


class LeaseProvider(Protocol):
    """Gives the engine its slots, one for each batch that may run at the same time."""

    slots: Sequence[Slot]

    async def open(self) -> None:
        """Make sure that the devices can be asked for, before anything is built. Raises TileyardError."""

    def withdraw(self) -> None:
        """Take back what a queue has not begun; the slots' ``run`` returns without an answer for it."""

    async def close(self) -> None:
        """Give everything up; ends whatever still runs."""


def case_limit_s(batch: Batch, case: Case) -> float:
    """Seconds that a member of a batch may run: while kernels are timed in turn their limits add up."""
    if batch.order == "interleaved" and isinstance(case.work, KernelWork):
        return sum(member.limits.run_s for member in batch.cases)
    return case.limits.run_s
