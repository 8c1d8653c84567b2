"""What outputs are worth, where the device has rounded what it multiplied."""

import numpy as np
import pytest

from tileyard.model import CheckPolicy, Tolerance
from tileyard.workers.kernel_checks import Output, compare_outputs

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
