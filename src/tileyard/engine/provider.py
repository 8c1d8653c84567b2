"""Where devices come from: this host's own locks, or a queue that is already there.

The engine knows a device as a *slot*. A slot of this host borrows its device and keeps a runner
warm; a slot of a foreign queue submits our runner as a task of that queue. What follows from a
batch's fate (retry, blame, order) is decided by the engine and is the same for both.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from tileyard.model import Batch, Case, Device, KernelWork, Outcome, Record
from tileyard.workers.protocol import CaseRan, RunEntry


class Waiting(Record):
    """Somebody else has a device: who, and our place in its queue; 0 and empty where unknown."""

    place: int = 0
    holder: str = ""


class LeaseLostError(Exception):
    """A device could not be had, or its runner ended before it turned to any case.

    ``outcome`` is ``queue_timeout`` where it did not come in time, else ``infra_error``.
    """

    def __init__(self, message: str, outcome: Outcome = Outcome.INFRA_ERROR) -> None:
        super().__init__(message)
        self.message = message
        self.outcome = outcome


class Watch(Protocol):
    """What a slot tells of a batch while it runs."""

    def began(self, case: str) -> None:
        """The runner turned to this case: whatever happens next is its doing."""

    def ran(self, reply: CaseRan, device: str, lease: int) -> None:
        """A case ended, on this device and under this lease.

        ``infra_error`` says that the device or the host was at fault: the engine may run the case
        again. Every other outcome is final.
        """


class Slot(Protocol):
    """A place in which batches run, one after another.

    ``device`` is what the engine plans with: name, identity, cores. ``appetite`` is how many cases
    it takes at once if so many are ready; 0 leaves that to the engine.
    """

    device: Device
    appetite: int

    async def warm(self) -> None:
        """Make ready what ``acquire`` needs besides the device, if anything; it is called soon.

        Tells of no failure: ``acquire`` tries again. Harmless when repeated.
        """

    async def acquire(self, memory_bytes: int, waiting: Callable[[Waiting], None]) -> int:
        """Return the number of the lease once it is held; 0 where none is held between batches.

        Calls ``waiting`` if that takes longer than asking. Cancelled, it holds nothing. Raises
        LeaseLostError where the device is sick, its runner does not start, or the queue limit
        passes; then nothing is held either.
        """

    async def run(self, batch: Batch, entries: Sequence[RunEntry], watch: Watch) -> bool:
        """Run ``entries``, members of ``batch``; return whether the lease is still held.

        ``watch.ran`` is called at most once for each entry. Entries for which it was not called are
        still to be run: after a fault the slot blames the one case that was running, and leaves
        the rest. At least one entry is answered, or LeaseLostError is raised, or what was to run was
        withdrawn before it began, or the lease is given up since its process has run too much for a ``fresh`` batch.
        """

    async def release(self) -> None:
        """End the runner and give the lease up. Harmless where nothing is held."""


class UnheldSlot:
    """What there is to a slot of which nothing is held between batches."""

    async def warm(self) -> None:
        """Nothing is made ready before a batch."""

    async def acquire(self, memory_bytes: int, waiting: Callable[[Waiting], None]) -> int:
        """Whatever is to be waited for, the batch itself waits for."""
        return 0

    async def release(self) -> None:
        """Nothing is held."""


class LeaseProvider(Protocol):
    """Gives the engine its slots, one for each batch that may run at the same time."""

    slots: Sequence[Slot]

    async def open(self) -> None:
        """Make sure that the devices can be asked for, before anything is built.

        Raises a TileyardError where they cannot.
        """

    def withdraw(self) -> None:
        """What is planned is dropped: take back what a queue was given and has not begun.

        The slots' ``run`` then returns without an answer for it.
        """

    async def close(self) -> None:
        """Give everything up; ends whatever still runs."""


def case_limit_s(batch: Batch, case: Case) -> float:
    """How long a member of a batch may run: while kernels are timed in turn their limits add up."""
    if batch.order == "interleaved" and isinstance(case.work, KernelWork):
        return sum(member.limits.run_s for member in batch.cases)
    return case.limits.run_s
