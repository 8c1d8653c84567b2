"""Comparing outputs: against a plain loop, and at every edge of floating point."""

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileyard.base.errors import BindError
from tileyard.base.model import Mismatch, Tolerance
from tileyard.ir.dtypes import DTYPES
from tileyard.measure.compare import TOLERANCES, compare, default_tolerance, describe_closest
from tileyard.targets.base import Array

LOOSE = Tolerance(rtol=0.1, atol=0.1)
VALUES = st.sampled_from(
    [0.0, -0.0, 1.0, 1.05, 1.3, -1.0, 20.0, 22.5, math.nan, math.inf, -math.inf]
)


def slow_compare(got: list[float], want: list[float], tolerance: Tolerance) -> tuple[int, set[int]]:
    """How many elements are wrong, and which of them are furthest beyond their allowance."""
    finite = [w for w in want if math.isfinite(w)]
    rms = math.sqrt(sum(w * w for w in finite) / len(finite)) if finite else 0.0
    excess: dict[int, float] = {}
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        if g == w or (math.isnan(g) and math.isnan(w)):
            continue
        if not (math.isfinite(g) and math.isfinite(w)):
            excess[i] = math.inf
        elif abs(g - w) > tolerance.atol * rms + tolerance.rtol * abs(w):
            excess[i] = abs(g - w) - tolerance.atol * rms - tolerance.rtol * abs(w)
    return len(excess), {i for i, e in excess.items() if e >= max(excess.values()) - 1e-9}


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=12))
def test_verdict_is_that_of_a_plain_loop(pairs: list[tuple[float, float]]) -> None:
    """Count and worst element agree with the definition, for NaN and infinities, too."""
    got, want = ([pair[i] for pair in pairs] for i in (0, 1))
    wrong, worst = slow_compare(got, want, LOOSE)

    found = compare("C", np.array(got), np.array(want), LOOSE)

    assert (0 if found is None else found.wrong) == wrong
    assert found is None or found.index[0] in worst


def test_worst_element_is_named_wherever_it_is() -> None:
    """The index is that of the output's own shape, in any chunk, with both values."""
    want = np.ones((300, 400), dtype=np.float32)
    got = want.copy()
    got[2, 3] = 1.5
    got[250, 7] = 3.0
    expected = Mismatch(output="C", index=(250, 7), got="3", want="1", wrong=2, total=120_000)

    found = compare("C", got, want, None)

    assert found == expected
    assert found is not None
    assert (
        found.describe() == "C[250, 7] is 3, expected 1; 2 of 120000 elements are wrong (0.00167 %)"
    )


@pytest.mark.parametrize(
    ("got", "want", "right"),
    [
        (math.nan, math.nan, True),
        (math.inf, math.inf, True),
        (-math.inf, -math.inf, True),
        (math.inf, -math.inf, False),
        (1.0, math.inf, False),
        (math.inf, 1.0, False),
        (math.nan, 1.0, False),
        (1.0, math.nan, False),
        (-0.0, 0.0, True),
    ],
)
def test_special_values_equal_only_themselves(got: float, want: float, right: bool) -> None:
    """No tolerance makes a number out of NaN or an infinity, or the reverse."""
    expected = None if right else (f"{got:.6g}", f"{want:.6g}")

    found = compare("C", np.array([1.0, got]), np.array([1.0, want]), LOOSE)

    assert (found and (found.got, found.want)) == expected


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_verdict_does_not_depend_on_the_scale(scale: float) -> None:
    """The absolute part is relative to the rms of what is expected."""
    want = np.random.default_rng(0).standard_normal(1000)
    slightly, badly = want.copy(), want.copy()
    slightly[5] += 0.09
    badly[5] += 0.11 + 0.1 * abs(want[5])
    rms = float(np.sqrt((want**2).mean()))
    tolerance = Tolerance(rtol=0.1, atol=0.1 / rms)

    assert compare("C", slightly * scale, want * scale, tolerance) is None
    assert compare("C", badly * scale, want * scale, tolerance) is not None


@pytest.mark.parametrize("first", [0, 50_000])
def test_element_that_was_never_written_is_worse_than_any_number(first: int) -> None:
    """NaN in place of a number is named before a large error, in any chunk."""
    want = np.ones(100_000)
    got = want.copy()
    got[[first, 50_000 - first]] = math.nan, 1e6
    expected = (first,)

    found = compare("C", got, want, None)

    assert found is not None
    assert found.index == expected


def test_values_whose_squares_overflow_are_compared() -> None:
    """The rms of very large or infinite values is still theirs."""
    want = np.array([1e300, -1e300, math.inf, 1e300])
    got = np.array([1.05e300, -1e300, math.inf, 1e300])

    assert compare("C", got, want, LOOSE) is None
    assert compare("C", got, want, Tolerance(rtol=0.01, atol=0.01)) is not None


@pytest.mark.parametrize(
    "dtype", ["float16", ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, "float32"]
)
def test_rounding_of_the_output_dtype_is_allowed(dtype: str) -> None:
    """An output that is the exact result, rounded once, is right against a wider reference."""
    want = np.random.default_rng(1).standard_normal((64, 64))

    assert compare("C", want.astype(dtype), want, None) is None


@pytest.mark.parametrize("dtype", ["float16", ml_dtypes.bfloat16, "float32"])
def test_forgotten_term_of_a_sum_is_seen(dtype: str) -> None:
    """A product of 1,024 terms of which the last is left out is wrong in every float dtype."""
    random = np.random.default_rng(2)
    a, b = (random.standard_normal((1024, 1024)) for _ in range(2))
    want = a[:64] @ b
    got = (a[:64, :-1] @ b[:-1]).astype(dtype)

    assert compare("C", got, want, None) is not None


def test_every_float_has_a_default_and_nothing_else() -> None:
    """Integers and booleans are compared exactly."""
    expected = {name for name, dtype in DTYPES.items() if dtype.is_float}

    assert set(TOLERANCES) == expected
    assert default_tolerance("int32") == Tolerance(rtol=0.0, atol=0.0)


@pytest.mark.parametrize(
    ("got", "want", "expected"),
    [
        (np.array([2**53 + 1]), np.array([2**53]), (str(2**53 + 1), str(2**53))),
        (np.array([3, 0], "u1"), np.array([3, 255], "u1"), ("0", "255")),
        (np.array([True]), np.array([False]), ("True", "False")),
        (np.array([7], "i4"), np.array([7], "i8"), None),
        (np.array([-1], "i8"), np.array([2**64 - 1], "u8"), ("-1", str(2**64 - 1))),
    ],
    ids=["beyond float64", "unsigned", "bool", "wider", "signs"],
)
def test_integers_must_be_equal(got: Array, want: Array, expected: tuple[str, str] | None) -> None:
    """Whatever the tolerance, and also where float64 could not tell."""
    found = compare("C", got, want, LOOSE)

    assert (found and (found.got, found.want)) == expected


def test_integer_output_against_a_float_reference_is_exact_by_default() -> None:
    """A reference that computes in floats can still ask for more room."""
    got, want = np.array([10], "i4"), np.array([10.5])

    assert compare("C", got, want, None) is not None
    assert compare("C", got, want, LOOSE) is None


@pytest.mark.parametrize("shape", [(), (0,), (3, 0)])
def test_scalars_and_empty_outputs_are_compared(shape: tuple[int, ...]) -> None:
    """An output without elements is right, one without dimensions has the empty index."""
    want = np.ones(shape)
    expected = [()] if shape == () else []

    found = compare("C", want * 2, want, None)

    assert [mismatch.index for mismatch in [found] if mismatch] == expected


def test_other_shape_is_an_error() -> None:
    """Broadcasting never hides that an output has the wrong shape."""
    with pytest.raises(BindError, match=r"C has shape \(3,\), its reference \(3, 1\)"):
        compare("C", np.zeros(3), np.zeros((3, 1)), None)


def test_strided_outputs_are_compared_by_index() -> None:
    """How an output lies in memory does not matter."""
    want = np.arange(12.0).reshape(3, 4)
    got = np.asfortranarray(want)
    got[1, 2] = 99.0

    found = compare("C", got, want, None)

    assert found is not None
    assert found.index == (1, 2)


def test_the_element_that_is_closest_to_being_wrong_is_named() -> None:
    """With the share of its allowance that it uses, in whichever chunk it is."""
    want = np.ones((300, 400), dtype=np.float32)
    got = want.copy()
    got[250, 7] = 1.05
    got[2, 3] = 1.01
    expected = (
        "C: of 120000 elements the worst, [250, 7], is 1.05, expected 1: 25 % of what is allowed"
    )
    assert describe_closest("C", got, want, LOOSE) == expected


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_outputs_that_are_equal_are_called_so(dtype: str) -> None:
    """Infinities, NaN and zeros that allow nothing use nothing."""
    values = [0, 0, 3] if dtype == "int32" else [0.0, math.inf, math.nan]
    array = np.array(values, dtype=dtype)
    expected = "C: each of 3 elements is what was expected"
    assert describe_closest("C", array, array.copy(), None) == expected


@settings(deadline=None, max_examples=100)
@given(
    st.sampled_from(["float32", "float16", "bfloat16"]),
    st.sampled_from([1e-42, 1e-30, 1e-3, 1.0, 1e18, 1e37]),
    st.sampled_from([Tolerance(rtol=1e-3, atol=0.0), LOOSE, Tolerance(rtol=0.0, atol=1e-3)]),
    st.integers(0, 1 << 16),
)
def test_narrow_types_are_judged_as_if_they_were_wide(
    dtype: str, scale: float, tolerance: Tolerance, seed: int
) -> None:
    """What float32 is precise enough to say at once is what float64 says, close to the bound, too."""
    random = np.random.default_rng(seed)
    narrow = DTYPES[dtype].numpy
    with np.errstate(all="ignore"):
        want = (random.standard_normal(64) * scale).astype(narrow)
        wide = want.astype(np.float64)
        bound = tolerance.atol * scale + tolerance.rtol * np.abs(wide)
        off = random.choice([0.0, 0.5, 0.999, -1.0, 1.0, 1 + 1e-7, 1.001], 64)
        got = (wide + bound * off).astype(narrow)

    found = compare("C", got, want, tolerance)

    expected = compare("C", got.astype(np.float64), wide, tolerance)
    assert (found and (found.index, found.wrong)) == (expected and (expected.index, expected.wrong))


def test_a_tolerance_may_be_meant_by_element_and_allow_for_a_share() -> None:
    """``atol`` is then not times the rms, and so many elements may be wrong."""
    want = np.full(100, 1000.0, np.float32)
    got = want.copy()
    got[:2] += 5.0
    assert compare("B", got, want, Tolerance(rtol=0.0, atol=0.01)) is None
    found = compare("B", got, want, Tolerance(rtol=0.0, atol=0.01, is_elementwise=True))
    assert found is not None
    assert found.wrong == 2
    assert compare("B", got, want, Tolerance(rtol=0, atol=0, share=0.02)) is None
    assert compare("B", got, want, Tolerance(rtol=0, atol=0, share=0.01)) is not None


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize(
    ("size", "count"), [(250, 1), (250, 3), (250, 100), (32, 1), (8, 1), (5000, 60)]
)
@pytest.mark.parametrize("factor", [1e12, 1e30])
def test_a_few_huge_elements_allow_no_error_of_the_others(
    dtype: str, size: int, count: int, factor: float
) -> None:
    """Be one element huge or a part of all: others are compared by their own size, as the message says."""
    numpy = DTYPES[dtype].numpy
    want = np.random.default_rng(3).uniform(1, 3, size)
    want[:count] *= min(factor, 2e4 if dtype == "float16" else math.inf)
    got = np.where(np.arange(size) < count, want, 0).astype(numpy)
    want = want.astype(numpy)

    found = compare("Y", got, want, None)

    assert found is not None
    assert (found.wrong, found.left_out) == (size - count, count)
    share = f"{100 * (1 - count / size):.3g}"
    assert f"{size - count} of {size} elements are wrong ({share} %)" in found.describe()
    assert found.describe().endswith(f"; the tolerance follows the rms without the largest {count}")
    assert compare("Y", want, want, None) is None


def test_a_huge_element_among_zeros_allows_no_other_value_in_their_place() -> None:
    """If nearly all elements are zeros, one that is not says nothing about their errors."""
    want = np.zeros(250, np.float32)
    want[0] = 1e30
    got = want.copy()
    got[7:] = 3
    found = compare("Y", got, want, None)
    assert found is not None
    assert (found.wrong, found.left_out) == (243, 1)


@pytest.mark.parametrize("size", [2, 3, 10, 100, 1000])
@pytest.mark.parametrize("share", [1.0, 0.02])
def test_what_is_small_by_cancellation_may_be_off_by_a_share_of_the_rms(
    size: int, share: float
) -> None:
    """In outputs of any length, among zeros, too: no usual spread of elements is taken for huge ones."""
    random = np.random.default_rng(4)
    for _ in range(50):
        want = random.standard_normal(size) * (np.arange(size) < max(1, share * size))
        want[0] = 1e-4 * np.abs(want).max()
        off = 5e-5 * np.sqrt((want**2).mean()) * (want != 0)
        assert compare("Y", (want + off).astype(np.float32), want, None) is None


@pytest.mark.parametrize(
    "want",
    [
        [1.0, math.inf, -math.inf, math.nan, 2.0] * 30,
        [6e-8, 1.2e-7, 3e-7] * 100 + [1.0],  # subnormals of float16
        [0.0] * 400,
    ],
    ids=["not finite", "subnormal", "zeros"],
)
def test_unusual_values_are_compared_by_the_usual_ones(want: list[float]) -> None:
    """Infinities and NaN set no tolerance, and the last bit of a subnormal number is no error."""
    exact = np.array(want, np.float16)
    finite = np.isfinite(exact)
    near = np.where(finite, np.nextafter(exact, np.float16(math.inf)), exact)
    assert compare("Y", near.astype(np.float16) if exact.any() else exact, exact, None) is None
    wrong = np.where(finite, exact + np.float16(1), exact)
    found = compare("Y", wrong, exact, None)
    assert found is not None
    assert found.wrong == finite.sum()
