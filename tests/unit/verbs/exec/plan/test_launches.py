"""Launches of a script's kernel: arguments that are None, and what it reads of its outputs before it writes
them.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tileyard.base.errors import BindError, KernelFault
from tileyard.base.model import SourceLine
from tileyard.ir.reader import read_program
from tileyard.verbs.exec.plan.launches import MOST_S, Repeater, StandIns

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


PROGRAM = """def scale(X: float32[m, 8], S: float16[m + 1, k], Y: out.float32[m, 8], k: int32):
    m: dim
    bx: grid[m]

    for i in parallel(8):
        Y[bx, i] = X[bx, i]
"""


LINES = {1: SourceLine(file="kernel.py", line=7)}


def test_a_tensor_that_is_not_used_may_be_none() -> None:
    """Its shape follows from the other arguments."""
    program = read_program(PROGRAM)
    stand_ins = StandIns(program, LINES, program.params, np.zeros)
    x, y = np.ones((5, 8), "float32"), np.zeros((5, 8), "float32")
    expected = (6, 3)
    filled = stand_ins.fill((x, None, y, 3))
    assert [filled[0] is x, filled[2] is y, filled[3]] == [True, True, 3]
    assert (filled[1].shape, filled[1].dtype) == (expected, np.float16)  # type: ignore[attr-defined]


def test_a_dimension_that_no_argument_has_is_zero() -> None:
    """Where only what was left out would say how large it is, there is none of it, as in TileLang."""
    program = read_program(
        PROGRAM.replace("m + 1, k", "n, k").replace("    m: dim", "    m: dim\n    n: dim")
    )
    stand_ins = StandIns(program, LINES, program.params, np.zeros)
    x = np.ones((5, 8), "float32")
    expected = (0, 3)
    assert stand_ins.fill((x, None, x, 3))[1].shape == expected  # type: ignore[attr-defined]


def test_a_tensor_that_is_used_may_not_be_none() -> None:
    """The parameter and the first line that uses it are named."""
    program = read_program(PROGRAM)
    stand_ins = StandIns(program, LINES, program.params, np.zeros)
    given = np.ones((6, 3), "float16")
    with pytest.raises(BindError, match=r"^scale: X is None, and is used at kernel\.py:7$"):
        stand_ins.fill((None, given, given, 3))
