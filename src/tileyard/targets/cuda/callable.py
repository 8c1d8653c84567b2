"""Offers a kernel as a function on arrays on a GPU: torch's, ``__cuda_array_interface__``'s or
DLPack's. No framework is imported: only its own arrays need it.
"""

import ctypes
import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock, local
from typing import Any

import numpy as np

from tileyard.base.errors import BindError
from tileyard.base.model import TensorSpec, Value
from tileyard.ir.dtypes import find_dtype
from tileyard.ir.nodes import Scalar, Tensor
from tileyard.targets.arguments import match_arguments, unwrap
from tileyard.targets.cuda.driver import Gpu
from tileyard.targets.cuda.launching import CudaModule, Plan
from tileyard.targets.cuda.memory import Buffer, bytes_of

# ---- operands -------------------------------------------------------------------------------------


LEGACY = 1
"""The default stream, as the driver and both protocols number it; torch and we also use 0."""
_CUDA_DEVICES = (2, 13)
"""DLPack's device types: a GPU's memory, and memory managed by CUDA."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Operand:
    """One array: its address while ``keep`` is alive, and the stream on which it is ready, None for any."""

    address: int
    shape: tuple[int, ...]
    keep: object
    stream: int | None = None


def torch_of(value: object) -> Any:  # noqa: ANN401 - the module, or None
    """The module torch if ``value`` is a torch tensor, otherwise None."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(value, torch.Tensor) else None


def plain_number(value: Any, name: str) -> bool | int | float:  # noqa: ANN401
    """A scalar argument as a Python number; NumPy's are accepted. Raises BindError for anything else."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool | int | float):
        return value
    raise BindError(f"{name} is a number, not {type(value).__name__}")


def read_array(value: object, name: str, dtype: str, ordinal: int, stream: int) -> Operand:
    """An array for the launch ``stream``; BindError if it does not fit the parameter ``name``."""
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is not None:
        return _read_interface(interface, value, name, dtype)
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        return _read_dlpack(value, name, dtype, (ordinal, stream))
    raise BindError(
        f"{name} is an array on a GPU, not {type(value).__name__}",
        "pass a CUDA tensor of torch, or anything with __cuda_array_interface__ or DLPack",
    )


def _read_interface(interface: Any, value: object, name: str, dtype: str) -> Operand:  # noqa: ANN401
    want, shape = find_dtype(dtype).numpy, tuple(map(int, interface["shape"]))
    if interface["typestr"] != want.str:
        raise BindError(f"{name} is {dtype}, the array {interface['typestr']}")
    strides = interface.get("strides")
    if strides is not None:
        _require_plain(tuple(one // want.itemsize for one in strides), shape, name)
    return Operand(
        address=int(interface["data"][0]),
        shape=shape,
        keep=value,
        stream=interface.get("stream"),
    )


# ---- DLPack ------------------------------------------------------------------------------------------


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_CODES = {"int": 0, "uint": 1, "float": 2, "bool": 6}
_BFLOAT16 = 4
_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype, _get_pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


def _read_dlpack(value: Any, name: str, dtype: str, where: tuple[int, int]) -> Operand:  # noqa: ANN401
    """Read an array through DLPack. An unconsumed capsule frees its tensor, so it is kept with the array."""
    ordinal, stream = where
    kind, device = value.__dlpack_device__()
    if int(kind) not in _CUDA_DEVICES or int(device) != ordinal:
        raise BindError(f"{name} is not on GPU {ordinal}")
    capsule = value.__dlpack__(stream=stream or LEGACY)
    tensor = _Tensor.from_address(_get_pointer(capsule, b"dltensor"))
    known = find_dtype(dtype)
    code = _BFLOAT16 if dtype == "bfloat16" else _CODES[known.kind]
    if (tensor.code, tensor.bits, tensor.lanes) != (code, known.bits, 1):
        raise BindError(f"{name} is {dtype}, the array has another type of {tensor.bits} bits")
    shape = tuple(tensor.shape[: tensor.ndim])
    if tensor.strides:
        _require_plain(tuple(tensor.strides[: tensor.ndim]), shape, name)
    return Operand(address=(tensor.data or 0) + tensor.byte_offset, shape=shape, keep=capsule)


def _require_plain(strides: tuple[int, ...], shape: tuple[int, ...], name: str) -> None:
    step = 1
    for stride, extent in zip(reversed(strides), reversed(shape), strict=True):
        if extent > 1 and stride != step:
            raise BindError(f"{name} is not contiguous", "pass a contiguous array")
        step *= extent


# ---- prepared calls -------------------------------------------------------------------------------


MOST_KNOWN = 256
"""Most combinations of shapes with prepared launches, and of addresses with packed arguments."""


class Ready:
    """Everything about calls with some shapes and numbers but addresses. ``places`` are tensors'
    positions among the arguments; ``missing`` tensors are at ``missing_places`` among all.
    """

    def __init__(
        self,
        plan: Plan,
        specs: Sequence[TensorSpec],
        given: tuple[list[int], frozenset[str]],
    ) -> None:
        self.plan = plan
        self.places, names = given
        self.names = [spec.name for spec in specs]
        self.missing = [spec for spec in specs if spec.name not in names]
        self.missing_places = [self.names.index(spec.name) for spec in self.missing]
        self.addresses: list[int] = []
        self.stream = -1
        self._states: dict[tuple[int, ...], bytes] = {}
        sizes = [bytes_of(spec) for spec in specs]
        self._pairs = [
            (at, sizes[at], other, sizes[other])
            for at, spec in enumerate(specs)
            for other in range(len(specs))
            if spec.role != "in" and other != at
        ]
        self._lent: dict[int, list[Buffer]] = {}

    def aim(self, gpu: Gpu, addresses: list[int], stream: int) -> None:
        """Set the addresses of the next launch. Raises BindError, MemoryError."""
        key = (*addresses, stream) if self.plan.workspaces else tuple(addresses)
        state = self._states.get(key)
        if state is None:
            self.check_apart(addresses)
            self.addresses = []  # after an error halfway no addresses are set
            self.plan.aim(addresses, self.lend(gpu, stream) if self.plan.workspaces else ())
            if len(self._states) >= MOST_KNOWN:
                self._states.clear()
            self._states[key] = self.plan.save()
        else:
            self.plan.restore(state)
        self.addresses, self.stream = addresses, stream

    def check_apart(self, addresses: Sequence[int]) -> None:
        """Raise BindError if a written array shares memory with any other array."""
        for at, size, other, other_size in self._pairs:
            one, two = addresses[at], addresses[other]
            if two < one + size and one < two + other_size:
                raise BindError(
                    f"{self.names[at]} is written, and shares memory with {self.names[other]}",
                    "pass a copy of one of them",
                )

    def lend(self, gpu: Gpu, stream: int) -> list[int]:
        """Workspaces for launches on a stream, which run one after another. Raises MemoryError."""
        if stream not in self._lent and self.plan.workspaces:
            self._lent[stream] = [
                Buffer(gpu, size, f"workspace {number}")
                for number, size in enumerate(self.plan.workspaces)
            ]
        return [buffer.address for buffer in self._lent.get(stream, ())]


# ---- the function ---------------------------------------------------------------------------------


class CudaCallable:
    """Call it with the kernel's parameters in calling order, with or without its ``out`` tensors.

    Takes torch CUDA tensors, or any arrays with ``__cuda_array_interface__`` or DLPack, in place.
    Launches without waiting, on torch's current stream if a tensor is torch's, else on the first
    that an array names, else on the default one. Without the ``out`` tensors it returns them, one
    or a tuple, torch tensors if one is torch's, else ``DeviceArray``; with them None.

    Raises BindError if an argument does not fit, KernelFault if it cannot be launched. Whoever
    waits for the stream gets the device's later failures.
    """

    def __init__(self, module: CudaModule) -> None:
        self._module = module
        self._gpu = module.gpu
        self._context = int(module.gpu.context)
        self._get_context = module.gpu.driver.api.cuCtxGetCurrent
        self._known: dict[object, Ready] = {}
        self._torch_stream: Callable[[int], int] = int  # found with the first torch tensor
        self._lock = Lock()
        self._thread = _Thread()

    def __call__(self, *arguments: object) -> object:
        """Launch the kernel once, without waiting."""
        torch = sys.modules.get("torch")
        if torch is not None:
            ready = self._known.get(_key_of(torch.Tensor, arguments))
            if ready is not None:
                return self._launch_again(torch, ready, arguments)
        return self._call_slowly(arguments)

    def _launch_again(self, torch: Any, ready: Ready, arguments: tuple[Any, ...]) -> object:  # noqa: ANN401
        """Call with torch tensors whose shapes and types were seen before, and fit."""
        addresses = []
        for place in ready.places:
            tensor = arguments[place]
            if not tensor.is_contiguous():
                return self._call_slowly(arguments)
            addresses.append(tensor.data_ptr())
        if not ready.missing:
            self._start(ready, addresses, self._torch_stream(self._gpu.ordinal))
            return None
        outputs = [self._allocate(spec, torch, 0) for spec in ready.missing]
        for place, output in zip(ready.missing_places, outputs, strict=True):
            addresses.insert(place, output.data_ptr())
        self._start(ready, addresses, self._torch_stream(self._gpu.ordinal))
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def _start(self, ready: Ready, addresses: list[int], stream: int) -> None:
        """Launch on a stream with these addresses, of all tensors in calling order."""
        if not self._thread.has_context:
            self._enter()
        with self._lock:
            if addresses != ready.addresses or stream != ready.stream:
                ready.aim(self._gpu, addresses, stream)
            ready.plan.launch(stream)

    def _enter(self) -> None:
        """Make the device's context the thread's current one. With one GPU, nothing changes that again."""
        if int(self._get_context()[1]) != self._context:
            self._gpu.activate()
        if self._gpu.is_only:
            self._thread.has_context = True

    def _call_slowly(self, arguments: tuple[object, ...]) -> object:
        taken = match_arguments(self._module.signature, arguments)
        torch = next(filter(None, map(torch_of, arguments)), None)
        self._gpu.activate()
        if torch is not None:
            self._torch_stream = _find_torch_stream(torch)
            stream = self._torch_stream(self._gpu.ordinal)
        else:
            stream = _stream_of(arguments)
        operands = {
            param.buffer.name: self._read(argument, param, stream)
            for param, argument in taken
            if isinstance(param, Tensor)
        }
        scalars = [
            plain_number(argument, param.var.name)
            for param, argument in taken
            if isinstance(param, Scalar)
        ]
        ready = self._prepare(taken, operands, scalars)
        key = None if torch is None else _key_of(torch.Tensor, arguments)
        if key is not None:
            self._known[key] = ready
        outputs = [self._allocate(spec, torch, stream) for spec in ready.missing]
        for spec, made in zip(ready.missing, outputs, strict=True):
            address = made.address if torch is None else made.data_ptr()
            operands[spec.name] = Operand(address=address, shape=spec.shape, keep=made)
        self._wait_for_producers(operands, stream)
        self._start(ready, [operands[name].address for name in ready.names], stream)
        return unwrap(outputs)

    def _read(self, value: Any, param: Tensor, stream: int) -> Operand:  # noqa: ANN401
        name, dtype = param.buffer.name, param.buffer.dtype
        if torch_of(value) is None:
            return read_array(value, name, dtype, self._gpu.ordinal, stream)
        if value.get_device() != self._gpu.ordinal:
            raise BindError(
                f"{name} is on {value.device}, the kernel runs on GPU {self._gpu.ordinal}"
            )
        if str(value.dtype) != f"torch.{dtype}":
            raise BindError(f"{name} is {dtype}, the tensor {value.dtype}")
        if not value.is_contiguous():
            if param.role != "in":
                raise BindError(
                    f"{name} is written in place, and the tensor is not contiguous",
                    "pass a contiguous tensor",
                )
            value = value.contiguous()
        return Operand(address=value.data_ptr(), shape=tuple(value.shape), keep=value)

    def _prepare(
        self,
        taken: Sequence[tuple[Tensor | Scalar, object]],
        operands: dict[str, Operand],
        scalars: Sequence[Value],
    ) -> Ready:
        """The parts shared by all calls with these shapes and numbers."""
        shapes = tuple(operand.shape for operand in operands.values())
        key = (shapes, tuple(scalars), tuple(map(type, scalars)), len(taken))
        ready = self._known.get(key)
        if ready is None:
            numbers = self._module.numbers(shapes, scalars)
            specs = self._module.specs_for(numbers)
            places = [at for at, (param, _) in enumerate(taken) if isinstance(param, Tensor)]
            ready = Ready(Plan(self._module, numbers), specs, (places, frozenset(operands)))
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[key] = ready
        return ready

    def _allocate(self, spec: TensorSpec, torch: Any, stream: int) -> Any:  # noqa: ANN401
        if torch is None:
            return DeviceArray(self._gpu, spec, stream)
        return torch.empty(spec.shape, dtype=getattr(torch, spec.dtype), device=self._gpu.ordinal)

    def _wait_for_producers(self, operands: dict[str, Operand], stream: int) -> None:
        """Make the stream wait for those on which arrays become ready; the caller does not wait."""
        call = self._gpu.driver.call
        for other in {one.stream for one in operands.values()} - {None, stream, stream or LEGACY}:
            event = call("cuEventCreate", 0)
            call("cuEventRecord", event, other)
            call("cuStreamWaitEvent", stream, event, 0)
            call("cuEventDestroy", event)


class _Thread(local):
    """Each thread's state: whether the context is its current one, and stays current."""

    has_context = False


class DeviceArray:
    """An output array on a GPU, for readers of ``__cuda_array_interface__``."""

    def __init__(self, gpu: Gpu, spec: TensorSpec, stream: int) -> None:
        """Raises MemoryError."""
        self.shape = spec.shape
        self.dtype = find_dtype(spec.dtype).numpy
        self._buffer = Buffer(gpu, bytes_of(spec), spec.name)
        self._stream = stream or LEGACY

    @property
    def address(self) -> int:
        """The address of its first element."""
        return self._buffer.address

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        """Version 3 of the protocol, with the stream on which it becomes ready."""
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address, False),
            "strides": None,
            "stream": self._stream,
            "version": 3,
        }


def _key_of(kind: Any, arguments: tuple[Any, ...]) -> object:  # noqa: ANN401 (torch.Tensor)
    """The key under which prepared calls are found; None if an argument is of an unknown kind."""
    key: list[object] = []
    for argument in arguments:
        if type(argument) is kind or isinstance(argument, kind):
            key += (argument.shape, argument.dtype, argument.get_device())
        elif isinstance(argument, bool | int | float):
            key += (type(argument), argument)
        else:
            return None
    return tuple(key)


def _find_torch_stream(torch: Any) -> Callable[[int], int]:  # noqa: ANN401
    """torch's current stream of a device, by the function that returns a bare number if torch has it."""
    raw = getattr(importlib.import_module("torch._C"), "_cuda_getCurrentRawStream", None)
    if raw is None:
        return lambda ordinal: int(torch.cuda.current_stream(ordinal).cuda_stream)
    found: Callable[[int], int] = raw
    return found


def _stream_of(arguments: tuple[object, ...]) -> int:
    """The stream of the first array that names one; otherwise the default stream."""
    for argument in arguments:
        interface = getattr(argument, "__cuda_array_interface__", None) or {}
        if interface.get("stream"):
            return int(interface["stream"])
    return 0
