"""Variables (``T.alloc_var``) that may be read before they are written begin with 0, as in TileLang."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.differential.conftest import load_module

from tileyard.ir.interpret import interpret
from tileyard.ir.nodes import Fill
from tileyard.ir.walk import walk

pytestmark = pytest.mark.slow

KERNEL = """
import tilelang.language as T

@T.prim_func
def main(X: T.Tensor((4,), "int32"), Y: T.Tensor((4,), "int32")):
    with T.Kernel(1, threads=4) as _:
        tx = T.get_thread_binding()
        s = T.alloc_var("int32")
        {body}
"""
READ_FIRST = [
    ("for j in T.serial(4):\n    s += X[j]\nY[0] = s", [8]),
    ("if X[1] > 0:\n    s = 7\nY[0] = s", [0]),
    ("while s < 3:\n    s += 2\nY[0] = s", [4]),
    ("for j in T.serial(X[2] - 4):\n    s = X[j]\nY[0] = s", [0]),
    ("s = s + tx\nY[tx] = s", [0, 1, 2, 3]),
    ("if tx < 2:\n    s = X[tx]\nif tx > 0:\n    Y[tx - 1] = s", [-1, 0, 0]),
]
WRITTEN_FIRST = [
    ("s = 5\nY[0] = s", [5]),
    ("if X[1] > 0:\n    s = 7\nelse:\n    s = X[0]\nY[0] = s", [3]),
    ("for j in T.serial(4):\n    s = X[j]\n    Y[j] = s", [3, -1, 4, 2]),
    ("if X[0] > 0:\n    s = 1\n    Y[0] = s", [1]),
]


@pytest.mark.parametrize("are_read", [True, False])
def test_a_variable_begins_with_zero_if_it_may_be_read_first(
    tmp_path: Path, lower_prim_func: Callable[..., Any], *, are_read: bool
) -> None:
    """Also a thread's own; others have no statement for it."""
    for number, (body, expected) in enumerate(READ_FIRST if are_read else WRITTEN_FIRST):
        path = tmp_path / f"kernel{number}.py"
        path.write_text(KERNEL.format(body=body.replace("\n", "\n        ")), encoding="utf-8")
        program = lower_prim_func(load_module(path).main, [1]).program
        assert any(isinstance(stmt, Fill) for stmt in walk(program.body)) == are_read
        (result,) = interpret(program, [np.array([3, -1, 4, 2], np.int32)])
        assert result[: len(expected)].tolist() == expected
