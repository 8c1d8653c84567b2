"""A CPU artifact in memory, and its launches."""

import ctypes
import struct
from collections.abc import Callable, Sequence

import numpy as np

from tileyard.artifacts.manifest import Artifact
from tileyard.errors import BindError, DamagedError, KernelFault
from tileyard.ir.dtypes import find_dtype, poison
from tileyard.ir.specs import bind_dims, convert_scalar, scalar_params, tensor_specs, tensors
from tileyard.model import TensorSpec, Value
from tileyard.targets.base import Array
from tileyard.targets.cpu.abi import KERNEL_FILE, RUNTIME_FILE, Details, read_details
from tileyard.targets.cpu.callable import CpuCallable
from tileyard.targets.cpu.emit.ranges import LARGEST_DIM
from tileyard.targets.cpu.pool import Binding, Pool, find_pool

_PAGE = 4096


class CpuLoaded:
    """An artifact loaded on some cores. ``signature`` is the Program's head."""

    def __init__(self, artifact: Artifact, cores: tuple[int, ...], *, is_pinned: bool) -> None:
        """Raises DamagedError, or BindError where this host cannot run it."""
        self.details: Details = read_details(artifact.manifest.details)
        self.signature = self.details.signature
        self._runtime, self._cores = artifact.file(RUNTIME_FILE), cores
        self.pool: Pool = find_pool(self._runtime, cores, is_pinned=is_pinned)
        try:
            self._library = ctypes.CDLL(str(artifact.file(KERNEL_FILE)))
        except OSError as error:
            raise DamagedError(f"the kernel's binary cannot be loaded: {error}") from error
        self._blocks = self._library.ty_blocks
        self._blocks.restype = ctypes.c_int64
        kernel = ctypes.cast(self._library.ty_kernel, ctypes.c_void_p).value
        if kernel is None:
            raise DamagedError("the kernel's binary has no kernel")
        self.kernel: int = kernel

    def specs(
        self, shapes: Sequence[tuple[int, ...]], scalars: Sequence[Value]
    ) -> Sequence[TensorSpec]:
        """The tensor parameters with concrete shapes, given the tensors' shapes. May raise BindError."""
        return tensor_specs(self.signature, self.dims(shapes, scalars))

    def dims(self, shapes: Sequence[tuple[int, ...]], scalars: Sequence[Value]) -> dict[str, int]:
        """The dimensions by name, given the tensors' shapes. Raises BindError."""
        bound = bind_dims(self.signature, shapes, scalars)
        for var in self.signature.dims:
            if bound[var.name] > LARGEST_DIM:
                raise BindError(f"dimension {var.name} is {bound[var.name]}, above {LARGEST_DIM}")
        return bound

    def numbers(self, dims: dict[str, int], scalars: Sequence[Value]) -> list[int]:
        """What the kernel's ``scalars`` hold: dimensions, then scalar parameters. May raise BindError."""
        params = scalar_params(self.signature)
        if len(params) != len(scalars):
            raise BindError(
                f"{self.signature.name} takes {len(params)} scalars, not {len(scalars)}"
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

    def blocks(self, numbers: Sequence[int]) -> int:
        """How many blocks the grid has."""
        count: int = self._blocks((ctypes.c_int64 * max(len(numbers), 1))(*numbers))
        return count

    def explain(self, fault: int) -> KernelFault:
        """The error that the kernel reported by number."""
        faults = self.details.faults
        what = faults[fault - 1] if 0 < fault <= len(faults) else f"fault {fault}"
        return KernelFault(f"{self.signature.name}: {what}")

    def as_callable(self) -> Callable[..., object]:
        """The kernel as a function on NumPy arrays or torch CPU tensors; see ``CpuCallable``.

        It runs in the caller's process, whose threads stay where they are.
        """
        return CpuCallable(self, find_pool(self._runtime, self._cores, is_pinned=False))

    def bind(self, arrays: Sequence[Array], scalars: Sequence[Value]) -> "CpuLaunch":
        """Bind ``arrays``, one for each ``in`` and ``inout`` tensor in calling order.

        Inputs that are contiguous are used where they are; none is changed. Raises BindError,
        MemoryError.
        """
        given = [tensor for tensor in tensors(self.signature) if tensor.role != "out"]
        if len(arrays) != len(given):
            raise BindError(f"{self.signature.name} takes {len(given)} arrays, not {len(arrays)}")
        for tensor, array in zip(given, arrays, strict=True):
            want = find_dtype(tensor.buffer.dtype).numpy
            if array.dtype != want:
                raise BindError(f"{tensor.buffer.name} is {want}, the array {array.dtype}")
        dims = self.dims([array.shape for array in arrays], scalars)
        return CpuLaunch(
            self, tensor_specs(self.signature, dims), arrays, self.numbers(dims, scalars)
        )


class CpuLaunch:
    """A kernel bound to its arguments. It keeps them alive."""

    def __init__(
        self,
        loaded: CpuLoaded,
        specs: Sequence[TensorSpec],
        arrays: Sequence[Array],
        numbers: Sequence[int],
    ) -> None:
        self._loaded = loaded
        self._specs = specs
        self._arrays: list[Array] = []
        self._first: dict[int, Array] = {}
        given = iter(arrays)
        for i, spec in enumerate(specs):
            if spec.role == "out":
                self._arrays.append(allocate(spec.shape, find_dtype(spec.dtype).numpy))
                continue
            array = np.require(next(given), requirements=["C", "A"])
            if spec.role == "inout":
                self._first[i] = array
                array = allocate(array.shape, array.dtype)
            self._arrays.append(array)
        addresses = [array.ctypes.data for array in self._arrays]
        self._binding = Binding(loaded.kernel, addresses, numbers, loaded.details.claims)
        self._blocks = loaded.blocks(numbers)
        loaded.pool.reserve(loaded.details.scratch_bytes, loaded.details.shared_bytes)
        self.reset()

    def run(self) -> None:
        """Launch once and wait. Raises KernelFault."""
        fault = self._loaded.pool.launch(self._binding, self._blocks)
        if fault:
            raise self._loaded.explain(fault)

    def sample_ns(self, samples: int, launches: int) -> Sequence[float]:
        """``samples`` times of ``launches`` launches each, in nanoseconds per launch."""
        fault, times = self._loaded.pool.sample(self._binding, self._blocks, samples, launches)
        if fault:
            raise self._loaded.explain(fault)
        return times

    def read(self) -> Sequence[Array]:
        """The written parameters in calling order: the arrays that launches write, not copies."""
        return [
            array
            for spec, array in zip(self._specs, self._arrays, strict=True)
            if spec.role != "in"
        ]

    def reset(self) -> None:
        """Give every ``inout`` parameter its first content again and poison every ``out``."""
        for i, spec in enumerate(self._specs):
            if spec.role == "out":
                self._arrays[i].fill(poison(spec.dtype))
            elif spec.role == "inout":
                np.copyto(self._arrays[i], self._first[i])


def allocate(shape: tuple[int, ...], dtype: "np.dtype[np.generic]") -> Array:
    """An array that begins at a page, as that of a device would: times do not depend on luck."""
    count = int(np.prod(shape, dtype=np.int64))
    raw = np.empty(count * dtype.itemsize + _PAGE, np.uint8)
    start = -raw.ctypes.data % _PAGE
    array: Array = raw[start : start + count * dtype.itemsize].view(dtype).reshape(shape)
    return array
