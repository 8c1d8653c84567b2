"""Holds the memory of outputs that runners have handed over and that are not judged."""

import asyncio
import contextlib
import mmap
import os

from tileyard.workers.handing_over import IN_MESSAGE_BYTES, ROOM_BYTES
from tileyard.workers.protocol import CaseRan, Extent

READY = 4
"""Outputs with memory allocated beforehand: one being written, one being judged, and two waiting."""
_TOUCHED_BYTES = 1 << 20


class HandedOver:
    """The memory of a run's runners, one part per device, so that it outlives the runner that wrote it."""

    def __init__(self, room_bytes: int = ROOM_BYTES) -> None:
        """``room_bytes`` are shared by all devices; ``peak_bytes`` is the maximum that waited at once."""
        self._room_bytes = room_bytes
        self._ready_bytes = 0
        self._memories: dict[str, int] = {}
        self._taken: dict[str, dict[str, tuple[Extent, ...]]] = {}
        self._judged: dict[str, list[str]] = {}
        self.peak_bytes = 0

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors that the judge inherits."""
        return tuple(self._memories.values())

    def open(self, device: str) -> int:
        """The descriptor of a device's memory, which is created at the first call."""
        if device not in self._memories:
            self._memories[device] = os.memfd_create("tileyard-outputs", os.MFD_CLOEXEC)
            self._taken[device], self._judged[device] = {}, []
        return self._memories[device]

    def room_bytes(self, device: str) -> int:
        """Bytes of a device's outputs that may wait for the judge; 0 for a device that hands none over."""
        return self._room_bytes // len(self._memories) if device in self._memories else 0

    async def make_ready(self, output_bytes: int, count: int) -> None:
        """Allocate memory for ``count`` outputs before a device is held; without any, a runner says so."""
        if output_bytes <= IN_MESSAGE_BYTES or output_bytes * count <= self._ready_bytes:
            return
        ready, self._ready_bytes = self._ready_bytes, output_bytes * count
        for device, memory in self._memories.items():
            end = min(self._ready_bytes, max(self.room_bytes(device), output_bytes))
            if ready < end:
                with contextlib.suppress(OSError):
                    await asyncio.to_thread(_touch, memory, ready, end)

    def taken(self, device: str) -> tuple[Extent, ...]:
        """The parts of a device's memory that must not be overwritten."""
        return tuple(extent for each in self._taken[device].values() for extent in each)

    def take(self, device: str, ran: CaseRan) -> int:
        """Keep the outputs of a case until it is judged; return their size in bytes."""
        extents = tuple(output.extent for output in ran.outputs if output.extent is not None)
        if extents:
            self._taken[device][ran.case] = extents
            waiting = (
                one for each in self._taken.values() for ones in each.values() for one in ones
            )
            self.peak_bytes = max(self.peak_bytes, sum(extent.size for extent in waiting))
        return sum(extent.size for extent in extents)

    def free(self, case: str) -> None:
        """Free the outputs of a case, if it has any."""
        for device, taken in self._taken.items():
            if taken.pop(case, None) is not None:
                self._judged[device].append(case)

    def take_judged(self, device: str) -> tuple[str, ...]:
        """The cases whose memory is free again and whose device does not know it yet."""
        judged, self._judged[device] = tuple(self._judged[device]), []
        return judged

    def close(self) -> None:
        """Free the memory. No runner and no judge may still need it."""
        for descriptor in self._memories.values():
            os.close(descriptor)
        self._memories.clear()
        self._taken.clear()


def _touch(memory: int, start: int, end: int) -> None:
    """Have the system allocate and clear pages; their content stays. Raises OSError."""
    os.posix_fallocate(memory, start, end - start)
    flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
    # In steps, since each one blocks the interpreter.
    for at in range(start - start % mmap.PAGESIZE, end, _TOUCHED_BYTES):
        mmap.mmap(memory, min(_TOUCHED_BYTES, end - at), flags=flags, offset=at).close()
