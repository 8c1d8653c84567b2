"""What functions of TileLang give that are more than an operation of the tile IR, against NumPy."""

import importlib
import os
import warnings
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.differential.conftest import TARGET as GPU

from tileyard.ir.lanes import interpret_lanes
from tileyard.ir.specs import tensors

if TYPE_CHECKING:
    from tileyard.frontend.tilelang import Lowered

pytestmark = pytest.mark.slow

Array = NDArray[Any]
Run = Callable[..., Array]
SIDE = 64
RNG = np.random.default_rng(7)
FLOATS: dict[str, Callable[[Array, Array], Array]] = {
    "fma": lambda x, y: x.astype("f8") * y + x,
    "ieee_fmaf": lambda x, y: x.astype("f8") * y + x,
    "fmul": lambda x, y: x * y,
    "ieee_add": lambda x, y: x + y,
    "ieee_sub": lambda x, y: x - y,
    "ieee_mul": lambda x, y: x * y,
    "ieee_fdiv": lambda x, y: x / y,
    "ieee_fsqrt": lambda x, y: np.sqrt(x),
    "ieee_frsqrt": lambda x, y: 1 / np.sqrt(x.astype("f8")),
    "ieee_frcp": lambda x, y: 1 / x,
    "hypot": np.hypot,
    "copysign": np.copysign,
    "nextafter": np.nextafter,
    "ldexp": lambda x, y: np.ldexp(x, np.arange(SIDE)),
    "round, ties away from zero": lambda x, y: np.trunc(x + np.float32(0.5)),
    "infinity": lambda x, y: np.full_like(x, np.inf),
}
WORDS: dict[str, Callable[[int], int]] = {
    "popcount": lambda x: x.bit_count(),
    "clz": lambda x: 32 - x.bit_length(),
    "__ffs": lambda x: (x & -x).bit_length(),
}


def load(name: str) -> ModuleType:
    """Operations that are tried; importing them imports TileLang."""
    os.environ.setdefault("TILELANG_DEFAULT_TARGET", GPU)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(f"tests.differential.language.{name}")


def interpreter(operations: Iterable[Any], lower: Callable[..., "Lowered"]) -> Run:
    """Interprets the kernel around an operation of a name."""
    known = {operation.title: operation for operation in operations}

    def give(name: str, dtype: str, *arrays: Array) -> Array:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            lowered = lower(known[name].elaborate(dtype))
            count = sum(tensor.role != "out" for tensor in tensors(lowered.program))
            return interpret_lanes(lowered.program, arrays[:count])[0]

    return give


@pytest.fixture
def run(lower_prim_func: Callable[..., "Lowered"]) -> Run:
    """Runs operations on elements."""
    elements = load("elements")
    return interpreter([*elements.functions(), *elements.several()], lower_prim_func)


@pytest.fixture
def reductions(lower_prim_func: Callable[..., "Lowered"]) -> Run:
    """Runs reductions."""
    return interpreter(load("tiles").reductions(), lower_prim_func)


@pytest.mark.parametrize("name", FLOATS)
def test_functions_of_floats_give_what_numpy_gives(name: str, run: Run) -> None:
    """Rounded once where they say so."""
    x = np.abs(RNG.standard_normal(SIDE)).astype("f4")
    y = RNG.standard_normal(SIDE).astype("f4")
    x[:4] = 0.5, 1.5, 2.5, 1e8
    expected = FLOATS[name](x, y).astype("f4")
    found = run(name, "float32", x, y)
    if name == "hypot":
        np.testing.assert_array_max_ulp(found, expected, 1)
    else:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", WORDS)
def test_functions_of_words_count_bits(name: str, run: Run) -> None:
    """Zero included."""
    x = RNG.integers(-(2**31), 2**31, SIDE) >> RNG.integers(0, 32, SIDE)
    x[:3] = 0, 1, -1
    expected = np.array([WORDS[name](int(v) & 0xFFFFFFFF) for v in x])
    found = run(name, "int32", x.astype("i4"), x.astype("i4"))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", ["max", "min", "absmax"])
def test_reductions_of_halves_can_keep_nan(kind: str, reductions: Run) -> None:
    """Only where they are asked to."""
    x = RNG.standard_normal((SIDE, SIDE)).astype("f2")
    x[3, 5] = np.nan
    y = np.abs(x) if kind == "absmax" else x
    expected = y.min(axis=1) if kind == "min" else y.max(axis=1)
    found = reductions(f"reduce_{kind}, nan_propagate", "float16", x)
    np.testing.assert_array_equal(found, expected)
    assert np.isnan(found[3])
    plain = reductions(f"reduce_{kind}", "float16", x)
    assert np.isfinite(plain).all()


def test_four_products_of_bytes_are_added(run: Run) -> None:
    """To what a 32-bit number holds."""
    x = np.full((SIDE, SIDE), -128, "i1")
    x[0, :4] = -128, 3, 127, -1
    expected = sum(int(v) ** 2 for v in x[0, :4])
    found = run("dp4a", "int8", x, np.zeros((SIDE, SIDE), "i4"))
    assert found[0, 0] == expected
