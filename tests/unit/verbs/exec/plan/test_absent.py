"""Arguments that a script leaves out by giving None."""

import numpy as np
import pytest

from tileyard.base.errors import BindError
from tileyard.base.model import SourceLine
from tileyard.ir.reader import read_program
from tileyard.verbs.exec.plan.launches import StandIns

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
