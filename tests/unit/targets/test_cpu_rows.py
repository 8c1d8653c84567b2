"""Parallel loops that the CPU target writes by the row: narrow numbers, ragged ends, large outputs."""

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from tileyard.ir.interpret import interpret
from tileyard.ir.reader import read_program
from tileyard.targets.cpu.emit import copies
from tileyard.targets.cpu.loaded import CpuLoaded

pytestmark = pytest.mark.slow

Load = Callable[..., CpuLoaded]

TYPES = {
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
}

SCALED = """
def scaled(X: {dtype}[1003], Z: {dtype}[1003], B: int8[1003], Y: out.{dtype}[1003], W: out.{dtype}[1003]):
    t: shared.{dtype}[1003]
    for i in parallel(1003):
        t[i] = {dtype}(float32(X[i]) * 1.5 + float32(Z[i]))
    for k in parallel(1003):
        s: {dtype} = X[k]
        Y[k] = t[k]
        W[k] = {dtype}(float32(B[k]) * float32(s))
"""

NIBBLES = """
def nibbles(X: uint8[40, 64], S: float16[40], Y: out.float16[40, 128], Z: out.float32[40, 128]):
    for i, j in parallel(40, 128):
        Y[i, j] = float16((X[i, j // 2] >> uint8(j % 2 * 4)) & 15) * S[i]
    for k, l in parallel(40, 128):
        Z[k, l] = float32((X[k, l // 4 * 2 + 1] >> uint8(l % 4 * 2)) & 3) - 1.0
"""

EXPONENTIALS = """
def exponentials(X: float32[700], H: float16[700], Y: out.float32[700], Z: out.float16[700]):
    for i in parallel(700):
        Y[i] = exp2(X[i] * 2.0) + sin(X[i])
        Z[i] = exp(H[i])
"""

LARGE = """
def large(X: float16[n, 4099], A: out.float16[n, 4099], B: out.float32[n, 4099]):
    n: dim
    bx: grid[n]
    for j in parallel(4099):
        A[bx, j] = X[bx, j] + X[bx, j]
    for k in parallel(4099):
        B[bx, k] = float32(X[bx, k]) * 3.0
"""

LARGEST = """
def largest(X: {dtype}[16, 96], A: out.{dtype}[16], B: out.{dtype}[16], C: out.{dtype}[16]):
    t: shared.{dtype}[16, 96]
    a: fragment.{dtype}[16]
    b: fragment.{dtype}[16]
    c: fragment.{dtype}[16]
    copy(X, t)
    reduce(t, a, kind='max', axis=1)
    reduce(t, b, kind='min', axis=1)
    reduce(t, c, kind='absmax', axis=1)
    copy(a, A)
    copy(b, B)
    copy(c, C)
"""

KEPT = """
def kept(A: float32[32, 48], B: float32[48, 64], C: out.float32[32, 128]):
    by: grid[2]
    threads(128)
    a: shared.float32[16, 48]
    b: shared.float32[48, 64]
    c: fragment.float32[16, 64]
    copy(A[by * 16 : +16, 0 : +48], a)
    copy(B, b)
    fill(c, 0.0)
    gemm(a, b, c)
    copy(c, C[by * 16 : +16, 0 : +64])
    copy(c, C[by * 16 : +16, 64 : +64])
"""


def check(load_text: Load, text: str, arrays: list[np.ndarray], rtol: float = 0.0) -> None:
    """Fail where the CPU gives something else than the interpreter."""
    with np.errstate(all="ignore"):
        expected = interpret(read_program(text), arrays)
    got = load_text(text).as_callable()(*arrays)
    for mine, want in zip(got, expected, strict=True):
        a, b = mine.astype(np.float64), want.astype(np.float64)
        np.testing.assert_allclose(a, b, rtol=rtol, atol=0)


@pytest.mark.parametrize("dtype", TYPES)
def test_rows_with_ragged_ends_are_what_the_interpreter_gives(dtype: str, load_text: Load) -> None:
    """Numbers are read, rounded and written the same way in whole vectors and in what is left."""
    rng = np.random.default_rng(0)
    x, z = (rng.standard_normal(1003).astype(TYPES[dtype]) for _ in range(2))
    b = rng.integers(-128, 128, 1003).astype(np.int8)
    check(load_text, SCALED.format(dtype=dtype), [x, z, b])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_rows_are_folded_on_their_bits(dtype: str, load_text: Load) -> None:
    """The largest and smallest of a row need no floats."""
    values = np.random.default_rng(0).standard_normal((16, 96)).astype(TYPES[dtype])
    check(load_text, LARGEST.format(dtype=dtype), [values])


def test_divisions_of_the_variable_are_resolved(load_text: Load) -> None:
    """Elements that share a byte are written at once, each with its own part of the byte."""
    rng = np.random.default_rng(1)
    x = rng.integers(0, 256, (40, 64)).astype(np.uint8)
    check(load_text, NIBBLES, [x, rng.standard_normal(40).astype(np.float16)])


def test_functions_of_rows_take_all_numbers(load_text: Load) -> None:
    """Infinities, NaN and numbers out of range are right beside easy ones."""
    x = np.linspace(-80, 70, 700).astype(np.float32)
    x[[3, 300, 301, 699]] = np.inf, -np.inf, np.nan, 1e30
    with np.errstate(all="ignore"):
        h = x.astype(np.float16)
        wide = x.astype(np.float64)
        expected = np.exp2(2 * wide) + np.sin(wide), np.exp(h.astype(np.float64))
        y, z = load_text(EXPONENTIALS).as_callable()(x, h)
        np.testing.assert_allclose(y, expected[0].astype(np.float32), rtol=1e-6, atol=2e-6)
        np.testing.assert_array_equal(z, expected[1].astype(np.float16))


def test_operands_that_go_past_the_caches_are_whole(
    load_text: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever copied it, each block multiplies by what the array holds."""
    monkeypatch.setattr(copies, "_SHARE", 1 << 20)
    rng = np.random.default_rng(3)
    arrays = [rng.standard_normal(shape, np.float32) for shape in ((32, 48), (48, 64))]
    expected = np.tile(arrays[0] @ arrays[1], 2)
    got = load_text(KEPT).as_callable()(*arrays)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_large_outputs_are_whole(load_text: Load) -> None:
    """What is written past the caches arrives, wherever rows begin."""
    x = np.random.default_rng(2).standard_normal((4200, 4099), np.float32).astype(np.float16)
    expected = x + x, x.astype(np.float32) * 3
    a, b = load_text(LARGE).as_callable()(x)
    np.testing.assert_array_equal(a, expected[0])
    np.testing.assert_array_equal(b, expected[1])
