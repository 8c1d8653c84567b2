"""Outputs that runners have handed over and nobody has judged: the memory that they are in, and what is taken of it."""

import asyncio
import contextlib
import mmap
import os

from tileyard.workers.handing_over import IN_MESSAGE_BYTES, ROOM_BYTES
from tileyard.workers.protocol import CaseRan, Extent

READY = 4
"""Outputs for which there is memory beforehand: one that is written, one that is judged, and two that wait."""
_TOUCHED_BYTES = 1 << 20


class HandedOver:
    """The memory of a run's runners, one part for each device, so that it outlives the runner that wrote it."""

    def __init__(self, room_bytes: int = ROOM_BYTES) -> None:
        """``room_bytes`` are shared by all devices; ``peak_bytes`` is the most that waited at once."""
        self._room_bytes = room_bytes
        self._ready_bytes = 0
        self._memories: dict[str, int] = {}
        self._taken: dict[str, dict[str, tuple[Extent, ...]]] = {}
        self._judged: dict[str, list[str]] = {}
        self.peak_bytes = 0

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What the judge has to inherit."""
        return tuple(self._memories.values())

    def open(self, device: str) -> int:
        """The descriptor of a device's memory, which is made when it is first asked for."""
        if device not in self._memories:
            self._memories[device] = os.memfd_create("tileyard-outputs", os.MFD_CLOEXEC)
            self._taken[device], self._judged[device] = {}, []
        return self._memories[device]

    def room_bytes(self, device: str) -> int:
        """How much of a device's outputs may wait for the judge; 0 for a device that hands none over."""
        return self._room_bytes // len(self._memories) if device in self._memories else 0

    async def make_ready(self, output_bytes: int, count: int) -> None:
        """Have memory for so many outputs before a device is held: it costs more to get than to fill.

        Where there is none to have, the runner will say so.
        """
        if output_bytes <= IN_MESSAGE_BYTES or output_bytes * count <= self._ready_bytes:
            return
        ready, self._ready_bytes = self._ready_bytes, output_bytes * count
        for device, memory in self._memories.items():
            end = min(self._ready_bytes, max(self.room_bytes(device), output_bytes))
            if ready < end:
                with contextlib.suppress(OSError):
                    await asyncio.to_thread(_touch, memory, ready, end)

    def taken(self, device: str) -> tuple[Extent, ...]:
        """What of a device's memory is not to be written to."""
        return tuple(extent for each in self._taken[device].values() for extent in each)

    def take(self, device: str, ran: CaseRan) -> int:
        """Keep the outputs of a case until it is judged; how many bytes of memory that are."""
        extents = tuple(output.extent for output in ran.outputs if output.extent is not None)
        if extents:
            self._taken[device][ran.case] = extents
            waiting = (
                one for each in self._taken.values() for ones in each.values() for one in ones
            )
            self.peak_bytes = max(self.peak_bytes, sum(extent.size for extent in waiting))
        return sum(extent.size for extent in extents)

    def free(self, case: str) -> None:
        """Let go of what a case has left, if anything."""
        for device, taken in self._taken.items():
            if taken.pop(case, None) is not None:
                self._judged[device].append(case)

    def take_judged(self, device: str) -> tuple[str, ...]:
        """The cases whose memory can be used again, and whose device does not know it yet."""
        judged, self._judged[device] = tuple(self._judged[device]), []
        return judged

    def close(self) -> None:
        """Give the memory back. No runner and no judge may need it any more."""
        for descriptor in self._memories.values():
            os.close(descriptor)
        self._memories.clear()
        self._taken.clear()


def _touch(memory: int, start: int, end: int) -> None:
    """Have the system find and clear pages; what is in them stays. Raises OSError."""
    os.posix_fallocate(memory, start, end - start)
    flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
    # In steps, since each holds the interpreter up.
    for at in range(start - start % mmap.PAGESIZE, end, _TOUCHED_BYTES):
        mmap.mmap(memory, min(_TOUCHED_BYTES, end - at), flags=flags, offset=at).close()
