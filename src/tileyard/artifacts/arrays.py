"""Stores arrays as blobs in ``.npy`` format, little-endian and row-major: equal arrays are one blob. A dtype
of ml_dtypes becomes a structured one with a field of its name and bits: ``[('bfloat16', '<u2')]``.
"""

import io

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tileyard.artifacts.objects import ObjectStore
from tileyard.base.errors import DamagedError
from tileyard.base.model import Digest

Array = NDArray[np.generic]

_FOREIGN: dict[str, np.dtype[np.generic]] = {
    np.dtype(scalar).name: np.dtype(scalar)
    for scalar in (
        ml_dtypes.bfloat16,
        ml_dtypes.float8_e3m4,
        ml_dtypes.float8_e4m3,
        ml_dtypes.float8_e4m3b11fnuz,
        ml_dtypes.float8_e4m3fn,
        ml_dtypes.float8_e4m3fnuz,
        ml_dtypes.float8_e5m2,
        ml_dtypes.float8_e5m2fnuz,
        ml_dtypes.float8_e8m0fnu,
        ml_dtypes.float4_e2m1fn,
        ml_dtypes.int4,
        ml_dtypes.uint4,
    )
}


def put_array(objects: ObjectStore, array: Array) -> Digest:
    """Store an array. Raises HomeError, and TypeError for a dtype that contains Python objects."""
    dtype = array.dtype
    if dtype.hasobject:
        raise TypeError("an array of Python objects cannot be stored")
    plain = np.asarray(array).astype(dtype.newbyteorder("<"), copy=False)
    # In row-major order, and with one dimension if the array has none.
    bits = plain.reshape(-1).view(np.uint8)
    description: object = np.lib.format.dtype_to_descr(plain.dtype)
    if dtype.name in _FOREIGN:
        description = [(dtype.name, f"<u{dtype.itemsize}")]
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        head, {"descr": description, "fortran_order": False, "shape": plain.shape}
    )
    return objects.put_parts((head.getvalue(), bits.data))


def get_array(objects: ObjectStore, digest: Digest) -> Array:
    """The stored array, mapped read-only. Raises DamagedError if it is missing, damaged, or no array."""
    path = objects.path(digest)
    try:
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise DamagedError(f"object {digest} in {objects.root} is not an array: {error}") from error
    array: Array = np.asarray(mapped)
    names = array.dtype.names
    if names is not None and len(names) == 1 and names[0] in _FOREIGN:
        return array.view(_FOREIGN[names[0]])
    return array
