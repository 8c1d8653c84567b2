"""The cases of trowsum."""

import numpy as np
from st_common import validate_cases

CASES = [
    {
        "name": "f32_16x64",
        "dtype": np.float32,
        "shape": (16, 64),
        "valid_shape": (16, 64),
        "eps": 1e-4,
    },
    {
        "name": "f32_8x128_valid_8x100",
        "dtype": np.float32,
        "shape": (8, 128),
        "valid_shape": (8, 100),
        "eps": 1e-4,
    },
]
validate_cases(CASES)
