"""Makes the input of a case and the result that NumPy has for it: input.bin and golden.bin."""

import argparse
from pathlib import Path

import ml_dtypes  # noqa: F401 - tells NumPy of bfloat16
import numpy as np


def read_shape(text):
    """A shape as the list of cases writes it."""
    return tuple(int(size) for size in text.split("x"))


def make_input(rng, op, dtype, shape):
    """Numbers that a result can hold: products stay near one, and casts within their range."""
    if np.issubdtype(dtype, np.integer):
        low, high = (1, 3) if op == "prod" else (-100, 100)
        return rng.integers(low, high, shape).astype(dtype)
    if op == "prod":
        return rng.uniform(0.9, 1.1, shape).astype(dtype)
    return rng.uniform(-100, 100, shape).astype(dtype)


def compute(op, axis, data, out_dtype):
    """What the kernel should have found; computed in float64 and rounded once."""
    if op == "cast":
        return data.astype(out_dtype)
    if op in ("argmax", "argmin"):
        return getattr(np, op)(data, axis=axis, keepdims=True).astype(out_dtype)
    wide = data.astype(np.int32 if np.issubdtype(data.dtype, np.integer) else np.float64)
    return getattr(np, op)(wide, axis=axis, keepdims=True, **dtype_of(op, wide)).astype(out_dtype)


def dtype_of(op, data):
    """Sums and products of integers wrap around at 32 bits, as those of the machine do."""
    return {"dtype": data.dtype} if op in ("sum", "prod") else {}


def main():
    """Write both files into the folder that is named."""
    parser = argparse.ArgumentParser()
    for name in ("op", "dtype", "out-dtype", "shape", "valid", "out-shape"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--axis", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("out", type=Path)
    asked = parser.parse_args()

    rng = np.random.default_rng(asked.seed)
    shape, valid = read_shape(asked.shape), read_shape(asked.valid)
    data = make_input(rng, asked.op, np.dtype(asked.dtype), shape)
    counted = tuple(slice(size) for size in valid)
    found = compute(asked.op, asked.axis, data[counted], np.dtype(asked.out_dtype))

    golden = np.zeros(read_shape(asked.out_shape), found.dtype)
    golden[tuple(slice(size) for size in found.shape)] = found
    data.tofile(asked.out / "input.bin")
    golden.tofile(asked.out / "golden.bin")


if __name__ == "__main__":
    main()
