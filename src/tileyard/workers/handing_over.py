"""Outputs on their way from a runner to the judge: in memory that both processes have, or in the message itself.

The memory is an anonymous file of the engine's, whose descriptor both inherit. It has no name, so nobody
else can open it, and it is gone with the last process that has it.
"""

import contextlib
import mmap
import os
from collections.abc import Iterable, Iterator
from math import prod

import msgspec
import numpy as np

from tileyard.ir.dtypes import find_dtype, name_of
from tileyard.model import TensorSpec
from tileyard.targets.base import Array
from tileyard.workers.protocol import Extent, HandedOutput

IN_MESSAGE_BYTES = 4096
"""Outputs of up to this size travel in the message: less than a page of memory is worth."""


WINDOW_BYTES = 4 << 20
"""How much of the memory is mapped at once to copy an output: a kernel near its limit of memory has no room for two."""


class OutputMemory:
    """The runner's side: finds room for outputs, which are written there or copied to it.

    Nothing of it stays mapped but what the kernel at hand writes: one that writes where it should not meets no
    other case's outputs.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._taken: list[Extent] = []
        self._made: dict[int, Extent] = {}
        os.set_inheritable(descriptor, False)

    def begin(self, taken: Iterable[Extent]) -> None:
        """Leave these extents alone, and no others: their outputs are not judged yet."""
        self._taken = sorted(taken, key=lambda extent: extent.start)
        self._made.clear()

    def allocate(self, shape: tuple[int, ...], dtype: "np.dtype[np.generic]") -> Array:
        """An array for an output, at the beginning of a page; ``put`` need not copy it. Raises MemoryError."""
        size = prod(shape) * dtype.itemsize
        if size <= IN_MESSAGE_BYTES:
            return _as_array(mmap.mmap(-1, IN_MESSAGE_BYTES), shape, dtype)
        extent = self._take_room(size)
        array = _as_array(self._map(extent), shape, dtype)
        self._made[array.ctypes.data] = extent
        return array

    def put(self, name: str, array: Array) -> HandedOutput:
        """Hand an output over. Raises MemoryError, and InvalidProgramError for an unknown dtype."""
        handed = HandedOutput(name=name, dtype=name_of(array.dtype), shape=array.shape)
        if array.nbytes <= IN_MESSAGE_BYTES:
            return msgspec.structs.replace(handed, data=array.tobytes())
        extent = self._made.pop(array.ctypes.data, None) or self._copy(array)
        return msgspec.structs.replace(handed, memory=self._descriptor, extent=extent)

    def drop(self) -> None:
        """Take back the room of arrays that were not handed over."""
        for extent in self._made.values():
            self._taken.remove(extent)
        self._made.clear()

    def _copy(self, array: Array) -> Extent:
        bits = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        extent = self._take_room(bits.nbytes)
        for start in range(0, bits.nbytes, WINDOW_BYTES):
            part = bits[start : start + WINDOW_BYTES]
            window = self._map(Extent(start=extent.start + start, size=part.nbytes))
            np.frombuffer(window, np.uint8)[:] = part
        return extent

    def _take_room(self, size: int) -> Extent:
        """The lowest gap, whose pages were most likely used before: the first touch of a page costs more than a copy."""
        page = mmap.PAGESIZE
        need, start, place = -(-size // page) * page, 0, 0
        if not self._taken and os.fstat(self._descriptor).st_size > max(need, ROOM_BYTES):
            os.ftruncate(self._descriptor, max(need, ROOM_BYTES))  # what an unusual size has left
        for place, extent in enumerate([*self._taken, _END]):  # noqa: B007 - the last one is the end
            if extent.start - start >= need:
                break
            start = extent.start + extent.size
        self._reserve(start + need)
        found = Extent(start=start, size=need)
        self._taken.insert(place, found)
        return found

    def _reserve(self, end: int) -> None:
        """Have memory up to there: a page that is not to be had ends a process that writes to it."""
        size = os.fstat(self._descriptor).st_size
        if size < end:
            with _as_memory_error():
                os.posix_fallocate(self._descriptor, size, end - size)

    def _map(self, extent: Extent) -> mmap.mmap:
        with _as_memory_error():
            flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
            return mmap.mmap(self._descriptor, extent.size, flags=flags, offset=extent.start)


_END = Extent(start=1 << 62, size=0)


@contextlib.contextmanager
def _as_memory_error() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise MemoryError(f"no memory to keep outputs in: {error.strerror}") from error


def _as_array(mapped: mmap.mmap, shape: tuple[int, ...], dtype: "np.dtype[np.generic]") -> Array:
    """The beginning of a mapping, which lasts as long as the array."""
    raw = np.frombuffer(mapped, np.uint8, count=prod(shape) * dtype.itemsize)
    array: Array = raw.view(dtype).reshape(shape)
    return array


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
    return _as_array(mapped, handed.shape, dtype)
