"""The C runtime as Python sees it: pools of threads, one for each set of cores, and launches."""

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tileyard.errors import BindError
from tileyard.targets.cpu.told import LineTable, Report

_Pointers = ctypes.Array[ctypes.c_void_p]
_Numbers = ctypes.Array[ctypes.c_int64]


class Call(ctypes.Structure):
    """``ty_call`` of runtime.c."""

    _fields_ = (
        ("kernel", ctypes.c_void_p),
        ("buffers", ctypes.c_void_p),
        ("scalars", ctypes.c_void_p),
        ("grids", ctypes.c_void_p),
        ("grid_count", ctypes.c_int64),
        ("claims", ctypes.c_int64),
        ("tags", ctypes.c_int64),
    )


class Runtime:
    """``runtime.so`` loaded."""

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        self.open = library.ty_pool_open
        self.open.restype = ctypes.c_void_p
        self.open.argtypes = (ctypes.c_int32, ctypes.POINTER(ctypes.c_int32), ctypes.c_int32)
        self.reserve = library.ty_pool_reserve
        self.reserve.argtypes = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        self.launch = library.ty_launch
        self.launch.argtypes = (ctypes.c_void_p, ctypes.POINTER(Call))
        self.sample = library.ty_sample
        self.sample.argtypes = (
            *self.launch.argtypes,
            *(ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """How many blocks each grid of a kernel has, and how many numbers must be 0 when one begins.

    ``claims`` of these lie in shared memory, ``tags`` in each thread's own.
    """

    grids: tuple[int, ...]
    claims: int
    tags: int


class Binding:
    """A kernel with its arguments' addresses and numbers, ready for the runtime.

    What a launch has to tell stands in ``report``, which ``lines`` gives the user's lines.
    """

    def __init__(
        self,
        kernel: int,
        buffers: Sequence[int],
        scalars: Sequence[int],
        sizes: Sizes,
        lines: LineTable,
    ) -> None:
        self.lines = lines
        self.report: Report = lines.make_report()
        addresses = (*buffers, ctypes.addressof(self.report))
        self._buffers: _Pointers = (ctypes.c_void_p * len(addresses))(*addresses)
        self._scalars: _Numbers = (ctypes.c_int64 * max(len(scalars), 1))(*scalars)
        self._grids: _Numbers = (ctypes.c_int64 * len(sizes.grids))(*sizes.grids)
        arrays = (self._buffers, self._scalars, self._grids)
        places = [ctypes.addressof(array) for array in arrays]
        self.call = Call(kernel, *places, len(sizes.grids), sizes.claims, sizes.tags)


class Pool:
    """The threads that run kernels on some cores. They live as long as the process."""

    def __init__(self, runtime: Runtime, cores: tuple[int, ...], *, is_pinned: bool) -> None:
        self._runtime = runtime
        self._cores = cores
        self._is_pinned = is_pinned
        self._process = 0
        self._handle: int | None = None
        self._scratch_bytes = 0
        self._shared_bytes = 0

    def _opened(self) -> int:
        """The pool in C; a forked child has lost its parent's threads and opens its own."""
        if self._handle is None or self._process != os.getpid():
            numbers = (ctypes.c_int32 * len(self._cores))(*self._cores)
            handle = self._runtime.open(len(self._cores), numbers, int(self._is_pinned))
            if not handle:
                raise MemoryError(f"no memory for {len(self._cores)} threads")
            self._handle, self._process = handle, os.getpid()
            self.reserve(self._scratch_bytes, self._shared_bytes)
        return self._handle

    def reserve(self, scratch_bytes: int, shared_bytes: int) -> None:
        """Have this much memory for each thread, and for all of them together. Raises MemoryError."""
        if self._runtime.reserve(self._opened(), scratch_bytes, shared_bytes):
            raise MemoryError(
                f"no memory for {scratch_bytes} bytes of scratch on each thread"
                f" and {shared_bytes} for all"
            )
        self._scratch_bytes = max(self._scratch_bytes, scratch_bytes)
        self._shared_bytes = max(self._shared_bytes, shared_bytes)

    def launch(self, binding: Binding) -> int:
        """Run all blocks once; the number of the kernel's own fault, or 0."""
        fault: int = self._runtime.launch(self._opened(), ctypes.byref(binding.call))
        return fault

    def sample(self, binding: Binding, samples: int, launches: int) -> tuple[int, list[float]]:
        """A fault or 0, and ``samples`` times of ``launches`` launches, in ns per launch."""
        times = (ctypes.c_double * samples)()
        fault: int = self._runtime.sample(
            *(self._opened(), ctypes.byref(binding.call), samples, launches, times)
        )
        return fault, list(times)


_POOLS: dict[tuple[str, tuple[int, ...], bool], Pool] = {}
"""Pools that were opened, by runtime, cores and pinning: all kernels of a process share them."""


def find_pool(runtime: Path, cores: tuple[int, ...], *, is_pinned: bool) -> Pool:
    """The process's pool on these cores; all that it may use where ``cores`` is empty.

    Raises BindError for cores that the process may not use.
    """
    allowed = cores or tuple(sorted(os.sched_getaffinity(0)))
    key = (str(runtime), allowed, is_pinned)
    if key not in _POOLS:
        foreign = sorted(set(allowed) - set(range(os.cpu_count() or 1)))
        if foreign:
            raise BindError(f"this host has no core {foreign[0]}")
        _POOLS[key] = Pool(Runtime(runtime), allowed, is_pinned=is_pinned)
    return _POOLS[key]
