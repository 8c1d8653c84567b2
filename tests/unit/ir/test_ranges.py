"""What the code generator can prove of integer expressions."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileyard.ir.nodes import Axis, Const, Expr, For, Let, Op, Program, Var
from tileyard.ir.printer import print_expr
from tileyard.ir.ranges import LARGEST_DIM, Interval, Ranges, folded
from tileyard.ir.reader import read_program
from tileyard.ir.specs import Evaluator, no_loads

M = Var("m", "int32")
B = Var("b", "int32")
NAMES = ("add", "sub", "mul", "min", "max", "floordiv", "floormod", "truncdiv", "truncmod", "shr")


def number(value: int) -> Const:
    """An int32 literal."""
    return Const(value, "int32")


def op(name: str, *args: Expr) -> Op:
    """An int32 operation."""
    return Op(name, args, "int32")


def blocks_of(size: int) -> Expr:
    """How many blocks of ``size`` cover dimension m."""
    return op("floordiv", op("add", M, number(size - 1)), number(size))


@pytest.fixture
def ranges() -> Ranges:
    """A dimension m, and a grid of blocks of 128 over it."""
    grid = (Axis(B, blocks_of(128)),)
    return Ranges(Program("p", (), (M,), grid, (), (), ()))


def test_dimensions_have_room_above_them(ranges: Ranges) -> None:
    """Indices of blocks over an open dimension stay in 32 bits, ragged end included."""
    last = op("add", op("mul", B, number(128)), number(127))
    assert ranges.of(M) == Interval(0, LARGEST_DIM)
    assert ranges.is_exact(last)
    expected = LARGEST_DIM + 127
    assert ranges.of(last).high <= expected


def test_an_open_bound_is_not_proved(ranges: Ranges) -> None:
    """A block's last row may lie beyond the dimension."""
    row = op("add", op("mul", B, number(128)), number(127))
    expected = False
    assert ranges.is_below(row, M) is expected


def test_an_axis_is_below_its_own_extent(ranges: Ranges) -> None:
    """A variable of the grid is below its extent, whatever that is; so is a loop's from 0."""
    i = Var("i", "int32")
    ranges.bind_loop(For(i, number(0), M, "serial", ()))
    expected = True
    assert ranges.is_below(B, blocks_of(128)) is expected
    assert ranges.is_below(i, M) is expected
    assert ranges.is_below(i, op("sub", M, number(1))) is not expected


def test_a_loop_that_does_not_begin_at_0_may_reach_its_extent(ranges: Ranges) -> None:
    """From a start on, the extent is not a bound of the variable."""
    i = Var("i", "int32")
    ranges.bind_loop(For(i, number(2), M, "serial", ()))
    expected = False
    assert ranges.is_below(i, M) is expected


def test_what_wraps_is_not_exact(ranges: Ranges) -> None:
    """A product that leaves 32 bits can be anything."""
    square = op("mul", M, M)
    expected = Interval(-(1 << 31), (1 << 31) - 1)
    assert not ranges.is_exact(square)
    assert ranges.of(square) == expected


@given(
    st.sampled_from((*NAMES, "bitand", "select")),
    st.tuples(st.integers(-20, 20), st.integers(0, 6)),
    st.tuples(st.integers(-20, 20), st.integers(0, 6)),
)
def test_intervals_hold_every_value(
    name: str, left: tuple[int, int], right: tuple[int, int]
) -> None:
    """Whatever the operands are within their intervals, the result is within the result's."""
    x, y = Var("x", "int32"), Var("y", "int32")
    known = Ranges(Program("p", (), (), (), (), (), ()))
    known.bind(x, Interval(left[0], left[0] + left[1]))
    known.bind(y, Interval(right[0], right[0] + right[1]))
    args: tuple[Expr, ...] = (x, y)
    if name == "select":
        args = (Op("lt", (x, y), "bool"), x, y)
    expression = op(name, *args)
    interval = known.of(expression)
    for a, b in itertools.product(
        range(left[0], left[0] + left[1] + 1), range(right[0], right[0] + right[1] + 1)
    ):
        if (name in NAMES[5:9] and b == 0) or (name == "shr" and b < 0):
            continue
        values = {"x": _int32(a), "y": _int32(b)}
        value = Evaluator(values, no_loads).number(expression)
        assert interval.low <= value <= interval.high, (a, b)


def _int32(value: int) -> object:
    import numpy as np

    return np.int32(value)


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
