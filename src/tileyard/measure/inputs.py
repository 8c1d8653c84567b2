"""Makes input tensors for kernels without any of their own: the same numbers for a signature and a draw."""

import hashlib
from collections.abc import Sequence

import numpy as np

from tileyard.artifacts.objects import digest_parts
from tileyard.base.model import USUAL_DRAW, Digest, Draw, EdgeValues, TensorSpec
from tileyard.ir.dtypes import DType, find_dtype, limits_of
from tileyard.targets.base import Array

RECIPE = "1"
"""The version of the recipe for inputs; increase it with each change to this module that changes inputs."""
_INTEGERS = {"int": (-8, 8, np.int8), "uint": (0, 16, np.uint8), "bool": (0, 2, np.uint8)}
"""By kind of dtype, the range of drawn values, and the dtype in which they are drawn."""
EVERY = 8
"""One float per this number is tiny: what is lost of it is small compared with the others."""


def make_inputs(specs: Sequence[TensorSpec]) -> list[Array]:
    """An array per ``in`` and ``inout`` tensor, in calling order. Raises InvalidProgramError for a dtype."""
    return [make_input(index, spec) for index, spec in enumerate(specs) if spec.role != "out"]


def make_input(index: int, spec: TensorSpec, draw: Draw = USUAL_DRAW) -> Array:
    """The array for tensor number ``index``: index, dtype, shape and draw decide its values. Floats
    are standard normal, signed integers in [-8, 8), unsigned ones in [0, 16), booleans even.
    """
    dtype = find_dtype(spec.dtype)
    random = np.random.Generator(np.random.PCG64(_seed(index, spec, draw.seed)))
    made: Array
    if dtype.kind == "float":
        drawn = np.float64 if dtype.bits == 64 else np.float32
        made = random.standard_normal(spec.shape, dtype=drawn).astype(dtype.numpy)
    else:
        low, high, kind = _INTEGERS[dtype.kind]
        made = random.integers(low, high, size=spec.shape, dtype=kind).astype(dtype.numpy)
    if draw.edges is not None and made.size:
        _plant(made.reshape(-1), dtype, draw.edges, index)
    return made


def _plant(flat: Array, dtype: DType, edges: EdgeValues, index: int) -> None:
    """Put edge values into the elements of tensor number ``index``: one largest float, first or
    last, lest sums depend on order, and no wide integer, as integers may be indices.
    """
    if edges == "zeros" and dtype.kind != "bool":
        flat[:] = 0
        if dtype.is_float:
            flat[1::2] = -0.0
    elif edges == "largest" and dtype.is_integer and dtype.bits == 8:
        flat[0], flat[-1] = dtype.range
    elif dtype.is_float and edges != "zeros":
        largest, normal, subnormal = limits_of(dtype.name)
        if edges == "largest":
            flat[-(index % 2)] = largest
        elif edges == "tiny":
            for place, value in enumerate((subnormal, -subnormal, normal, -normal)):
                flat[place * EVERY :: 4 * EVERY] = value
        elif edges == "inf":
            flat[0], flat[-1] = np.inf, -np.inf
        else:
            flat[flat.size // 2] = np.nan


def input_key(specs: Sequence[TensorSpec]) -> Digest:
    """The identity of ``make_inputs``'s arrays (with one NumPy) and of outputs' shapes and dtypes."""
    return digest_parts(
        "inputs", RECIPE, *(f"{spec.role}:{_signature(i, spec)}" for i, spec in enumerate(specs))
    )


def _signature(index: int, spec: TensorSpec) -> str:
    return f"{index}:{spec.dtype}:{','.join(map(str, spec.shape))}"


def _seed(index: int, spec: TensorSpec, seed: int) -> int:
    signature = _signature(index, spec) + (f"#{seed}" if seed else "")
    return int.from_bytes(hashlib.sha256(signature.encode()).digest()[:16])
