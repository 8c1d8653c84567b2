"""What a loop leaves out where it says ``continue``, on the interpreter."""

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


def test_what_follows_is_left_out_where_a_branch_continues(
    tmp_path: Path, lower_prim_func: Callable[..., Any]
) -> None:
    """At the end of a branch, of one in a branch, of the other side, and in a loop without an end."""
    path = tmp_path / "continuing.py"
    path.write_text(KERNEL, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("continuing", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    x = np.round(np.random.default_rng(3).standard_normal((8, COLUMNS)) * 16) / np.float32(8)
    expected = [count(row) for row in x.tolist()]
    (y,) = interpret(lower_prim_func(module.main, [1]).program, [x.astype("float32")])
    assert y.tolist() == expected
