"""A kernel's input tensors where its author gives none: the same numbers for the same signature."""

import hashlib
from collections.abc import Callable, Sequence

import numpy as np

from tileyard.artifacts.keys import digest_parts
from tileyard.ir.dtypes import DType, find_dtype
from tileyard.model import Digest, TensorSpec
from tileyard.targets.base import Array

RECIPE = "1"
"""The version of how inputs are made; a change to this module that changes them raises it."""


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
    return _MAKERS[dtype.kind](random, spec.shape, dtype)


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


def _make_floats(random: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    values = random.standard_normal(shape, dtype=np.float64 if dtype.bits == 64 else np.float32)
    return values.astype(dtype.numpy)


def _make_signed(random: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    return random.integers(-8, 8, size=shape, dtype=np.int8).astype(dtype.numpy)


def _make_unsigned(random: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    return random.integers(0, 16, size=shape, dtype=np.uint8).astype(dtype.numpy)


def _make_booleans(random: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    return random.integers(0, 2, size=shape, dtype=np.uint8).astype(dtype.numpy)


_MAKERS: dict[str, Callable[[np.random.Generator, tuple[int, ...], DType], Array]] = {
    "float": _make_floats,
    "int": _make_signed,
    "uint": _make_unsigned,
    "bool": _make_booleans,
}
