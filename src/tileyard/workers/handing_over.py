"""Outputs on their way from a runner to the judge: in memory that both processes have, or in the message itself.

The memory is an anonymous file of the engine's, whose descriptor both inherit. It has no name, so nobody
else can open it, and it is gone with the last process that has it.
"""

import mmap
import os
from collections.abc import Iterable
from math import prod

import numpy as np

from tileyard.ir.dtypes import find_dtype, name_of
from tileyard.model import TensorSpec
from tileyard.targets.base import Array
from tileyard.workers.protocol import Extent, HandedOutput

IN_MESSAGE_BYTES = 4096
"""Outputs of up to this size travel in the message: less than a page of memory is worth."""


class OutputMemory:
    """The runner's side: finds room for outputs, and writes them there.

    Written by system calls and not through a mapping, so that neither the runner's limit of its address
    space nor a kernel that writes where it should not has anything to do with it.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._taken: list[Extent] = []
        os.set_inheritable(descriptor, False)

    def begin(self, taken: Iterable[Extent]) -> None:
        """Leave these extents alone, and no others: their outputs are not judged yet."""
        self._taken = sorted(taken, key=lambda extent: extent.start)

    def put(self, name: str, array: Array) -> HandedOutput:
        """Hand over a copy of an output. Raises MemoryError, and InvalidProgramError for an unknown dtype."""
        bits = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        handed = HandedOutput(name=name, dtype=name_of(array.dtype), shape=array.shape)
        if bits.nbytes <= IN_MESSAGE_BYTES:
            return HandedOutput(
                name=handed.name, dtype=handed.dtype, shape=handed.shape, data=bits.tobytes()
            )
        place, extent = self._find_room(bits.nbytes)
        self._write(bits.data, extent.start)
        self._taken.insert(place, extent)
        return HandedOutput(
            name=handed.name,
            dtype=handed.dtype,
            shape=handed.shape,
            memory=self._descriptor,
            extent=extent,
        )

    def _find_room(self, size: int) -> tuple[int, Extent]:
        """The lowest gap, whose pages were most likely used before: the first touch of a page costs more than a copy."""
        page = mmap.PAGESIZE
        need, start = -(-size // page) * page, 0
        for place, extent in enumerate(self._taken):
            if extent.start - start >= need:
                return place, Extent(start=start, size=need)
            start = extent.start + extent.size
        if not self._taken:
            self._drop_behind(need)
        return len(self._taken), Extent(start=start, size=need)

    def _drop_behind(self, need: int) -> None:
        """Give back what an earlier output of unusual size has left."""
        if os.fstat(self._descriptor).st_size > max(need, ROOM_BYTES):
            os.ftruncate(self._descriptor, max(need, ROOM_BYTES))

    def _write(self, rest: memoryview, start: int) -> None:
        try:
            while rest:
                written = os.pwrite(self._descriptor, rest, start)
                rest, start = rest[written:], start + written
        except OSError as error:
            raise MemoryError(f"no memory to keep outputs in: {error.strerror}") from error


ROOM_BYTES = 512 << 20
"""The most bytes of outputs in all that are handed over and not judged, unless those of one batch are more.

Several outputs of the largest kernels fit in, so that a device rarely waits for the judge; on a host with
little memory it is a small part of what such kernels' inputs and references take.
"""


def count_output_bytes(specs: Iterable[TensorSpec]) -> int:
    """The size of the parameters that a kernel writes."""
    written = [spec for spec in specs if spec.role != "in"]
    return sum(prod(spec.shape) * find_dtype(spec.dtype).numpy.itemsize for spec in written)


def get_output(handed: HandedOutput) -> Array:
    """An output that was handed over, read-only. Raises OSError or ValueError where it is not there."""
    dtype = find_dtype(handed.dtype).numpy
    if handed.extent is None:
        return np.frombuffer(handed.data, dtype=np.uint8).view(dtype).reshape(handed.shape)
    mapped = mmap.mmap(
        handed.memory,
        handed.extent.size,
        flags=mmap.MAP_SHARED | mmap.MAP_POPULATE,
        prot=mmap.PROT_READ,
        offset=handed.extent.start,
    )
    count = prod(handed.shape) * dtype.itemsize
    array: Array = np.frombuffer(mapped, dtype=np.uint8, count=count).view(dtype)
    return array.reshape(handed.shape)
