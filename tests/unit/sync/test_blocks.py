"""Which blocks of a grid run."""

import numpy as np

from tileyard.ir.reader import read_program
from tileyard.sync.blocks import check_program

NAMES = """
def main(X: float32[32], Y: out.float32[32], Z: out.float32[32]):
    bx: grid[32]
    by: grid[32]

    if bx == 9:
        Y[by] = X[by]
    if by == 20:
        Z[bx] = X[bx]
"""


def test_a_block_that_a_kernel_names_is_one_of_its_dimension() -> None:
    """With its neighbours it runs beside the first two and the last one: six places in each dimension."""
    checked = check_program(read_program(NAMES), {}, [np.ones(32, np.float32)])
    assert (checked.blocks, checked.findings) == (6 * 6, ())
