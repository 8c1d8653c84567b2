"""Inputs and golden data of all cases, below the working directory."""

import numpy as np
from cases import CASES
from st_common import save_case, seed_case

for case in CASES:
    seed_case(case)
    dtype, shape, (rows, columns) = case["dtype"], case["shape"], case["valid_shape"]
    a, b = (np.random.randint(1, 10, shape).astype(dtype) for _ in range(2))
    golden = np.zeros(shape, dtype)
    golden[:rows, :columns] = a[:rows, :columns] + b[:rows, :columns]
    save_case(case["name"], {"input1": a, "input2": b, "golden": golden})
