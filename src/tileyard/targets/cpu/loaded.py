"""Launches a loaded CPU artifact, and offers it as a function on NumPy arrays or torch CPU tensors.
torch is never imported: only its own tensors need it.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tileyard.artifacts.manifest import Artifact
from tileyard.base.errors import BindError
from tileyard.base.model import SourceLine, TensorSpec, Value
from tileyard.ir.dtypes import array_name, fill_differently, find_dtype, name_of, poison
from tileyard.ir.nodes import Scalar, Tensor
from tileyard.ir.specs import tensor_specs, tensors
from tileyard.targets.arguments import allocate, check_arrays, match_arguments, unwrap
from tileyard.targets.base import Allocate, Array
from tileyard.targets.cpu.binary import NO_LINES, Binding, CpuBinary, LineTable, Pool, find_pool
from tileyard.targets.cpu.machine import RUNTIME_FILE

# ---- operands -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Operand:
    """An array: its first element's ``address`` while ``keep`` lives, a contiguous copy if it ``is_copy``."""

    address: int
    bytes: int
    shape: tuple[int, ...]
    keep: object
    is_copy: bool

    def overlaps(self, other: "Operand") -> bool:
        """Whether two operands share memory."""
        end, other_end = self.address + self.bytes, other.address + other.bytes
        return self.address < other_end and other.address < end


def is_torch(value: object) -> bool:
    """Whether ``value`` is a torch tensor."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def read_operand(value: object, tensor: Tensor) -> Operand:
    """One argument as an operand for the runtime. Raises BindError if it does not fit ``tensor``."""
    name, dtype = tensor.buffer.name, tensor.buffer.dtype
    operand = (
        _read_torch(value, name, dtype) if is_torch(value) else _read_numpy(value, name, dtype)
    )
    if operand.is_copy and tensor.role != "in" and not tensor.buffer.strides:
        raise BindError(
            f"{name} is written in place, and the array is not contiguous",
            hint="pass a contiguous array",
        )
    return operand


def _read_numpy(value: object, name: str, dtype: str) -> Operand:
    if not isinstance(value, np.ndarray):
        raise BindError(f"{name} is an array, not {type(value).__name__}")
    if value.dtype != find_dtype(dtype).numpy:
        raise BindError(f"{name} is {dtype}, the array {value.dtype}")
    flags = value.flags
    is_plain = flags.c_contiguous and flags.aligned
    array = value if is_plain else np.ascontiguousarray(value).copy()
    return Operand(
        address=array.__array_interface__["data"][0],
        bytes=array.nbytes,
        shape=array.shape,
        keep=array,
        is_copy=not is_plain,
    )


def _read_torch(value: Any, name: str, dtype: str) -> Operand:  # noqa: ANN401 (a torch.Tensor)
    if not value.is_cpu:
        raise BindError(f"{name} is on {value.device}, the kernel runs on the CPU")
    if str(value.dtype) != f"torch.{array_name(dtype)}":
        raise BindError(f"{name} is {dtype}, the tensor {value.dtype}")
    tensor = value.detach()
    is_plain = tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()
    tensor = tensor if is_plain else tensor.resolve_neg().contiguous()
    return Operand(
        address=tensor.data_ptr(),
        bytes=tensor.numel() * tensor.element_size(),
        shape=tuple(tensor.shape),
        keep=tensor,
        is_copy=not is_plain,
    )


def write_back(value: object, operand: Operand) -> None:
    """Copy what the kernel wrote to a copy of the caller's array back to that array."""
    if is_torch(value):
        value.detach().copy_(operand.keep)  # type: ignore[attr-defined]  # a torch.Tensor
    elif isinstance(value, np.ndarray):
        np.copyto(value, operand.keep)  # type: ignore[arg-type]  # an array, as the value is


def allocator(arguments: tuple[object, ...]) -> Callable[[tuple[int, ...], str], object]:
    """Returns a function that makes arrays of the arguments' kind: torch's if any argument is torch's."""
    if any(is_torch(argument) for argument in arguments):
        torch = sys.modules["torch"]
        return lambda shape, dtype: torch.empty(shape, dtype=getattr(torch, array_name(dtype)))
    return lambda shape, dtype: np.empty(shape, find_dtype(dtype).numpy)


def plain_number(value: Any, name: str) -> bool | int | float:  # noqa: ANN401 (anything)
    """A scalar argument as a Python number. Raises BindError for anything else."""
    if isinstance(value, np.generic):
        name_of(value.dtype)
        value = value.item()
    elif (isinstance(value, np.ndarray) or is_torch(value)) and len(value.shape) == 0:
        value = value.item()
    if isinstance(value, bool | int | float):
        return value
    raise BindError(f"{name} is a number, not {type(value).__name__}")


# ---- the function ---------------------------------------------------------------------------------


class CpuCallable:
    """Call it with the kernel's parameters in calling order, with or without its ``out`` tensors. Takes
    NumPy arrays or torch CPU tensors, in place if contiguous, and writes ``out`` and ``inout`` ones in
    place. Without the ``out`` tensors it returns them, one or a tuple, in the arguments' kind, else None.

    Raises BindError if an argument does not fit, KernelFault if the kernel itself fails.
    """

    def __init__(self, binary: CpuBinary, pool: Pool, lines: LineTable) -> None:
        self._binary = binary
        self._lines = lines
        self._pool = pool
        self._tensors = tensors(binary.signature)
        self._known: dict[object, tuple[Sequence[TensorSpec], list[int], tuple[int, ...]]] = {}
        binary.reserve(pool)

    def __call__(self, *arguments: object) -> object:
        """Run the kernel once and wait."""
        taken = match_arguments(self._binary.signature, arguments)
        operands = {
            param.buffer.name: read_operand(argument, param)
            for param, argument in taken
            if isinstance(param, Tensor)
        }
        scalars = tuple(
            plain_number(argument, param.var.name)
            for param, argument in taken
            if isinstance(param, Scalar)
        )
        specs, numbers, grids = self._sizes(operands, scalars)
        outputs = []
        make = allocator(arguments)
        for tensor in self._tensors:
            name = tensor.buffer.name
            if name not in operands:
                spec = next(spec for spec in specs if spec.name == name)
                outputs.append(make(spec.shape, spec.dtype))
                operands[name] = read_operand(outputs[-1], tensor)
        written = [
            (param.buffer.name, argument)
            for param, argument in taken
            if isinstance(param, Tensor) and param.role != "in"
        ]
        check_written(written, operands)
        addresses = [operands[tensor.buffer.name].address for tensor in self._tensors]
        binding = Binding(self._binary, addresses, numbers, grids, self._lines)
        if self._pool.launch(binding):
            raise self._binary.explain(binding)
        for name, argument in written:
            if operands[name].is_copy:
                write_back(argument, operands[name])
        return unwrap(outputs)

    def _sizes(
        self, operands: dict[str, Operand], scalars: tuple[Value, ...]
    ) -> tuple[Sequence[TensorSpec], list[int], tuple[int, ...]]:
        """Shapes, the runtime's numbers and the sizes of the grids, cached because shapes repeat."""
        shapes = tuple(operand.shape for operand in operands.values())
        key = (shapes, scalars, tuple(map(type, scalars)))
        if key not in self._known:
            dims = self._binary.dims(shapes, scalars)
            numbers = self._binary.numbers(dims, scalars)
            specs = tensor_specs(self._binary.signature, dims)
            self._known[key] = (specs, numbers, self._binary.grids(numbers))
        return self._known[key]


def check_written(written: list[tuple[str, object]], operands: dict[str, Operand]) -> None:
    """Raise BindError if a written array is read-only or shares memory with another array."""
    for name, argument in written:
        if isinstance(argument, np.ndarray) and not argument.flags.writeable:
            raise BindError(f"{name} is written, and the array is read-only")
        for other, operand in operands.items():
            if other != name and operands[name].overlaps(operand):
                raise BindError(
                    f"{name} is written, and shares memory with {other}",
                    hint="pass a copy of one of them",
                )


# ---- launches -------------------------------------------------------------------------------------


class CpuLoaded:
    """An artifact loaded on some cores."""

    def __init__(self, artifact: Artifact, cores: tuple[int, ...], *, is_pinned: bool) -> None:
        """Raises DamagedError, or BindError if this host cannot run it."""
        self.binary = CpuBinary(artifact)
        self._runtime, self._cores = artifact.file(RUNTIME_FILE), cores
        self.pool: Pool = find_pool(self._runtime, cores, is_pinned=is_pinned)
        self.lines = NO_LINES

    def know_lines(self, lines: Mapping[int, SourceLine]) -> None:
        """Use these lines of the user's in the reports of all later launches."""
        self.lines = LineTable(lines)

    def specs(
        self, shapes: Sequence[tuple[int, ...]], scalars: Sequence[Value]
    ) -> Sequence[TensorSpec]:
        """The tensor parameters with concrete shapes, given the tensors' shapes. May raise BindError."""
        return tensor_specs(self.binary.signature, self.binary.dims(shapes, scalars))

    def as_callable(self) -> Callable[..., object]:
        """The kernel as a ``CpuCallable``, in the caller's process, whose threads stay on their cores."""
        pool = find_pool(self._runtime, self._cores, is_pinned=False)
        return CpuCallable(self.binary, pool, self.lines)

    def bind(self, arrays: Sequence[Array], scalars: Sequence[Value]) -> "CpuLaunch":
        """Bind ``arrays``, one for each ``in`` and ``inout`` tensor in calling order. Contiguous
        inputs are used in place, none is changed. Raises BindError, MemoryError.
        """
        return self.bind_into(arrays, scalars, allocate)

    def bind_into(
        self, arrays: Sequence[Array], scalars: Sequence[Value], allocate: Allocate
    ) -> "CpuLaunch":
        """As ``bind``; launches write to arrays that ``allocate`` made."""
        binary = self.binary
        check_arrays(binary.signature, arrays)
        dims = binary.dims([array.shape for array in arrays], scalars)
        specs = tensor_specs(binary.signature, dims)
        return CpuLaunch(self, specs, arrays, binary.numbers(dims, scalars), allocate)


class CpuLaunch:
    """A kernel bound to its arguments. It keeps them alive."""

    def __init__(
        self,
        loaded: CpuLoaded,
        specs: Sequence[TensorSpec],
        arrays: Sequence[Array],
        numbers: Sequence[int],
        allocate: Allocate,
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
        grids = loaded.binary.grids(numbers)
        self._binding = Binding(loaded.binary, addresses, numbers, grids, loaded.lines)
        loaded.binary.reserve(loaded.pool)
        self.reset()

    def run(self) -> None:
        """Launch once and wait. Raises KernelFault."""
        if self._loaded.pool.launch(self._binding):
            raise self._loaded.binary.explain(self._binding)

    def run_again(self, *, inverted: bool) -> None:
        """See ``RunsAgain``."""
        self.reset()
        for spec, array in zip(self._specs, self._arrays, strict=True):
            if spec.role == "out":
                fill_differently(array, spec.dtype, inverted=inverted)
        self._binding.report.is_quiet = 1
        try:
            self.run()
        finally:
            self._binding.report.is_quiet = 0

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
        """Restore the initial content of every ``inout`` parameter and poison every ``out``."""
        for i, spec in enumerate(self._specs):
            if spec.role == "out":
                self._arrays[i].fill(poison(spec.dtype))
            elif spec.role == "inout":
                np.copyto(self._arrays[i], self._first[i])
