"""A CPU artifact loaded on cores, and its launches."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tileyard.artifacts.manifest import Artifact
from tileyard.ir.dtypes import find_dtype, poison
from tileyard.ir.specs import tensor_specs
from tileyard.model import SourceLine, TensorSpec, Value
from tileyard.targets.arguments import check_arrays
from tileyard.targets.base import Array
from tileyard.targets.cpu.abi import RUNTIME_FILE
from tileyard.targets.cpu.binary import CpuBinary, Pool, find_pool
from tileyard.targets.cpu.callable import CpuCallable
from tileyard.targets.cpu.told import NO_LINES, LineTable

_PAGE = 4096


class CpuLoaded:
    """An artifact loaded on some cores."""

    def __init__(self, artifact: Artifact, cores: tuple[int, ...], *, is_pinned: bool) -> None:
        """Raises DamagedError, or BindError where this host cannot run it."""
        self.binary = CpuBinary(artifact)
        self._runtime, self._cores = artifact.file(RUNTIME_FILE), cores
        self.pool: Pool = find_pool(self._runtime, cores, is_pinned=is_pinned)
        self.lines = NO_LINES

    def know_lines(self, lines: Mapping[int, SourceLine]) -> None:
        """Have launches that are made from here on tell of these lines of the user's."""
        self.lines = LineTable(lines)

    def specs(
        self, shapes: Sequence[tuple[int, ...]], scalars: Sequence[Value]
    ) -> Sequence[TensorSpec]:
        """The tensor parameters with concrete shapes, given the tensors' shapes. May raise BindError."""
        return tensor_specs(self.binary.signature, self.binary.dims(shapes, scalars))

    def as_callable(self) -> Callable[..., object]:
        """The kernel as a function on NumPy arrays or torch CPU tensors; see ``CpuCallable``.

        It runs in the caller's process, whose threads stay where they are.
        """
        pool = find_pool(self._runtime, self._cores, is_pinned=False)
        return CpuCallable(self.binary, pool, self.lines)

    def bind(self, arrays: Sequence[Array], scalars: Sequence[Value]) -> "CpuLaunch":
        """Bind ``arrays``, one for each ``in`` and ``inout`` tensor in calling order.

        Inputs that are contiguous are used where they are; none is changed. Raises BindError,
        MemoryError.
        """
        binary = self.binary
        check_arrays(binary.signature, arrays)
        dims = binary.dims([array.shape for array in arrays], scalars)
        specs = tensor_specs(binary.signature, dims)
        return CpuLaunch(self, specs, arrays, binary.numbers(dims, scalars))


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
        sizes = loaded.binary.sizes(numbers)
        self._binding = loaded.binary.bind(addresses, numbers, sizes, loaded.lines)
        loaded.binary.reserve(loaded.pool)
        self.reset()

    def run(self) -> None:
        """Launch once and wait. Raises KernelFault."""
        if self._loaded.pool.launch(self._binding):
            raise self._loaded.binary.explain(self._binding)

    def sample_ns(self, samples: int, launches: int) -> Sequence[float]:
        """``samples`` times of ``launches`` launches each, in nanoseconds per launch; they print nothing."""
        self._binding.report.is_quiet = 1
        fault, times = self._loaded.pool.sample(self._binding, samples, launches)
        self._binding.report.is_quiet = 0
        if fault:
            raise self._loaded.binary.explain(self._binding)
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
