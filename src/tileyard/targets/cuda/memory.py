"""Manages memory of a GPU: guarded, poisoned, with inputs that are uploaded once."""

import math
import weakref
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from tileyard.base.errors import KernelFault, TileyardError
from tileyard.base.model import TensorSpec
from tileyard.ir.dtypes import find_dtype
from tileyard.targets.base import Array
from tileyard.targets.cuda.driver import Driver, Gpu

GUARD_BYTES = 512
"""Bytes of the guard on each side of a buffer: the driver's own alignment, so that buffers stay aligned."""
GUARD = 0xA5
UPLOADS_SHARE = 4
"""Uploaded inputs that no launch needs may take one part in this number of a device's memory."""


class Buffer:
    """A device's memory between two guards, freed once nothing refers to it. ``address`` is its
    first byte's; errors for writes outside have ``name``.
    """

    def __init__(self, gpu: Gpu, bytes_: int, name: str) -> None:
        """Raises MemoryError."""
        self._driver = gpu.driver
        self.bytes = bytes_
        self.name = name
        # The second guard begins right after the last byte, so that a write of one element too many is found.
        whole = guarded(bytes_)
        self._behind = whole - GUARD_BYTES - bytes_
        base = int(self._driver.call("cuMemAlloc", whole))
        self.address = base + GUARD_BYTES
        weakref.finalize(self, _free, self._driver, base).atexit = False
        self.guard()

    def guard(self) -> None:
        """Write both guards."""
        set_bytes(self._driver, self.address - GUARD_BYTES, GUARD, GUARD_BYTES)
        set_bytes(self._driver, self.address + self.bytes, GUARD, self._behind)

    def check(self, kernel: str) -> None:
        """Raise KernelFault if something was written outside it."""
        places = (("before", -GUARD_BYTES, GUARD_BYTES), ("behind", self.bytes, self._behind))
        for where, offset, size in places:
            found = np.empty(size, np.uint8)
            self._driver.call("cuMemcpyDtoH", found.ctypes.data, self.address + offset, size)
            (changed,) = np.nonzero(found != GUARD)
            if changed.size:
                far = size - int(changed[-1]) if offset < 0 else int(changed[0]) + 1
                self.guard()
                raise KernelFault(
                    f"{kernel} wrote outside {self.name}: {changed.size} bytes {where} it were changed, "
                    f"the nearest {far} bytes away"
                )

    def upload(self, array: Array) -> None:
        """Copy a contiguous array to it."""
        if array.nbytes:
            self._driver.call("cuMemcpyHtoD", self.address, array.ctypes.data, array.nbytes)

    def download(self, array: Array) -> None:
        """Copy it to a contiguous array, after earlier launches have ended."""
        if array.nbytes:
            self._driver.call("cuMemcpyDtoH", array.ctypes.data, self.address, array.nbytes)

    def copy_from(self, other: "Buffer") -> None:
        """Copy another buffer's content to it."""
        if self.bytes:
            self._driver.call("cuMemcpyDtoDAsync", self.address, other.address, self.bytes, 0)


class Memory:
    """The memory that launches on one device share: uploaded arrays, and the buffer that flushes
    the L2 cache. Only read-only arrays are kept, as long as they are alive.
    """

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self._uploads: OrderedDict[int, tuple[weakref.ref[Array], Buffer]] = OrderedDict()
        self._flush: Buffer | None = None

    def upload(self, array: Array, name: str) -> Buffer:
        """A buffer with the array's content, which no kernel may write. Raises MemoryError."""
        self._forget_dead()
        known = self._uploads.get(id(array))
        if known is not None:
            self._uploads.move_to_end(id(array))
            known[1].name = name
            return known[1]
        buffer = Buffer(self.gpu, array.nbytes, name)
        buffer.upload(np.ascontiguousarray(array))
        if not array.flags.writeable:
            self._uploads[id(array)] = (weakref.ref(array), buffer)
        return buffer

    def forget_uploads(self) -> None:
        """Forget all uploads, because a kernel may have written to any of them."""
        self._uploads.clear()

    def require(self, own: int, arrays: Sequence[Array]) -> None:
        """Raise MemoryError, in one line, if the device has fewer bytes left than ``own`` and ``arrays``."""
        self._forget_dead()
        wanted = own + sum(
            guarded(array.nbytes) for array in arrays if id(array) not in self._uploads
        )
        most = int(self.gpu.driver.call("cuMemGetInfo")[1]) // UPLOADS_SHARE
        while sum(guarded(one.bytes) for _, one in self._uploads.values()) > most:
            self._uploads.popitem(last=False)  # the least recently used one
        if wanted > self.gpu.free_bytes():
            self.forget_uploads()
        free = self.gpu.free_bytes()
        if wanted > free:
            raise MemoryError(
                f"the kernel's arrays take {wanted / 2**20:.4g} MiB, "
                f"{self.gpu.name} has {free / 2**20:.4g} MiB left"
            )

    def flush_l2(self, stream: object) -> None:
        """Remove a kernel's data from the L2 cache before the next launch on this stream."""
        if self._flush is None:
            self._flush = Buffer(self.gpu, 2 * max(self.gpu.l2_bytes, 1 << 20), "the cache")
        set_bytes(self.gpu.driver, self._flush.address, 0, self._flush.bytes, stream)

    def _forget_dead(self) -> None:
        for key in [key for key, (alive, _) in self._uploads.items() if alive() is None]:
            del self._uploads[key]


def guarded(bytes_: int) -> int:
    """Bytes that a buffer of this size takes with its guards."""
    return -(-bytes_ // GUARD_BYTES) * GUARD_BYTES + 2 * GUARD_BYTES


def bytes_of(spec: TensorSpec) -> int:
    """Bytes of an array's elements."""
    return math.prod(spec.shape) * find_dtype(spec.dtype).bits // 8


def set_bytes(driver: Driver, address: int, value: int, count: int, stream: object = 0) -> None:
    """Fill memory of a device, in stream order."""
    if count:
        driver.call("cuMemsetD8Async", address, value, count, stream)


def _free(driver: Driver, base: int) -> None:
    try:
        driver.call("cuMemFree", base)
    except (TileyardError, MemoryError):
        return
