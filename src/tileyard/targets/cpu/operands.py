"""Arrays of the caller's framework as the CPU runtime needs them: addresses, shapes and types.

NumPy arrays and torch CPU tensors. torch itself is never imported: only its own tensors need it.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tileyard.errors import BindError
from tileyard.ir.dtypes import array_name, find_dtype, name_of
from tileyard.ir.nodes import Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class Operand:
    """One array: ``address`` of its first element while ``keep`` is alive.

    ``keep`` is the caller's own array, or a contiguous copy of it where ``is_copy``.
    """

    address: int
    bytes: int
    shape: tuple[int, ...]
    keep: object
    is_copy: bool


def is_torch(value: object) -> bool:
    """Whether ``value`` is a tensor of torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_array(value: object) -> bool:
    """Whether ``value`` is an array of a framework that is known here."""
    return isinstance(value, np.ndarray) or is_torch(value)


def read_operand(value: object, tensor: Tensor) -> Operand:
    """What the runtime needs of one argument. Raises BindError where it does not fit ``tensor``."""
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
    want = find_dtype(dtype).numpy
    if value.dtype != want:
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
    """Give the caller's array what the copy that the kernel has written holds."""
    if is_torch(value):
        value.detach().copy_(operand.keep)  # type: ignore[attr-defined]  # a torch.Tensor
    elif isinstance(value, np.ndarray):
        np.copyto(value, operand.keep)  # type: ignore[arg-type]  # an array, as the value is


def check_writable(value: object, name: str) -> None:
    """Raise BindError for an array that may not be written."""
    if isinstance(value, np.ndarray) and not value.flags.writeable:
        raise BindError(f"{name} is written, and the array is read-only")


def allocator(arguments: tuple[object, ...]) -> Callable[[tuple[int, ...], str], object]:
    """Makes arrays of the kind that ``arguments`` are: torch's if any of them is."""
    if any(is_torch(argument) for argument in arguments):
        torch = sys.modules["torch"]
        return lambda shape, dtype: torch.empty(shape, dtype=getattr(torch, array_name(dtype)))
    return lambda shape, dtype: np.empty(shape, find_dtype(dtype).numpy)


def overlaps(one: Operand, other: Operand) -> bool:
    """Whether two operands share memory."""
    return one.address < other.address + other.bytes and other.address < one.address + one.bytes


def plain_number(value: object, name: str) -> bool | int | float:
    """A scalar argument as a number of Python. Raises BindError for anything else."""
    if isinstance(value, np.generic) or (is_array(value) and _is_single(value)):
        if isinstance(value, np.generic):
            name_of(value.dtype)
        value = value.item()  # type: ignore[attr-defined]  # both kinds have it
    if isinstance(value, bool | int | float):
        return value
    raise BindError(f"{name} is a number, not {type(value).__name__}")


def _is_single(value: Any) -> bool:  # noqa: ANN401 (an array or a tensor)
    return len(value.shape) == 0
