"""Passes arrays between NumPy and torch without a copy; runs torch code for GPUs on the CPU."""

import contextlib
import functools
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

from tileyard.targets.base import Array

_BITS = {1: "uint8", 2: "int16"}
"""Integers whose arrays both libraries share, by size in bytes."""


def has_torch() -> bool:
    """Whether torch can be imported."""
    return importlib.util.find_spec("torch") is not None


def to_torch(array: Array) -> Any:  # noqa: ANN401 - torch is an optional dependency
    """A CPU tensor over the memory of a writable array; raises TypeError if torch lacks the dtype."""
    torch: Any = importlib.import_module("torch")
    if not _is_foreign(array.dtype.name):
        return torch.from_numpy(array)
    dtype = getattr(torch, array.dtype.name, None)
    if dtype is None:
        raise TypeError(f"torch has no dtype {array.dtype.name}")
    return torch.from_numpy(array.view(_BITS[array.dtype.itemsize])).view(dtype)


def to_numpy(value: Any) -> Array:  # noqa: ANN401 - whatever a reference returned
    """Convert a reference's result to an array: a NumPy array, a tensor, a number, nested lists."""
    if not hasattr(value, "detach"):
        return np.asarray(value)
    tensor = value.detach().cpu().contiguous()
    name = str(tensor.dtype).removeprefix("torch.")
    if not _is_foreign(name):
        array: Array = tensor.numpy()
        return array
    torch: Any = importlib.import_module("torch")
    bits = tensor.view(getattr(torch, _BITS[tensor.element_size()])).numpy()
    foreign: Array = bits.view(np.dtype(getattr(ml_dtypes, name)))
    return foreign


@contextlib.contextmanager
def keep_on_cpu() -> Iterator[None]:
    """Within the block, keep tensors on the CPU that this thread has torch make on or move to a GPU."""
    if "torch" not in sys.modules:
        yield
        return
    with _cpu_mode()():
        yield


@functools.cache
def _cpu_mode() -> Any:  # noqa: ANN401 - a class that exists only where torch does
    torch: Any = importlib.import_module("torch")
    overrides: Any = importlib.import_module("torch.overrides")

    def place(value: Any) -> Any:  # noqa: ANN401 - any argument of any function of torch's
        is_gpu = isinstance(value, str) and value.partition(":")[0] == "cuda"
        if is_gpu or (isinstance(value, torch.device) and value.type == "cuda"):
            return torch.device("cpu")
        return value

    def call(_mode: Any, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        if func is torch.Tensor.cuda:
            return args[0]
        placed = {name: place(value) for name, value in (kwargs or {}).items()}
        return func(*map(place, args), **placed)

    return type("KeepOnCpu", (overrides.TorchFunctionMode,), {"__torch_function__": call})


def _is_foreign(name: str) -> bool:
    """Whether a dtype is one that NumPy knows only through ml_dtypes."""
    return hasattr(ml_dtypes, name)
