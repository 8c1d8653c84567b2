"""Integers of expressions that are known are computed."""

import pytest

from tileyard.ir.fold import folded
from tileyard.ir.nodes import Let
from tileyard.ir.text import print_expr, read_program


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("1 - 0", "1"),
        ("x * 1 + 0", "x"),
        ("0 + x // 1 - 0", "x"),
        ("(3 + 6) % 3", "0"),
        ("x % 1 + 0 * x", "0"),
        ("0 % x ^ 1", "1"),
        ("min(x * 2, 3 - 4)", "min(x * 2, -1)"),
        ("7 // 0", "7 // 0"),
        ("x if 3 < 4 else 7", "x"),
        ("cast(3, int64)", "int64(3)"),
        ("uint8(200) + uint8(100)", "uint8(200) + uint8(100)"),
        ("x < 3 and 1 < 2", "x < 3"),
        ("x < 3 or 1 < 2", "True"),
        ("not 1 == 2", "True"),
        ("t[x * 1]", "t[x]"),
        ("1.0 + 2.0", "1.0 + 2.0"),
    ],
)
def test_what_is_known_is_computed(given: str, expected: str) -> None:
    """In its type, where it has a place there; floats and faults stay."""
    program = read_program(
        f"def f(x: int32):\n    bx: grid[2]\n    t: local.int32[4]\n\n    y = {given}\n"
    )
    (let,) = program.body
    assert isinstance(let, Let)
    assert print_expr(program, folded(let.value)) == expected
