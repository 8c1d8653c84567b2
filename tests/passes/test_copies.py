"""Loops over the elements of a tile become copies, where they are nothing else."""

import numpy as np
import pytest
from tests.passes.cases import body_of, faults_of, is_pipelined, run_text

TEXT = """\
def f(A: float32[9, 12, 8], C: out.float32[5, 4, 8]):
    bx: grid[1]
    threads(32)
    a: shared.float32[4, 8]

    for k in pipelined(5, stages=2):
        for i, j in parallel(4, 8):
            a[i, j] = A[k + 2, bx * 4 + i + 1, j]
        copy(a, C[k, :, :])
"""


def test_a_loop_over_the_elements_of_a_tile_is_a_copy() -> None:
    """Which can run ahead."""
    steps = run_text(TEXT)
    assert steps[1].name == "find-copies"
    assert "copy(A[k + 2, bx * 4 + 1 : +4, :], a)\n" in body_of(steps[1])
    assert is_pipelined(steps[-1])
    assert faults_of(steps, [np.arange(9 * 12 * 8, dtype=np.float32).reshape(9, 12, 8)]) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("A[k + 2, bx * 4 + i + 1, j]", "A[k + 2, j, i]"),
        ("A[k + 2, bx * 4 + i + 1, j]", "A[k + i, i, j]"),
        ("A[k + 2, bx * 4 + i + 1, j]", "A[k + 2, i * 2, j]"),
        ("A[k + 2, bx * 4 + i + 1, j]", "A[k + 2, i, j] + 1.0"),
        ("A[k + 2, bx * 4 + i + 1, j]", "A[k + 2, 3 - i, j]"),
        ("A[k + 2, bx * 4 + i + 1, j]", "A[k + 2, 0, j]"),
        ("a[i, j] =", "a[3 - i, j] ="),
        ("parallel(4, 8)", "parallel(4, 7)"),
        ("parallel(4, 8)", "serial(4, 8)"),
    ],
)
def test_other_loops_stay_as_they_are(old: str, new: str) -> None:
    """Transposed, scaled, reversed, repeated, or a part of the tile only."""
    assert old in TEXT
    steps = run_text(TEXT.replace(old, new))
    assert body_of(steps[1]) == body_of(steps[0])
