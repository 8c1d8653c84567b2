"""How a number of one scalar type becomes one of another: the meaning of ``Cast``."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tileyard.ir.dtypes import TENSOR_FLOAT, DType, find_dtype, name_of

Array = NDArray[np.generic]

_SATURATING = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}
"""Types that hold their largest value instead of what is larger, infinities included."""


def convert(values: Array, to: str) -> Array:
    """``values`` converted to dtype ``to``, element by element; always a new array.

    Floats round to nearest even, tensor floats half away from zero; in eight bits, numbers of every kind saturate. A float becomes an integer by
    truncation; outside the integer's range the nearest end is taken, and 0 for NaN. Integers wrap.
    """
    if to == TENSOR_FLOAT:
        return _round_tensor_float(convert(values, "float32"))
    target, source = find_dtype(to), find_dtype(name_of(values.dtype))
    if target.kind == "bool":
        return np.asarray(values != values.dtype.type(0))
    if target.is_float and (source.is_float or target.name in _SATURATING):
        return _round(values, target)
    if not source.is_float:
        return values.astype(target.numpy)
    return _truncate(values.astype(np.float64), target)


def _round_tensor_float(values: Array) -> Array:
    """Floats rounded to 10 bits of their significand as GPUs do it: half away from zero."""
    bits = np.asarray(values).view(np.uint32)
    up = np.where(np.isfinite(values.astype(np.float64)), bits + np.uint32(_HALF), bits)
    return cut_tensor_float(
        np.where(np.isnan(values.astype(np.float64)), np.float32(np.nan), up.view(np.float32))
    )


def cut_tensor_float(values: Array) -> Array:
    """What counts of the content of an array of tensor floats."""
    cut = values.view(np.uint32) & np.uint32(~(2 * _HALF - 1) & 0xFFFFFFFF)
    return cut.view(np.float32)


_HALF = 1 << 12
"""Half of the last bit of a tensor float that counts."""


def _round(values: Array, target: DType) -> Array:
    limit = _SATURATING.get(target.name)
    if limit is None or values.dtype == target.numpy:
        return values.astype(target.numpy)
    wide = values.astype(np.float64)
    return np.clip(wide, -limit, limit).astype(np.float32).astype(target.numpy)


def _truncate(values: NDArray[np.float64], target: DType) -> Array:
    least, greatest = target.range
    whole = np.trunc(np.nan_to_num(values, nan=0.0, posinf=np.inf, neginf=-np.inf))
    low, high = whole <= float(least), whole >= float(greatest)
    inside = np.where(low | high, 0.0, whole).astype(target.numpy)
    limited: Array = np.where(low, least, np.where(high, greatest, inside))
    return limited.astype(target.numpy)


def convert_one(value: np.generic, to: str) -> Any:  # noqa: ANN401 (a NumPy scalar)
    """``value`` converted to dtype ``to``."""
    return convert(np.asarray(value), to)[()]
