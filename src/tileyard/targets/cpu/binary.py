"""A CPU artifact's binary in memory: what it needs to be called, and what its faults mean."""

import ctypes
import struct
from collections.abc import Sequence

from tileyard.artifacts.manifest import Artifact
from tileyard.errors import BindError, DamagedError, KernelFault
from tileyard.ir.dtypes import find_dtype
from tileyard.ir.ranges import LARGEST_DIM
from tileyard.ir.specs import bind_dims, convert_scalar, scalar_params
from tileyard.model import Value
from tileyard.targets.cpu.abi import KERNEL_FILE, Details, read_details
from tileyard.targets.cpu.pool import Binding, Pool, Sizes
from tileyard.targets.cpu.told import NO_LINES, LineTable, explain


class CpuBinary:
    """``kernel.so`` loaded. ``signature`` is the Program's head."""

    def __init__(self, artifact: Artifact) -> None:
        """Raises DamagedError, or BindError where this host cannot run it."""
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
        self._kernel: int = kernel

    def bind(
        self,
        addresses: Sequence[int],
        numbers: Sequence[int],
        sizes: Sizes,
        lines: LineTable = NO_LINES,
    ) -> Binding:
        """The kernel with the addresses of its arrays and its numbers, ready to be launched."""
        return Binding(self._kernel, addresses, numbers, sizes, lines)

    def reserve(self, pool: Pool) -> None:
        """Have the memory that a launch on ``pool`` needs. Raises MemoryError."""
        pool.reserve(self.details.scratch_bytes, self.details.shared_bytes)

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

    def sizes(self, numbers: Sequence[int]) -> Sizes:
        """What the runtime must know of the grids, given the kernel's numbers."""
        details, given = self.details, (ctypes.c_int64 * max(len(numbers), 1))(*numbers)
        grids = tuple(self._blocks(given, grid) for grid in range(details.grids))
        return Sizes(grids=grids, claims=details.claims, tags=details.tags)

    def explain(self, binding: Binding) -> KernelFault:
        """The error that a launch with this binding has reported."""
        return explain(self.signature.name, self.details.faults, binding.report, binding.lines)
