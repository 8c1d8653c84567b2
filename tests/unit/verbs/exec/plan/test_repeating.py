"""Launching a script's kernel again: what it reads of its outputs before it writes them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tileyard.base.errors import KernelFault
from tileyard.verbs.exec.plan.launches import MOST_S, Repeater

Kernel = Callable[..., None]


def add(x: Any, out: Any) -> None:  # noqa: ANN401 (arrays)
    """Add to what was there."""
    with np.errstate(over="ignore"):
        out += x


def least(x: Any, out: Any) -> None:  # noqa: ANN401
    """Leave what was there where it is less."""
    np.minimum(x, out, out=out)


def most(x: Any, out: Any) -> None:  # noqa: ANN401
    """Leave what was there where it is more."""
    np.maximum(x, out, out=out)


def copy(x: Any, out: Any) -> None:  # noqa: ANN401
    """Write everything."""
    out[...] = x


def half(x: Any, out: Any) -> None:  # noqa: ANN401
    """Write the first half."""
    out[:2] = x[:2]


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint8", "int32"])
@pytest.mark.parametrize(
    ("kernel", "reads"), [(add, True), (least, True), (most, True), (copy, False), (half, False)]
)
def test_only_what_is_read_before_it_is_written_is_told(
    dtype: str, kernel: Kernel, reads: bool
) -> None:
    """Sums and extremes with the old content are; what is never written may be meant so."""
    x = np.array([3, 5, 7, 9], dtype)
    result = np.zeros(4, dtype)
    kernel(x, result)
    result = x if kernel in (least, most) else result
    told = Repeater(kernel, {1: "Y"}).find_old_reads([x], [result], 0.0)
    assert told.startswith("4 of 4 elements of Y depend on what Y held before, Y[0] first") == reads
    assert bool(told) == reads
    assert Repeater(kernel, {1: "Y"}).find_old_reads([x], [result], 2 * MOST_S) == ""


def test_a_launch_that_fails_with_other_content_is_told() -> None:
    """It used what was there, as an index for instance; the script itself goes on."""

    def fail(out: object) -> None:
        raise KernelFault("an index of X is outside its shape")

    told = Repeater(fail, {0: "Y"}).find_old_reads([], [np.zeros(4)], 0.0)
    assert told == "with other content in Y it fails: an index of X is outside its shape"
