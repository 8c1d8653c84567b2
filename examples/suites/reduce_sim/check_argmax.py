"""Checks the places of the largest elements: whichever of several equal ones is named is right.

Exit status 0 if all are right, 2 if one is wrong.
"""

import sys
from pathlib import Path

import numpy as np


def main(work, dtype, shape, valid):
    """Look up what each row's result points at."""
    rows, columns = (int(size) for size in shape.split("x"))
    valid_rows, valid_columns = (int(size) for size in valid.split("x"))
    data = np.fromfile(Path(work, "input.bin"), dtype=dtype).reshape(rows, columns)
    found = np.fromfile(Path(work, "output.bin"), dtype=np.int32)
    for row, at in enumerate(found[:valid_rows]):
        best = data[row, :valid_columns].max()
        if not 0 <= at < valid_columns or data[row, at] != best:
            print(f"row {row}: element {at} was named, the largest is {best}")
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
