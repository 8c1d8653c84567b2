"""What TileLang's passes rewrite first: ``continue``, threads that return, indices from the end."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tileyard.ir.interpret import interpret

pytestmark = pytest.mark.slow

COLUMNS = 16
KERNEL = f"""
import tilelang.language as T


@T.prim_func
def main(X: T.Tensor((8, {COLUMNS}), "float32"), Y: T.Tensor((8,), "float32")):
    with T.Kernel(8, threads=32) as bx:
        total = T.alloc_var("float32", init=0.0)
        turns = T.alloc_var("int32", init=0)
        for j in T.serial({COLUMNS}):
            turns = turns + 1
            if X[bx, j] < 0:
                if X[bx, j] < -1:
                    total = total - 128
                    continue
                total = total + 1024
            else:
                if turns % 3 == 0:
                    continue
            if j == {COLUMNS} - 2:
                continue
            total = total + X[bx, j]
        while turns < 40:
            turns = turns + 1
            if turns % 2 == 0:
                continue
            total = total + 1
        Y[bx] = total


@T.prim_func
def ending(X: T.Tensor((8, {COLUMNS}), "float32"), Y: T.Tensor((8,), "float32")):
    with T.Kernel(8, threads=32) as bx:
        Y[bx] = 0
        if X[bx, 0] < 0:
            T.thread_return()
        first = T.alloc_var("float32", init=1.0)
        if X[bx, 1] < 0:
            first = 2.0
            if X[bx, 2] < 0:
                T.thread_return()
        else:
            Y[bx] = -1
            T.thread_return()
        Y[bx] = first + X[bx, 3]


@T.prim_func
def from_the_end(X: T.Tensor((8, {COLUMNS}), "float32"), Y: T.Tensor((8,), "float32")):
    with T.Kernel(1, threads=32) as _:
        tile = T.alloc_shared((8, {COLUMNS}), "float32")
        T.copy(X, tile)
        for i in T.Parallel(8):
            Y[i] = X[i - 8, -1] + tile[-1, i - 8]
"""


def count(row: list[float]) -> float:
    """What the kernel adds up for one row."""
    total, turns = 0.0, 0
    for j, value in enumerate(row):
        turns += 1
        if value < 0:
            if value < -1:
                total -= 128
                continue
            total += 1024
        elif turns % 3 == 0:
            continue
        if j == COLUMNS - 2:
            continue
        total += value
    while turns < 40:
        turns += 1
        if turns % 2 == 0:
            continue
        total += 1
    return total


@pytest.fixture
def kernels(tmp_path: Path) -> Any:  # noqa: ANN401 (a module)
    """The kernels, in a module of their own."""
    path = tmp_path / "continuing.py"
    path.write_text(KERNEL, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("continuing", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_follows_is_left_out_where_a_branch_continues(
    kernels: Any,  # noqa: ANN401
    lower_prim_func: Callable[..., Any],
) -> None:
    """At the end of a branch, of one in a branch, of the other side, and in a loop without an end."""
    x = np.round(np.random.default_rng(3).standard_normal((8, COLUMNS)) * 16) / np.float32(8)
    expected = [count(row) for row in x.tolist()]
    (y,) = interpret(lower_prim_func(kernels.main, [1]).program, [x.astype("float32")])
    assert y.tolist() == expected


def test_what_follows_is_left_out_where_the_threads_return(
    kernels: Any,  # noqa: ANN401
    lower_prim_func: Callable[..., Any],
) -> None:
    """Alone, in a branch of a branch, and on the other side."""
    signs = np.array([[1 - 2 * (n >> i & 1) for i in range(3)] for n in range(8)])
    x = np.full((8, COLUMNS), 5, "float32")
    x[:, :3] = signs
    expected = [0.0 if a < 0 else -1.0 if b > 0 else 0.0 if c < 0 else 7.0 for a, b, c in signs]
    (y,) = interpret(lower_prim_func(kernels.ending, [1]).program, [x])
    assert y.tolist() == expected


def test_an_index_that_is_certainly_negative_counts_from_the_end(
    kernels: Any,  # noqa: ANN401
    lower_prim_func: Callable[..., Any],
) -> None:
    """Of arrays and tiles, as in NumPy."""
    rows = np.arange(8 * COLUMNS, dtype=np.float32).reshape(8, COLUMNS)
    (found,) = interpret(lower_prim_func(kernels.from_the_end, [1]).program, [rows])
    np.testing.assert_array_equal(found, rows[:, -1] + rows[-1, -8:])
