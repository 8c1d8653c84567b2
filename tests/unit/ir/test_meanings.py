"""Scalar operations and conversions, value by value."""

import math

import ml_dtypes
import numpy as np
import pytest

from tileyard.base.errors import InvalidProgramError
from tileyard.ir.dtypes import DTYPES, array_name, find_dtype, is_float, is_integer, name_of
from tileyard.ir.meanings import MEANINGS, OPS, convert, explain_misuse
from tileyard.ir.nodes import Const, Op
from tileyard.ir.specs import Evaluator, no_loads

LAZY = {"select", "and", "or", "nan", "reinterpret"}


def value(name: str, dtype: str, *args: float, result: str | None = None) -> object:
    """The value of an operation on literals."""
    op = Op(name, tuple(Const(arg, dtype) for arg in args), result or dtype)
    with np.errstate(all="ignore"):
        return Evaluator({}, no_loads).value(op)


def test_every_operation_has_a_meaning() -> None:
    """The table of operations and the table of meanings name the same ones."""
    expected = set(OPS) - LAZY
    assert set(MEANINGS) == expected


@pytest.mark.parametrize(
    ("name", "a", "b", "expected"),
    [
        ("floordiv", -7, 2, -4),
        ("floormod", -7, 2, 1),
        ("truncdiv", -7, 2, -3),
        ("truncmod", -7, 2, -1),
        ("floordiv", 7, -2, -4),
        ("floormod", 7, -2, -1),
        ("truncdiv", -(2**31), -1, -(2**31)),
        ("add", 2**31 - 1, 1, -(2**31)),
        ("mul", 65536, 65536, 0),
        ("sub", -(2**31), 1, 2**31 - 1),
        ("shl", 3, 30, -(2**30)),
        ("shr", -5, 1, -3),
        ("bitand", 12, 10, 8),
        ("bitxor", 12, 10, 6),
        ("min", 3, -4, -4),
        ("max", 3, -4, 3),
    ],
)
def test_integers_wrap_and_round_as_named(name: str, a: int, b: int, expected: int) -> None:
    """Integer operations on int32: floor and truncation, wrapping, arithmetic shifts."""
    got = value(name, "int32", a, b)
    assert got == expected
    assert isinstance(got, np.int32)


@pytest.mark.parametrize(
    ("name", "arg", "expected"),
    [
        ("round", 2.5, 2.0),
        ("round", 3.5, 4.0),
        ("round", -0.5, -0.0),
        ("floor", -1.5, -2.0),
        ("ceil", -1.5, -1.0),
        ("trunc", -1.5, -1.0),
        ("rsqrt", 0.0, math.inf),
        ("log", 0.0, -math.inf),
        ("exp", -math.inf, 0.0),
        ("exp2", 10.0, 1024.0),
        ("exp10", 2.0, 100.0),
        ("erf", math.inf, 1.0),
        ("sigmoid", -math.inf, 0.0),
        ("abs", -0.0, 0.0),
        ("neg", 0.0, -0.0),
    ],
)
def test_functions_at_their_corners(name: str, arg: float, expected: float) -> None:
    """Functions of float32 at points where the result is exact, sign of zero included."""
    got = value(name, "float32", arg)
    assert isinstance(got, np.float32)
    assert (float(got), math.copysign(1, got)) == (expected, math.copysign(1, expected))


def test_narrow_arithmetic_is_rounded_once() -> None:
    """bfloat16 sums are the exact sum, rounded to nearest even."""
    expected = ml_dtypes.bfloat16(256.0)
    assert value("add", "bfloat16", 256.0, 1.0) == expected
    assert value("add", "bfloat16", 256.0, 3.0) == ml_dtypes.bfloat16(260.0)


def test_signs_of_the_remainders() -> None:
    """fmod has the sign of its first argument; NaN is not equal to itself."""
    expected = -1.5
    assert value("fmod", "float64", -5.5, 2.0) == expected
    assert math.isnan(float(Evaluator({}, no_loads).value(Op("nan", (), "float16"))))


def test_reinterpret_keeps_the_bits() -> None:
    """The bits of 1.0 in float32 are those of its encoding."""
    expected = 0x3F800000
    assert value("reinterpret", "float32", 1.0, result="int32") == expected


@pytest.mark.parametrize(
    ("source", "to", "expected"),
    [
        (np.array([2.9, -2.9, np.nan, 1e20, -1e20], np.float32), "int32", [2, -2, 0, 2**31 - 1, -(2**31)]),
        (np.array([300.0, -1.0, np.inf], np.float16), "uint8", [255, 0, 255]),
        (np.array([1e30, -1e30, 9.3e18], np.float64), "int64", [2**63 - 1, -(2**63), 2**63 - 1]),
        (np.array([300, -1], np.int32), "uint8", [44, 255]),
        (np.array([0.0, 0.5, np.nan], np.float32), "bool", [False, True, True]),
        (np.array([True, False]), "float32", [1.0, 0.0]),
        (np.array([1.00390625, 1.01171875], np.float32), "bfloat16", [1.0, 1.015625]),
        (np.array([65520.0, 65519.0], np.float32), "float16", [np.inf, 65504.0]),
        (np.array([1e6, -np.inf, np.nan], np.float32), "float8_e4m3fn", [448.0, -448.0, np.nan]),
        (np.array([1e6, 0.3], np.float32), "float8_e5m2", [57344.0, 0.3125]),
    ],
)  # fmt: skip
def test_conversions(source: "np.ndarray", to: str, expected: list[float]) -> None:  # type: ignore[type-arg]
    """Floats round to even or truncate and saturate, integers wrap, eight-bit floats saturate."""
    with np.errstate(all="ignore"):
        got = convert(source, to)
    assert got.dtype == find_dtype(to).numpy
    np.testing.assert_array_equal(got.astype(np.float64), np.array(expected, np.float64))


def test_tensor_floats_round_half_away_from_zero() -> None:
    """Ten bits after the first are kept, the middle goes away from zero, and infinities and NaN stay."""
    step = 2.0**-10
    source = np.float32([1 + step / 2, -1 - step / 2, 1 + 0.49 * step, np.inf, -np.inf, np.nan])
    expected = np.float32([1 + step, -1 - step, 1, np.inf, -np.inf, np.nan])
    np.testing.assert_array_equal(convert(source, "tfloat32"), expected)


def test_conversion_gives_a_new_array() -> None:
    """A conversion to the same type does not share memory with its argument."""
    expected = 1.0
    source = np.ones(2, np.float32)
    convert(source, "float32")[0] = 5.0
    assert source[0] == expected


def test_dtype_names_go_both_ways() -> None:
    """Each scalar type but one is found by its name and by its NumPy type, and has one kind."""
    expected = [name if name != "tfloat32" else "float32" for name in DTYPES]
    assert [array_name(name) for name in DTYPES] == expected
    assert [name for name in DTYPES if is_float(name) and is_integer(name)] == []
    with pytest.raises(InvalidProgramError, match="float31 is not a scalar type"):
        find_dtype("float31")
    with pytest.raises(InvalidProgramError, match="no scalar type holds NumPy's complex64"):
        name_of(np.dtype(np.complex64))


def test_misuse_of_operations_is_explained() -> None:
    """The table says what is wrong with an illegal operation, and nothing of a legal one."""
    one, half, yes = Const(1, "int32"), Const(0.5, "float32"), Const(True, "bool")
    expected = {
        "": Op("add", (one, one), "int32"),
        "fly is not a scalar operation": Op("fly", (), "int32"),
        "neg takes 1 arguments, not 0": Op("neg", (), "int32"),
        "add of int32 gives int32, not int64": Op("add", (one, one), "int64"),
        "lt of float32 gives bool, not float32": Op("lt", (half, half), "float32"),
        "exp of tfloat32, which only arithmetic, gemms and conversions take": Op(
            "exp", (Const(1.0, "tfloat32"),), "tfloat32"
        ),
        "div does not take int32": Op("div", (one, one), "int32"),
        "bitand does not take float32": Op("bitand", (half, half), "float32"),
        "and does not take int32": Op("and", (one, one), "bool"),
        "nan does not take int32": Op("nan", (), "int32"),
        "add does not take bool": Op("add", (yes, yes), "bool"),
    }
    assert {explain_misuse(op): op for op in expected.values()} == expected
