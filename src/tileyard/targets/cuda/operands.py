"""Arrays that lie on a GPU, as a launch needs them: torch's, or whatever speaks ``__cuda_array_interface__`` or DLPack.

No framework is imported here: only its own arrays need it.
"""

import ctypes
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from tileyard.errors import BindError
from tileyard.ir.dtypes import find_dtype

LEGACY = 1
"""The default stream, as the driver and both protocols call it; torch and we say 0 as well."""
_CUDA_DEVICES = (2, 13)
"""DLPack's kinds of devices: a GPU's memory, and memory that is managed by CUDA."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Operand:
    """One array: where it begins while ``keep`` is alive, and the stream on which it is ready, None for any."""

    address: int
    shape: tuple[int, ...]
    keep: object
    stream: int | None = None


def torch_of(value: object) -> Any:  # noqa: ANN401 - the module, or None
    """The module torch, where ``value`` is a tensor of its."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(value, torch.Tensor) else None


def plain_number(value: Any, name: str) -> bool | int | float:  # noqa: ANN401
    """A scalar argument as a number of Python; NumPy's count as such. Raises BindError for anything else."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool | int | float):
        return value
    raise BindError(f"{name} is a number, not {type(value).__name__}")


def read_array(value: object, name: str, dtype: str, ordinal: int, stream: int) -> Operand:
    """What a launch needs of an array; ``stream`` is the one that it will be launched on.

    Raises BindError where it is not what the parameter ``name`` takes.
    """
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
    """``DLTensor`` of dlpack.h."""

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
    """A capsule that nobody takes over frees its tensor by itself: it is kept as long as the array is."""
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
    """Raise BindError where elements do not lie one behind the other."""
    step = 1
    for stride, extent in zip(reversed(strides), reversed(shape), strict=True):
        if extent > 1 and stride != step:
            raise BindError(f"{name} is not contiguous", "pass a contiguous array")
        step *= extent
