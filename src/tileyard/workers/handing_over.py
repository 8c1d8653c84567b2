"""Passes outputs from a runner to the judge: in memory that both processes share, or in the message itself.
It is an anonymous file of the engine's, whose descriptor both inherit: nobody else can open it.
"""

import contextlib
import ctypes
import mmap
import os
from collections.abc import Iterable, Iterator
from math import prod

import msgspec
import numpy as np
from numpy.typing import NDArray

from tileyard.base.model import TensorSpec
from tileyard.ir.dtypes import find_dtype, name_of
from tileyard.targets.base import Array
from tileyard.workers.protocol import Extent, HandedOutput

IN_MESSAGE_BYTES = 4096
"""Most bytes of an output that travels in the message: it is not worth a page of memory."""

ROOM_BYTES = 512 << 20
"""Most bytes of outputs handed over and not judged, unless one interleaved batch or case has more.
Several of the largest kernels fit in: a device rarely waits for the judge.
"""
MAPPED_BYTES = 128 << 20
"""Bytes that stay mapped: the more is mapped, the longer the end of a process takes."""
_PROT_NONE, _PROT_WRITE = 0, mmap.PROT_READ | mmap.PROT_WRITE


class OutputMemory:
    """The runner's side: finds room for outputs, which are written there or copied to it. It stays
    mapped, which is cheaper than filling; only what the present case writes is accessible.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._taken: list[Extent] = []
        self._made: dict[int, Extent] = {}
        self._handed: dict[str, list[Extent]] = {}
        self._mapped: dict[Extent, NDArray[np.uint8]] = {}
        self._case = ""
        self._protect = ctypes.CDLL(None, use_errno=True).mprotect
        os.set_inheritable(descriptor, False)

    def begin(self, taken: Iterable[Extent]) -> None:
        """Protect these extents, and no others: their outputs are not judged yet."""
        self.turn_to("")
        self._taken = sorted(taken, key=lambda extent: extent.start)
        self._handed.clear()

    def turn_to(self, case: str) -> None:
        """From now on take outputs of this case, and free the room of arrays that were not handed over."""
        for extent in self._made.values():
            self._close(extent)
            self._taken.remove(extent)
        self._made.clear()
        self._case = case

    def free(self, cases: Iterable[str]) -> None:
        """Free the room that these cases took since ``begin``: their outputs are judged."""
        for extent in (extent for case in cases for extent in self._handed.pop(case, ())):
            self._taken.remove(extent)

    def unmap(self) -> bool:
        """Unmap, to leave more of the address space to a kernel; False if nothing was mapped."""
        unmapped, self._mapped = self._mapped, {}
        return bool(unmapped)

    def allocate(self, shape: tuple[int, ...], dtype: "np.dtype[np.generic]") -> Array:
        """An array for an output, at the start of a page; ``put`` need not copy it. Raises MemoryError."""
        size = prod(shape) * dtype.itemsize
        if size <= IN_MESSAGE_BYTES:
            return _as_array(mmap.mmap(-1, IN_MESSAGE_BYTES), shape, dtype)
        extent = self._take_room(size)
        array = _as_array(self._open(extent), shape, dtype)
        self._made[array.ctypes.data] = extent
        return array

    def put(self, name: str, array: Array) -> HandedOutput:
        """Hand an output over. Raises MemoryError, and InvalidProgramError for an unknown dtype."""
        handed = HandedOutput(name=name, dtype=name_of(array.dtype), shape=array.shape)
        if array.nbytes <= IN_MESSAGE_BYTES:
            return msgspec.structs.replace(handed, data=array.tobytes())
        extent = self._made.pop(array.ctypes.data, None) or self._copy(array)
        self._handed.setdefault(self._case, []).append(extent)
        self._close(extent)
        return msgspec.structs.replace(handed, memory=self._descriptor, extent=extent)

    def _copy(self, array: Array) -> Extent:
        bits = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        extent = self._take_room(bits.nbytes)
        # A system call writes as fast as memory that is mapped for one use, and needs no address space.
        with contextlib.suppress(MemoryError):
            if extent in self._mapped or self._mapped_bytes + extent.size <= MAPPED_BYTES:
                self._open(extent)[: bits.nbytes] = bits
                return extent
        done = 0
        while done < bits.nbytes:  # one call may write less than it is given
            done += os.pwrite(self._descriptor, bits[done:].data, extent.start + done)
        return extent

    @property
    def _mapped_bytes(self) -> int:
        return sum(extent.size for extent in self._mapped)

    def _take_room(self, size: int) -> Extent:
        """The lowest gap, its pages most likely used before: the first touch of a page costs most."""
        page = mmap.PAGESIZE
        need, start, place = -(-size // page) * page, 0, 0
        if not self._taken and os.fstat(self._descriptor).st_size > max(need, ROOM_BYTES):
            self.unmap()
            os.ftruncate(self._descriptor, max(need, ROOM_BYTES))  # drop an unusual excess
        for place, extent in enumerate([*self._taken, _END]):  # noqa: B007 - the last one is the end
            if extent.start - start >= need:
                break
            start = extent.start + extent.size
        self._reserve(start + need)
        found = Extent(start=start, size=need)
        self._taken.insert(place, found)
        return found

    def _reserve(self, end: int) -> None:
        """Allocate memory up to ``end``: a page that is not available ends a process that writes to it."""
        size = os.fstat(self._descriptor).st_size
        if size < end:
            with _as_memory_error():
                os.posix_fallocate(self._descriptor, size, end - size)

    def _open(self, extent: Extent) -> NDArray[np.uint8]:
        """The bytes of an extent, writable. Raises MemoryError."""
        known = self._mapped.pop(extent, None)
        if known is not None:
            self._set_access(known, _PROT_WRITE)
            self._mapped[extent] = known
            return known
        while self._mapped and self._mapped_bytes + extent.size > MAPPED_BYTES:
            del self._mapped[next(iter(self._mapped))]  # the least recently used one
        flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
        with _as_memory_error():
            mapped = mmap.mmap(self._descriptor, extent.size, flags=flags, offset=extent.start)
        self._mapped[extent] = np.frombuffer(mapped, np.uint8)
        return self._mapped[extent]

    def _close(self, extent: Extent) -> None:
        """Make an extent inaccessible; an unmapped one is that already, but for a launch that is over."""
        if extent in self._mapped:
            self._set_access(self._mapped[extent], _PROT_NONE)

    def _set_access(self, mapped: NDArray[np.uint8], access: int) -> None:
        address, size = ctypes.c_void_p(mapped.ctypes.data), ctypes.c_size_t(mapped.nbytes)
        if self._protect(address, size, access):
            raise OSError(ctypes.get_errno(), "cannot protect outputs")


_END = Extent(start=1 << 62, size=0)


@contextlib.contextmanager
def _as_memory_error() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise MemoryError(f"no memory to keep outputs in: {error.strerror}") from error


def _as_array(
    mapped: mmap.mmap | NDArray[np.uint8], shape: tuple[int, ...], dtype: "np.dtype[np.generic]"
) -> Array:
    """The start of a mapping as an array; the mapping lasts as long as the array."""
    array: Array = np.frombuffer(mapped, dtype, count=prod(shape)).reshape(shape)
    return array


def count_output_bytes(specs: Iterable[TensorSpec]) -> int:
    """Bytes of the parameters that a kernel writes."""
    written = [spec for spec in specs if spec.role != "in"]
    return sum(prod(spec.shape) * find_dtype(spec.dtype).numpy.itemsize for spec in written)


def get_output(handed: HandedOutput) -> Array:
    """An output that was handed over, read-only. Raises OSError or ValueError if it is missing."""
    dtype = find_dtype(handed.dtype).numpy
    if handed.extent is None:
        return np.frombuffer(handed.data, dtype).reshape(handed.shape)
    mapped = mmap.mmap(
        handed.memory,
        handed.extent.size,
        flags=mmap.MAP_SHARED | mmap.MAP_POPULATE,
        prot=mmap.PROT_READ,
        offset=handed.extent.start,
    )
    return _as_array(mapped, handed.shape, dtype)
