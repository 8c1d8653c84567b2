"""The scalar types of the tile IR: TVM's names, their kinds and widths, and NumPy's types for them."""

import math
import random
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from tileyard.base.errors import InvalidProgramError

try:
    import ml_dtypes
except ImportError:  # a host that only runs artifacts: there, these types are not known
    ml_dtypes = None  # type: ignore[assignment]

NARROW = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
"""Types that NumPy knows only through ml_dtypes."""

_PERIOD = 4093
"""The length after which the signs of huge floats repeat: prime, so that they follow no tile."""
TENSOR_FLOAT = "tfloat32"
"""Floats of which only sign, exponent and 10 bits of significand count; in float32 arrays."""

Kind = Literal["bool", "int", "uint", "float"]


@dataclass(frozen=True, kw_only=True, slots=True)
class DType:
    """One scalar type. ``numpy`` is the type of the arrays that hold it; ``bits`` is its width in memory."""

    name: str
    kind: Kind
    bits: int
    numpy: "np.dtype[np.generic]"

    @property
    def is_float(self) -> bool:
        """Whether values are floating-point numbers."""
        return self.kind == "float"

    @property
    def range(self) -> tuple[int, int]:
        """The smallest and the largest value of an integer type."""
        if self.kind == "int":
            return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1
        return 0, (1 << self.bits) - 1

    @property
    def is_integer(self) -> bool:
        """Whether values are signed or unsigned integers; ``bool`` is not one."""
        return self.kind in ("int", "uint")


def _table() -> dict[str, DType]:
    types: list[tuple[str, Kind, object]] = [("bool", "bool", np.bool_)]
    for bits in (8, 16, 32, 64):
        types += [(f"int{bits}", "int", f"int{bits}"), (f"uint{bits}", "uint", f"uint{bits}")]
    types += [(name, "float", name) for name in ("float16", "float32", "float64")]
    if ml_dtypes is not None:
        types += [(name, "float", getattr(ml_dtypes, name)) for name in NARROW]
    table = {}
    for name, kind, scalar in types:
        numpy: np.dtype[np.generic] = np.dtype(scalar)  # type: ignore[call-overload]
        table[name] = DType(name=name, kind=kind, bits=numpy.itemsize * 8, numpy=numpy)
    table[TENSOR_FLOAT] = replace(table["float32"], name=TENSOR_FLOAT)
    return table


DTYPES = _table()
"""Every scalar type, by name."""

_BY_NUMPY = {dtype.numpy: name for name, dtype in DTYPES.items() if name != TENSOR_FLOAT}


def find_dtype(name: str) -> DType:
    """The type called ``name``. Raises InvalidProgramError if there is none."""
    try:
        return DTYPES[name]
    except KeyError:
        raise InvalidProgramError(
            f"{name} is not a scalar type", hint=f"one of {', '.join(DTYPES)}"
        ) from None


def sparse_group(dtype: str) -> int:
    """Number of consecutive elements of which half may differ from 0 in a sparse product."""
    return 2 if find_dtype(dtype).bits >= 32 else 4


def is_float(name: str) -> bool:
    """Whether ``name`` is a floating-point type."""
    return name in DTYPES and DTYPES[name].is_float


def is_integer(name: str) -> bool:
    """Whether ``name`` is a signed or unsigned integer type."""
    return name in DTYPES and DTYPES[name].is_integer


def limits_of(name: str) -> tuple[Any, Any, Any]:
    """The largest finite value of a floating-point type, its smallest normal one, and its smallest one."""
    module: Any = ml_dtypes if name in NARROW else np
    found = module.finfo(find_dtype(name).numpy)
    return found.max, found.smallest_normal, found.smallest_subnormal


def poison(name: str) -> Any:  # noqa: ANN401 (a NumPy scalar)
    """The content of memory of this type before it is written: NaN, or an integer outside every range."""
    dtype = find_dtype(name)
    if dtype.is_float:
        return np.asarray(np.nan).astype(dtype.numpy)[()]
    if dtype.kind == "bool":
        return np.True_
    least, greatest = dtype.range
    return dtype.numpy.type(least if dtype.kind == "int" else greatest)


def fill_differently(
    array: "np.ndarray[Any, Any]", name: str, *, inverted: bool = False, most: float = math.inf
) -> None:
    """Fill memory of this type with values that differ from its poison everywhere. Floats are huge,
    at most ``most``, with signs in no simple order that ``inverted`` swaps; integers are at the
    other end of their range, and inverted the poison.
    """
    dtype = find_dtype(name)
    if not dtype.is_float:
        least, greatest = (0, 1) if dtype.kind == "bool" else dtype.range
        array.fill(greatest if (dtype.kind == "int") != inverted else least)
        return
    draw = random.Random(1)  # not NumPy's, which would be imported while a device is held
    signs = np.array(draw.choices((-1.0, 1.0), k=_PERIOD))
    huge = min(0.7 * float(limits_of(name)[0]), most) * (-signs if inverted else signs)
    pattern, flat = huge.astype(dtype.numpy), array.reshape(-1)
    whole = flat.size - flat.size % _PERIOD
    flat[:whole].reshape(-1, _PERIOD)[:] = pattern
    flat[whole:] = pattern[: flat.size - whole]


def array_name(name: str) -> str:
    """The scalar type of the arrays that hold values of this type: for nearly all types, the type itself."""
    return name_of(find_dtype(name).numpy)


def name_of(numpy: "np.dtype[np.generic]") -> str:
    """TVM's name of a NumPy type. Raises InvalidProgramError if there is none."""
    try:
        return _BY_NUMPY[numpy]
    except KeyError:
        raise InvalidProgramError(f"no scalar type holds NumPy's {numpy}") from None
