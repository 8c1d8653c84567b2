"""Programs that every target must run like the interpreter, each with its arrays."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tileyard.base.model import Value
from tileyard.ir.dtypes import DTYPES, TENSOR_FLOAT, find_dtype
from tileyard.ir.nodes import Program
from tileyard.ir.specs import tensor_specs
from tileyard.ir.text import read_program
from tileyard.targets.base import Array


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetCase:
    """A Program's text with its dimensions, scalars and arrays ``values``, random if empty. Floats
    may differ from the interpreter's by ``rtol`` of an array's largest number, for sums, or by
    ``ulps`` units in the last place.
    """

    text: str
    dims: dict[str, int]
    scalars: Sequence[Value] = ()
    rtol: float = 0.0
    ulps: int = 0
    values: tuple[Array, ...] = ()

    @property
    def program(self) -> Program:
        """The Program of the text."""
        return read_program(self.text)

    def arrays(self) -> list[Array]:
        """Arrays for the tensors that are read, the same each time."""
        if self.values:
            return list(self.values)
        return random_arrays(np.random.default_rng(7), self.program, self.dims)


def random_arrays(
    rng: np.random.Generator, program: Program, dims: Mapping[str, int]
) -> list[Array]:
    """One array of small numbers per tensor that is read."""
    return [
        random_array(rng, spec.dtype, spec.shape)
        for spec in tensor_specs(program, dims)
        if spec.role != "out"
    ]


def random_array(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Array:
    """Small numbers of a scalar type."""
    kind = find_dtype(dtype)
    if kind.kind == "bool":
        return rng.integers(0, 2, shape).astype(np.bool_)
    if kind.is_float:
        return rng.standard_normal(shape).astype(kind.numpy)
    low, high = kind.range
    return rng.integers(max(low, -9), min(high, 9), shape, endpoint=True).astype(kind.numpy)


def gemm_case(
    dtype: str, result: str, flips: tuple[bool, bool], sizes: tuple[int, int, int]
) -> TargetCase:
    """A gemm of one block through shared tiles."""
    m, n, k = sizes
    a = (k, m) if flips[0] else (m, k)
    b = (n, k) if flips[1] else (k, n)
    options = f"transpose_a={flips[0]}, transpose_b={flips[1]}"
    text = f"""
def gemm(A: {dtype}[{a[0]}, {a[1]}], B: {dtype}[{b[0]}, {b[1]}], C: inout.{result}[{m}, {n}]):
    threads(128)
    A_shared: shared.{dtype}[{a[0]}, {a[1]}]
    B_shared: shared.{dtype}[{b[0]}, {b[1]}]
    C_local: fragment.{result}[{m}, {n}]
    copy(A, A_shared)
    copy(B, B_shared)
    copy(C, C_local)
    gemm(A_shared, B_shared, C_local, {options})
    copy(C_local, C)
"""
    narrow = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-6, "float64": 1e-14}.get(result, 0.0)
    return TargetCase(text=text, dims={}, rtol=narrow)


GEMMS = {
    f"{dtype} {m}x{n}x{k}{' At' if ta else ''}{' Bt' if tb else ''} into {result}": gemm_case(
        dtype, result, (ta, tb), (m, n, k)
    )
    for dtype, result, (m, n, k), (ta, tb) in [
        ("float32", "float32", (64, 48, 32), (False, False)),
        ("float32", "float32", (13, 37, 29), (False, False)),
        ("float32", "float32", (13, 37, 29), (True, False)),
        ("float32", "float32", (13, 37, 29), (False, True)),
        ("float32", "float32", (13, 37, 29), (True, True)),
        ("float32", "float32", (70, 20, 600), (False, False)),
        ("float32", "float32", (300, 24, 300), (False, True)),
        ("float32", "float32", (1, 16, 8), (False, False)),
        ("float32", "float32", (5, 1, 3), (False, False)),
        ("float32", "float32", (8, 40, 1), (False, True)),
        ("float16", "float32", (33, 24, 40), (False, False)),
        ("float16", "float32", (33, 24, 40), (False, True)),
        ("float16", "float16", (16, 16, 24), (False, False)),
        ("bfloat16", "float32", (16, 33, 16), (True, False)),
        ("bfloat16", "bfloat16", (16, 16, 16), (False, False)),
        ("float8_e4m3fn", "float32", (16, 16, 16), (False, False)),
        ("float8_e5m2", "float32", (9, 20, 16), (False, True)),
        ("tfloat32", "float32", (16, 24, 12), (False, False)),
        ("tfloat32", "float32", (9, 20, 12), (True, True)),
        ("float64", "float64", (14, 19, 23), (False, False)),
        ("float64", "float64", (14, 19, 23), (True, True)),
        ("float32", "float64", (14, 19, 23), (False, False)),
        ("float64", "float32", (14, 19, 23), (False, False)),
        ("int8", "int32", (12, 17, 20), (False, False)),
        ("int8", "int32", (12, 17, 20), (False, True)),
        ("uint8", "int32", (12, 17, 20), (True, False)),
        ("uint8", "int32", (5, 6, 300), (False, False)),
        ("int8", "int8", (12, 17, 20), (False, False)),
        ("int32", "int64", (5, 6, 7), (False, False)),
    ]
}
"""Gemms of every kind of operand, size and transposition."""


def _reduce(kind: str, dtype: str, result: str, axis: int, clear: bool) -> TargetCase:
    size = (5, 6, 37)
    left = [extent for i, extent in enumerate(size) if i != axis]
    text = f"""
def reduce_(X: {dtype}[5, 6, 37], Y: inout.{result}[{left[0]}, {left[1]}]):
    x: fragment.{dtype}[5, 6, 37]
    y: fragment.{result}[{left[0]}, {left[1]}]
    copy(X, x)
    copy(Y, y)
    reduce(x, y, kind="{kind}", axis={axis}, clear={clear})
    copy(y, Y)
"""
    rtol = {"float32": 1e-6, "float16": 1e-2, "bfloat16": 1e-1}.get(result, 0.0)
    return TargetCase(text=text, dims={}, rtol=rtol if "sum" in kind else 0.0)


REDUCTIONS = {
    f"{kind} of {dtype} along {axis}{'' if clear else ' onto'} {result}": _reduce(
        kind, dtype, result, axis, clear
    )
    for kind, dtype, result, axis, clear in [
        *((kind, "float32", "float32", axis, clear)
          for kind in ("sum", "max", "min", "abssum", "absmax")
          for axis, clear in ((2, True), (2, False), (0, True), (1, False))),
        *((kind, "int32", "int32", axis, True)
          for kind in ("sum", "max", "absmax", "bitand", "bitor", "bitxor") for axis in (2, 1)),
        ("sum", "float16", "float16", 2, True),
        ("sum", "float16", "float32", 2, True),
        ("sum", "float32", "float16", 1, True),
        ("max", "float32", "bfloat16", 2, False),
        ("sum", "bfloat16", "bfloat16", 0, True),
        ("sum", "int8", "int8", 2, True),
        ("min", "uint8", "int32", 0, True),
        ("sum", "float64", "float64", 2, True),
    ]
}  # fmt: skip
"""Reductions of every kind, along every axis, with and without old content."""


def scalar_case(dtype: str) -> TargetCase:
    """A scalar parameter of ``dtype``, used and returned."""
    is_float = DTYPES[dtype].is_float
    value: Value = 1.3 if is_float else 3
    return TargetCase(
        text=f"""
def scalar(s: {dtype}, X: {dtype}[4], Y: out.{dtype}[4]):
    for i in parallel(4):
        Y[i] = X[i] + s
""",
        dims={},
        scalars=(value,),
    )


SCALARS = {
    f"scalar of {name}": scalar_case(name) for name in DTYPES if name not in ("bool", TENSOR_FLOAT)
}
"""One scalar parameter of every type."""
