"""Arrays as blobs: every dtype survives, equal arrays are one blob, nothing is unpickled."""

import io
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tileyard.artifacts.arrays import Array, get_array, put_array
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.errors import DamagedError

DTYPES = [
    np.dtype(name)
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64"),
        *(ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.int4),
    )
]


def bits(array: Array) -> bytes:
    """An array's content without its meaning, so that NaN compares."""
    return np.asarray(array, order="C").tobytes()


@given(
    shape=hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 9),
)
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60
)
def test_array_comes_back(
    tmp_path: Path, shape: tuple[int, ...], dtype: "np.dtype[np.generic]", seed: int
) -> None:
    """Shape, dtype and every bit survive, for NumPy's dtypes and those of ml_dtypes."""
    objects = ObjectStore(tmp_path)
    values = np.random.default_rng(seed).integers(0, 2, size=shape)
    expected = np.asarray(values).astype(dtype)

    found = get_array(objects, put_array(objects, expected))

    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert bits(found) == bits(expected)


def test_array_is_read_only(tmp_path: Path) -> None:
    """What many cases share cannot be changed by one of them."""
    objects = ObjectStore(tmp_path)

    found = get_array(objects, put_array(objects, np.zeros(3)))

    assert not found.flags.writeable


@pytest.mark.parametrize(
    "twin",
    [
        np.asfortranarray(np.arange(6, dtype="<i4").reshape(2, 3)),
        np.arange(6, dtype=">i4").reshape(2, 3),
        np.arange(12, dtype="<i4").reshape(2, 6)[:, ::2] // 2,
    ],
    ids=["column-major", "big-endian", "strided"],
)
def test_equal_arrays_are_one_blob(tmp_path: Path, twin: Array) -> None:
    """How an array lies in memory takes no part in its identity."""
    objects = ObjectStore(tmp_path)
    expected = put_array(objects, np.arange(6, dtype="<i4").reshape(2, 3))

    assert put_array(objects, twin) == expected


def test_dtype_is_part_of_the_identity(tmp_path: Path) -> None:
    """The same bits under another dtype are another blob."""
    objects = ObjectStore(tmp_path)
    half = np.ones(4, dtype=ml_dtypes.bfloat16)

    digests = {put_array(objects, half), put_array(objects, half.view(np.uint16))}

    assert len(digests) == 2


def test_blob_is_a_plain_npy_file(tmp_path: Path) -> None:
    """NumPy alone can open it; bfloat16 shows as one field of that name."""
    objects = ObjectStore(tmp_path)
    half = np.arange(3).astype(ml_dtypes.bfloat16)
    expected = half.view(np.uint16)

    content = np.load(io.BytesIO(objects.get_bytes(put_array(objects, half))), allow_pickle=False)

    assert (content["bfloat16"] == expected).all()


def test_array_of_objects_is_refused(tmp_path: Path) -> None:
    """Python objects could only be pickled."""
    with pytest.raises(TypeError, match="Python objects"):
        put_array(ObjectStore(tmp_path), np.array([{}], dtype=object))


@pytest.mark.parametrize("content", ["text", "pickled", "short"])
def test_blob_that_is_no_array_is_damage(tmp_path: Path, content: str) -> None:
    """A blob of another kind, a pickle or a file that ends early is refused by its digest."""
    objects = ObjectStore(tmp_path)
    pickled, whole = io.BytesIO(), io.BytesIO()
    np.save(pickled, np.array([{}], dtype=object), allow_pickle=True)
    np.save(whole, np.zeros(100))
    data = {"text": b"hello", "pickled": pickled.getvalue(), "short": whole.getvalue()[:-8]}
    digest = objects.put_bytes(data[content])

    with pytest.raises(DamagedError, match=f"{digest}.*is not an array"):
        get_array(objects, digest)
