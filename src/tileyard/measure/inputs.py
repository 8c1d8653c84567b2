"""A kernel's input tensors where its author gives none: the same numbers for the same signature."""

import hashlib
from collections.abc import Sequence

import numpy as np

from tileyard.artifacts.keys import digest_parts
from tileyard.ir.dtypes import find_dtype
from tileyard.model import Digest, TensorSpec
from tileyard.targets.base import Array

RECIPE = "1"
"""The version of how inputs are made; a change to this module that changes them raises it."""
_INTEGERS = {"int": (-8, 8, np.int8), "uint": (0, 16, np.uint8), "bool": (0, 2, np.uint8)}
"""By kind of dtype, the range from which values are drawn, and as what."""


def make_inputs(specs: Sequence[TensorSpec]) -> list[Array]:
    """An array for every ``in`` and ``inout`` tensor of ``specs``, in calling order.

    Raises InvalidProgramError for a dtype that does not exist.
    """
    return [make_input(index, spec) for index, spec in enumerate(specs) if spec.role != "out"]


def make_input(index: int, spec: TensorSpec) -> Array:
    """The array for tensor number ``index`` of a kernel: index, dtype and shape decide its values.

    Floats are standard normal, which every dtype can hold; signed integers lie in [-8, 8) and
    unsigned ones in [0, 16), small enough that sums of products do not overflow; booleans are as
    often true as false.
    """
    dtype = find_dtype(spec.dtype)
    random = np.random.Generator(np.random.PCG64(_seed(index, spec)))
    if dtype.kind == "float":
        drawn = np.float64 if dtype.bits == 64 else np.float32
        return random.standard_normal(spec.shape, dtype=drawn).astype(dtype.numpy)
    low, high, kind = _INTEGERS[dtype.kind]
    return random.integers(low, high, size=spec.shape, dtype=kind).astype(dtype.numpy)


def input_key(specs: Sequence[TensorSpec]) -> Digest:
    """The identity of what ``make_inputs`` makes (with one NumPy) and of what outputs look like.

    Roles, dtypes and shapes of all tensors take part; names do not.
    """
    return digest_parts(
        "inputs", RECIPE, *(f"{spec.role}:{_signature(i, spec)}" for i, spec in enumerate(specs))
    )


def _signature(index: int, spec: TensorSpec) -> str:
    return f"{index}:{spec.dtype}:{','.join(map(str, spec.shape))}"


def _seed(index: int, spec: TensorSpec) -> int:
    return int.from_bytes(hashlib.sha256(_signature(index, spec).encode()).digest()[:16])
