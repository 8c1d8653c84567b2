"""What all testcases share."""

import sys
import zlib
from pathlib import Path

import numpy as np

REQUIRED = {"name", "dtype", "shape", "valid_shape", "eps"}


def validate_cases(cases):
    """Every case has all keys, and its valid region lies within its shape."""
    for case in cases:
        missing = REQUIRED - case.keys()
        if missing:
            raise ValueError(f"{case.get('name', '?')} lacks {', '.join(sorted(missing))}")
        if any(
            part > whole for part, whole in zip(case["valid_shape"], case["shape"], strict=True)
        ):
            raise ValueError(f"{case['name']}: the valid region is larger than the shape")


def seed_case(case):
    """The same data for a case whenever it is made."""
    np.random.seed(zlib.crc32(case["name"].encode()) & 0xFFFFFFFF)


def save_case(name, arrays):
    """One file for each array, in the folder of the case."""
    Path(name).mkdir(exist_ok=True)
    for stem, array in arrays.items():
        array.tofile(Path(name, f"{stem}.bin"))


def compare_cases(cases, load):
    """Compare all cases, or the one that is named; exit status 2 if one is wrong."""
    wanted = sys.argv[1] if len(sys.argv) > 1 else None
    wrong = 0
    for case in cases:
        if wanted is not None and case["name"] != wanted:
            continue
        golden = load(case, "golden.bin").astype(np.float64)
        output = load(case, "output.bin").astype(np.float64)
        ok = np.allclose(golden, output, atol=case["eps"], rtol=case["eps"], equal_nan=True)
        print(f"{case['name']}: {'passed' if ok else 'failed'}")
        wrong += not ok
    sys.exit(2 if wrong else 0)
