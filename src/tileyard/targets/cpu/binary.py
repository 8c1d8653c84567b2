"""Loads and runs CPU artifacts: the C runtime with thread pools, binaries, failures of launches."""

import ctypes
import os
import struct
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from tileyard.artifacts.manifest import Artifact
from tileyard.base.errors import BindError, DamagedError, KernelFault
from tileyard.base.model import SourceLine, Value
from tileyard.base.wording import count_of, name_line
from tileyard.ir.dtypes import find_dtype
from tileyard.ir.ranges import LARGEST_DIM
from tileyard.ir.specs import bind_dims, convert_scalar, scalar_params
from tileyard.targets.cpu.machine import KERNEL_FILE, Details, Fault, read_details

# ---- what a launch reports ------------------------------------------------------------------------


SITES = 3
TEXT_BYTES = 480


class Report(ctypes.Structure):
    """``ty_report`` of ``report.h``; one per concurrent launch."""

    _fields_ = (
        ("lines", ctypes.c_void_p),
        ("line_count", ctypes.c_int32),
        ("is_quiet", ctypes.c_int32),
        ("is_taken", ctypes.c_int32),
        ("site_count", ctypes.c_int32),
        ("sites", ctypes.c_int32 * SITES),
        ("value", ctypes.c_int64),
        ("text", ctypes.c_char * TEXT_BYTES),
    )


class LineTable:
    """The user's lines by statement number, as text for people and a table for C. They are one
    kernel's, not its binary's, which kernels of several files may share.
    """

    def __init__(self, lines: Mapping[int, SourceLine]) -> None:
        self._names = {number: name_line(at.file, at.line) for number, at in lines.items()}
        self._count = max(self._names, default=-1) + 1
        self._texts = (ctypes.c_char_p * self._count)()
        for number, name in self._names.items():
            if number >= 0:
                self._texts[number] = f"{name}: ".encode("utf-8", "replace")
        self._address = ctypes.addressof(self._texts)

    def make_report(self) -> Report:
        """An empty report with these lines, which must live as long as the report."""
        return Report(self._address, self._count)

    def find(self, statement: int) -> str:
        """``kernels.py:41`` for a statement, empty if its line is not known."""
        return self._names.get(statement, "")


NO_LINES = LineTable({})


def _describe(fault: Fault, value: int, text: str, lines: LineTable) -> str:
    place = lines.find(fault.statement)
    values = f"{fault.value} = {value}" if fault.value else text
    # A constant is its own value.
    shown = f" ({values})" if values and values != f"{value} = {value}" else ""
    return f"{place}: {fault.message}{shown}" if place else f"{fault.message}{shown}"


# ---- the runtime ----------------------------------------------------------------------------------


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


def load_runtime(path: str) -> ctypes.CDLL:
    """``runtime.so``, with the argument types of its functions declared."""
    library = ctypes.CDLL(path)
    library.ty_pool_open.restype = ctypes.c_void_p
    cores = ctypes.POINTER(ctypes.c_int32)
    library.ty_pool_open.argtypes = (ctypes.c_int32, cores, ctypes.c_int32)
    library.ty_pool_reserve.argtypes = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    launch = (ctypes.c_void_p, ctypes.POINTER(Call))
    library.ty_launch.argtypes = launch
    library.ty_sample.argtypes = (*launch, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
    return library


class Binding:
    """A kernel with its arguments' addresses and numbers, ready for the runtime; ``grids`` are
    numbers of blocks. A launch writes to ``report``, which has the user's lines from ``lines``.
    """

    def __init__(
        self,
        binary: "CpuBinary",
        buffers: Sequence[int],
        scalars: Sequence[int],
        grids: Sequence[int],
        lines: LineTable,
    ) -> None:
        self.lines = lines
        self.report: Report = lines.make_report()
        addresses = (*buffers, ctypes.addressof(self.report))
        self._arrays = (  # which the call only points to
            (ctypes.c_void_p * len(addresses))(*addresses),
            (ctypes.c_int64 * max(len(scalars), 1))(*scalars),
            (ctypes.c_int64 * len(grids))(*grids),
        )
        places = [ctypes.addressof(array) for array in self._arrays]
        self.call = Call(
            binary.kernel, *places, len(grids), binary.details.claims, binary.details.tags
        )


class Pool:
    """The threads that run kernels on some cores. They live as long as the process."""

    def __init__(self, runtime: ctypes.CDLL, cores: tuple[int, ...], *, is_pinned: bool) -> None:
        self._runtime = runtime
        self._cores = cores
        self._is_pinned = is_pinned
        self._process = 0
        self._handle: int | None = None
        self._scratch_bytes = 0
        self._shared_bytes = 0

    def _opened(self) -> int:
        """The pool in C; a forked child has none of its parent's threads and opens its own."""
        if self._handle is None or self._process != os.getpid():
            numbers = (ctypes.c_int32 * len(self._cores))(*self._cores)
            handle = self._runtime.ty_pool_open(len(self._cores), numbers, int(self._is_pinned))
            if not handle:
                raise MemoryError(f"no memory for {len(self._cores)} threads")
            self._handle, self._process = handle, os.getpid()
            self.reserve(self._scratch_bytes, self._shared_bytes)
        return self._handle

    def reserve(self, scratch_bytes: int, shared_bytes: int) -> None:
        """Allocate this much memory per thread, and for all threads together. Raises MemoryError."""
        if self._runtime.ty_pool_reserve(self._opened(), scratch_bytes, shared_bytes):
            raise MemoryError(
                f"no memory for {scratch_bytes} bytes of scratch on each thread"
                f" and {shared_bytes} for all"
            )
        self._scratch_bytes = max(self._scratch_bytes, scratch_bytes)
        self._shared_bytes = max(self._shared_bytes, shared_bytes)

    def launch(self, binding: Binding) -> int:
        """Run all blocks once; returns the number of the kernel's own fault, or 0."""
        fault: int = self._runtime.ty_launch(self._opened(), ctypes.byref(binding.call))
        return fault

    def sample(self, binding: Binding, samples: int, launches: int) -> tuple[int, list[float]]:
        """A fault or 0, and ``samples`` times of ``launches`` launches, in ns per launch."""
        times = (ctypes.c_double * samples)()
        fault: int = self._runtime.ty_sample(
            *(self._opened(), ctypes.byref(binding.call), samples, launches, times)
        )
        return fault, list(times)


def find_pool(runtime: Path, cores: tuple[int, ...], *, is_pinned: bool) -> Pool:
    """The process's pool on these ``cores``, empty for all. Raises BindError for forbidden ones."""
    return _open_pool(str(runtime), cores or tuple(sorted(os.sched_getaffinity(0))), is_pinned)


@cache
def _open_pool(runtime: str, cores: tuple[int, ...], is_pinned: bool) -> Pool:
    foreign = sorted(set(cores) - set(range(os.cpu_count() or 1)))
    if foreign:
        raise BindError(f"this host has no core {foreign[0]}")
    return Pool(load_runtime(runtime), cores, is_pinned=is_pinned)


# ---- the kernel -----------------------------------------------------------------------------------


class CpuBinary:
    """``kernel.so`` loaded. ``signature`` is the Program's head."""

    def __init__(self, artifact: Artifact) -> None:
        """Raises DamagedError, or BindError if this host cannot run it."""
        self.details: Details = read_details(artifact.manifest.details)
        self.signature = self.details.signature
        try:
            self._library = ctypes.CDLL(str(artifact.file(KERNEL_FILE)))
        except OSError as error:
            raise DamagedError(f"the kernel's binary cannot be loaded: {error}") from error
        self._blocks = self._library.ty_blocks
        self._blocks.restype = ctypes.c_int64
        self._blocks.argtypes = (ctypes.c_void_p, ctypes.c_int32)
        kernel = ctypes.cast(self._library.ty_kernel, ctypes.c_void_p).value
        if kernel is None:
            raise DamagedError("the kernel's binary has no kernel")
        self.kernel: int = kernel

    def reserve(self, pool: Pool) -> None:
        """Allocate the memory that a launch on ``pool`` needs. Raises MemoryError."""
        pool.reserve(self.details.scratch_bytes, self.details.shared_bytes)

    def dims(self, shapes: Sequence[tuple[int, ...]], scalars: Sequence[Value]) -> dict[str, int]:
        """The dimensions by name, given the tensors' shapes. Raises BindError."""
        bound = bind_dims(self.signature, shapes, scalars)
        for var in self.signature.dims:
            if bound[var.name] > LARGEST_DIM:
                raise BindError(f"dimension {var.name} is {bound[var.name]}, above {LARGEST_DIM}")
        return bound

    def numbers(self, dims: dict[str, int], scalars: Sequence[Value]) -> list[int]:
        """The kernel's ``scalars``: dimensions, then scalar parameters. May raise BindError."""
        params = scalar_params(self.signature)
        if len(params) != len(scalars):
            raise BindError(
                f"{self.signature.name} takes {count_of(len(params), 'scalar')}, not {len(scalars)}"
            )
        found = [dims[var.name] for var in self.signature.dims]
        for var, value in zip(params, scalars, strict=True):
            number = convert_scalar(value, var.dtype)
            if find_dtype(var.dtype).is_float:
                found.append(struct.unpack("<q", struct.pack("<d", float(number)))[0])
            else:
                unsigned = int(number) & ((1 << 64) - 1)
                found.append(unsigned - (1 << 64) if unsigned >> 63 else unsigned)
        return found

    def grids(self, numbers: Sequence[int]) -> tuple[int, ...]:
        """Number of blocks of each grid, given the kernel's numbers."""
        given = (ctypes.c_int64 * max(len(numbers), 1))(*numbers)
        return tuple(self._blocks(given, grid) for grid in range(self.details.grids))

    def explain(self, binding: Binding) -> KernelFault:
        """The error that a launch with this binding has reported; clears the report for the next launch."""
        report, lines = binding.report, binding.lines
        faults = [self.details.faults[site - 1] for site in report.sites[: report.site_count]]
        value, text = int(report.value), bytes(report.text).decode("utf-8", "replace")
        report.is_taken, report.site_count, report.text = 0, 0, b""
        # A declaration, whose number is negative, says nothing without its line.
        shown = [fault for fault in faults if fault.statement >= 0 or lines.find(fault.statement)]
        told = "; ".join(_describe(fault, value, text, lines) for fault in shown)
        is_placed = any(lines.find(fault.statement) for fault in faults)
        return KernelFault(told if is_placed else f"{self.signature.name}: {told}")
