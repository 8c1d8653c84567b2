"""Compares sums of the rows that count with golden data."""

from pathlib import Path

import numpy as np
from cases import CASES
from st_common import compare_cases


def load(case, name):
    """The sums of the rows that count."""
    return np.fromfile(Path(case["name"], name), dtype=case["dtype"])[: case["valid_shape"][0]]


compare_cases(CASES, load)
