"""Arrays between NumPy and torch, without a copy; torch is imported where a reference needs it."""

import importlib
import importlib.util
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
    """An array of what a reference returned: a NumPy array, a tensor, a number, nested lists."""
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


def _is_foreign(name: str) -> bool:
    """Whether a dtype is one that NumPy knows only through ml_dtypes."""
    return hasattr(ml_dtypes, name)
