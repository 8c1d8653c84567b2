"""Inputs and golden data of all cases, below the working directory."""

import numpy as np
from cases import CASES
from st_common import save_case, seed_case


def main():
    """Make the data of each case."""
    for case in CASES:
        seed_case(case)
        rows, columns = case["valid_shape"]
        data = np.random.uniform(0, 10, case["shape"]).astype(case["dtype"])
        golden = np.zeros((case["shape"][0], 1), case["dtype"])
        golden[:rows, 0] = data[:rows, :columns].sum(axis=1)
        save_case(case["name"], {"input": data, "golden": golden})


if __name__ == "__main__":
    main()
