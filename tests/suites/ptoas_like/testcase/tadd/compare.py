"""Compares the valid region of outputs with golden data."""

from pathlib import Path

import numpy as np
from cases import CASES
from st_common import compare_cases


def load(case, name):
    """The valid region of a file."""
    rows, columns = case["valid_shape"]
    data = np.fromfile(Path(case["name"], name), dtype=case["dtype"]).reshape(case["shape"])
    return data[:rows, :columns]


compare_cases(CASES, load)
