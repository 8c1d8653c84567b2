"""What outputs are worth, where the device has rounded what it multiplied."""

import numpy as np
import pytest

from tileyard.base.model import CheckPolicy, Tolerance
from tileyard.workers.output_checks import Output, compare_outputs, find_unsteady

WANT = np.linspace(1, 2, 1000, dtype=np.float32)


@pytest.mark.parametrize(
    ("off", "precision", "tolerance", "is_right"),
    [
        (1e-3, "", None, False),
        (1e-3, "tfloat32", None, True),
        (3e-2, "tfloat32", None, False),
        (1e-3, "tfloat32", Tolerance(rtol=1e-5, atol=1e-5), False),
    ],
)
def test_an_output_need_be_as_exact_as_the_device_multiplies(
    off: float, precision: str, tolerance: Tolerance | None, *, is_right: bool
) -> None:
    """TF32 keeps 10 bits of float32. What the user allows counts as it is."""
    output = Output("C", WANT * np.float32(1 + off), WANT, precision)
    mismatch, _ = compare_outputs([output], CheckPolicy(tolerance=tolerance))
    assert (mismatch is None) == is_right


@pytest.mark.parametrize(
    ("dtype", "poisoned", "other"),
    [("int8", -128, 127), ("uint8", 255, 0), ("bool", True, False), ("float32", np.nan, 2e38)],
)
def test_what_is_not_written_differs_after_a_further_run(
    dtype: str, poisoned: float, other: float
) -> None:
    """Which output, how many elements and the first of them are named, whatever the tolerance is."""
    before, again = np.ones((2, 3), dtype), np.ones((2, 3), dtype)
    before[0, 2] = before[1, 1] = poisoned
    again[0, 2] = again[1, 1] = other
    allowed = CheckPolicy(tolerance=Tolerance(rtol=0.1, atol=0.1))
    for check in (CheckPolicy(), allowed):
        changed, message = find_unsteady([Output("Y", again, before)], check)
        assert changed is not None
        assert (changed.output, changed.index, changed.wrong, changed.total) == ("Y", (0, 2), 2, 6)
        assert message.startswith("2 of 6 elements of Y depend on what Y held before the run")
        assert "the first: Y[0, 2] is " in message
    assert find_unsteady([Output("Y", before, before.copy())], CheckPolicy()) == (None, "")


@pytest.mark.parametrize(("off", "is_steady"), [(1.5e-4, True), (1e-2, False)])
def test_sums_in_another_order_are_steady(off: float, is_steady: bool) -> None:
    """Two right runs may be off to different sides of what is expected."""
    sums = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    changed, _ = find_unsteady([Output("Y", sums * np.float32(1 + off), sums)], CheckPolicy())
    assert (changed is None) == is_steady
