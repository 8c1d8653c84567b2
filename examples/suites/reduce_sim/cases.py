"""The list of all cases, for Tileyard (JSON lines) and for CMake (``--cmake``)."""

import json
import sys

# What a case's program reads and writes, by the short names that case names use.
DTYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "i32": "int32", "i8": "int8"}
CPP = {
    "f32": "float",
    "f16": "sim::Half",
    "bf16": "sim::Bfloat16",
    "i32": "int32_t",
    "i8": "int8_t",
}
# How far results may be off: reductions add up in another order than NumPy does.
EPS = {"f32": 1e-5, "f16": 2e-3, "bf16": 1e-2, "i32": 0.0, "i8": 0.0}

REDUCTIONS = ("sum", "prod", "min", "max")
# dtype, shape in memory, and the part of it that counts.
REDUCED = (
    ("f32", (16, 64), (16, 64)),
    ("f32", (40, 96), (37, 81)),
    ("f16", (32, 48), (32, 48)),
    ("i32", (8, 128), (8, 100)),
)
CASTS = (("f32", "f16"), ("f32", "bf16"), ("f32", "i32"), ("f16", "f32"), ("i32", "i8"))


def show(shape):
    """A shape as names and messages have it."""
    return "x".join(str(size) for size in shape)


def make_case(op, axis, dtypes, shape, valid):
    """One case as a row of the list."""
    source, result = dtypes
    direction = {0: "col", 1: "row", None: ""}[axis]
    kept = {0: (1, shape[1]), 1: (shape[0], 1), None: shape}[axis]
    kept_valid = {0: (1, valid[1]), 1: (valid[0], 1), None: valid}[axis]
    size = show(shape) if shape == valid else f"{show(shape)}_of_{show(valid)}"
    return {
        "testcase": direction + op,
        "name": f"{source}_{size}"
        if source == result or axis is not None
        else f"{source}_{result}",
        "family": op,
        "dtype": DTYPES[source],
        "shape": shape,
        "valid_shape": valid,
        "eps": EPS[result] * (valid[axis] ** 0.5 if axis is not None else 1),
        "smoke": axis != 0 and source in ("f32", "i32") and shape == valid,
        "vars": {
            "op": op,
            "axis": -1 if axis is None else axis,
            "out_dtype": DTYPES[result],
            "out_shape": show(kept),
            "out_valid": show(kept_valid),
        },
    }, dtypes


def all_cases():
    """Every case, with the short names of what its program reads and writes."""
    for axis in (1, 0):
        for op in REDUCTIONS:
            for dtype, shape, valid in REDUCED:
                yield make_case(op, axis, (dtype, dtype), shape, valid)
        for op in ("argmax", "argmin"):
            for dtype, shape, valid in REDUCED[:3]:
                yield make_case(op, axis, (dtype, "i32"), shape, valid)
    for dtypes in CASTS:
        yield make_case("cast", None, dtypes, (24, 64), (24, 64))


if __name__ == "__main__":
    for case, dtypes in all_cases():
        if sys.argv[1:] == ["--cmake"]:
            known = case["vars"]
            columns = [f"{case['testcase']}-{case['name']}", known["op"], known["axis"]]
            columns += [*case["shape"], *case["valid_shape"], *dtypes]
            print(*columns)
        else:
            print(json.dumps(case))
