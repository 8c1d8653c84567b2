"""The cases of tadd."""

import numpy as np
from st_common import validate_cases

CASES = [
    {
        "name": "f32_16x64",
        "dtype": np.float32,
        "shape": (16, 64),
        "valid_shape": (16, 64),
        "eps": 1e-6,
    },
    {
        "name": "f32_32x32_valid_31x30",
        "dtype": np.float32,
        "shape": (32, 32),
        "valid_shape": (31, 30),
        "eps": 1e-6,
    },
    {
        "name": "i32_16x64",
        "dtype": np.int32,
        "dst_dtype": np.int32,
        "tmp_shape": (1, 64),
        "shape": (16, 64),
        "valid_shape": (16, 64),
        "eps": 0,
    },
]
validate_cases(CASES)
