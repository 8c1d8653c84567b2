"""Inputs follow from the signature alone, and suit their dtype."""

from typing import Literal, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileyard.base.errors import InvalidProgramError
from tileyard.base.model import Draw, EdgeValues, TensorSpec
from tileyard.ir.dtypes import DTYPES, find_dtype
from tileyard.measure.inputs import input_key, make_input, make_inputs

Role = Literal["in", "out", "inout"]


def tensor(
    dtype: str = "float32", shape: tuple[int, ...] = (64, 64), role: Role = "in", name: str = "A"
) -> TensorSpec:
    """A tensor parameter."""
    return TensorSpec(name=name, dtype=dtype, shape=shape, role=role)


def test_one_array_for_each_tensor_that_is_read() -> None:
    """Outputs get none; the others come in calling order with their shapes and dtypes."""
    specs = [
        tensor("float16", (2, 3)),
        tensor("int32", (4,), "out"),
        tensor("bool", (), "inout"),
    ]
    expected = [((2, 3), np.dtype("float16")), ((), np.dtype("bool"))]

    assert [(array.shape, array.dtype) for array in make_inputs(specs)] == expected


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_inputs_are_the_same_every_time(dtype: str) -> None:
    """Every dtype has finite, varied values that do not change from call to call."""
    expected = make_input(0, tensor(dtype))

    found = make_input(0, tensor(dtype, name="B", role="inout"))

    assert found.tobytes() == expected.tobytes()
    assert np.isfinite(found.astype(np.float64)).all()
    assert len(np.unique(found.astype(np.float64))) >= 2


def test_two_tensors_of_a_kernel_differ() -> None:
    """Position, dtype and shape each decide the numbers: A @ B is not A @ A."""
    first = make_input(0, tensor())

    assert (make_input(1, tensor()) != first).any()
    assert (make_input(0, tensor("float64")) != first).any()
    assert (make_input(0, tensor(shape=(32, 128))).reshape(64, 64) != first).any()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16", "float8_e4m3fn"])
def test_floats_are_standard_normal(dtype: str) -> None:
    """Mean 0 and deviation 1, whatever the precision."""
    values = make_input(0, tensor(dtype)).astype(np.float64)

    assert abs(values.mean()) < 0.1
    assert abs(values.std() - 1.0) < 0.1


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("int8", (-8, 7)), ("int64", (-8, 7)), ("uint8", (0, 15)), ("uint64", (0, 15))],
)
def test_integers_are_small(dtype: str, expected: tuple[int, int]) -> None:
    """Sums of products stay far from overflow, and the whole range occurs."""
    values = make_input(0, tensor(dtype))

    assert (int(values.min()), int(values.max())) == expected


def test_unknown_dtype_is_refused() -> None:
    """A dtype that the tile IR does not have is named."""
    with pytest.raises(InvalidProgramError, match="float3"):
        make_input(0, tensor("float3"))


SPECS = st.lists(
    st.builds(
        tensor,
        st.sampled_from(["int8", "float32"]),
        st.sampled_from([(), (1,), (1, 1), (11,)]),
        st.sampled_from(["in", "out", "inout"]),
    ),
    max_size=3,
)


@settings(deadline=None, max_examples=60)
@given(SPECS, SPECS)
def test_key_is_the_signature(one: list[TensorSpec], other: list[TensorSpec]) -> None:
    """Two lists of tensors have one key exactly where roles, dtypes and shapes agree."""
    expected = one == other

    assert (input_key(one) == input_key(other)) is expected


def test_key_ignores_names() -> None:
    """Renaming a parameter does not make golden results anew."""
    expected = input_key([tensor(name="A")])

    assert input_key([tensor(name="B")]) == expected


@pytest.mark.parametrize("dtype", sorted(set(DTYPES) - {"bool"}))
def test_another_seed_gives_other_numbers(dtype: str) -> None:
    """Of the same kind, and the same every time."""
    found = [make_input(0, tensor(dtype), Draw(seed=seed)) for seed in (0, 1, 1)]
    assert found[0].tobytes() == make_input(0, tensor(dtype)).tobytes() != found[1].tobytes()
    assert found[1].tobytes() == found[2].tobytes()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16", "float8_e5m2"])
def test_edge_values_of_floats(dtype: str) -> None:
    """Zeros of both signs; the smallest of all; one largest, at either end; and those that are not finite."""
    zeros, tiny, largest, inf, nan = (
        make_input(0, tensor(dtype), Draw(edges=edges)).astype(np.float64).reshape(-1)
        for edges in get_args(EdgeValues)
    )
    finite = np.abs(tiny[tiny != 0.0])
    usual = make_input(0, tensor(dtype)).astype(np.float64).reshape(-1)
    assert not zeros.any()
    assert np.signbit(zeros).tolist() == [False, True] * (zeros.size // 2)
    assert finite.min() < np.abs(usual[usual != 0.0]).min() / 4
    assert np.flatnonzero(largest != usual).tolist() == [0]
    assert largest[0] > 5e4
    assert np.isfinite(largest[0])
    last = make_input(1, tensor(dtype), Draw(edges="largest")).astype(np.float64).reshape(-1)
    assert int(np.argmax(last)) == last.size - 1
    assert (inf[0], inf[-1], np.flatnonzero(np.isinf(inf)).size) == (np.inf, -np.inf, 2)
    assert np.flatnonzero(np.isnan(nan)).tolist() == [nan.size // 2]


def test_edge_values_of_integers() -> None:
    """Zeros for all; the whole range only of those so narrow that their sums do not overflow."""
    assert not make_input(0, tensor("int64"), Draw(edges="zeros")).any()
    assert make_input(0, tensor("bool"), Draw(edges="zeros")).any()
    for dtype in ("int8", "uint8"):
        narrow = make_input(0, tensor(dtype), Draw(edges="largest"))
        assert (int(narrow.min()), int(narrow.max())) == find_dtype(dtype).range
    wide = make_input(0, tensor("int32"), Draw(edges="largest"))
    assert wide.tobytes() == make_input(0, tensor("int32")).tobytes()


@pytest.mark.parametrize("edges", get_args(EdgeValues))
def test_the_smallest_tensors_take_edge_values(edges: EdgeValues) -> None:
    """Also those without an element, and without a dimension."""
    for shape in ((), (1,), (0, 4)):
        assert make_input(0, tensor(shape=shape), Draw(edges=edges)).shape == shape
