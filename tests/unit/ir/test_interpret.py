"""The interpreter: what statements and tile operations do, and how memory is guarded."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from numpy.typing import NDArray

from tileyard.base.errors import BindError, KernelFault, UsageError
from tileyard.ir.dtypes import find_dtype
from tileyard.ir.interpret import interpret
from tileyard.ir.nodes import Program, Scalar, Tensor
from tileyard.ir.reader import read_program
from tileyard.ir.specs import evaluate_size
from tileyard.testing.programs import programs

Array = NDArray[Any]


def run(text: str, *arrays: Array, scalars: tuple[Any, ...] = ()) -> list[Array]:
    """Interpret a Program given as text."""
    return interpret(read_program(text), arrays, scalars)


def body(*lines: str) -> str:
    """A Program that reads X and writes Y, eight floats each, with two tiles."""
    head = (
        "def f(X: float32[8], Y: out.float32[8]):\n"
        "    x: shared.float32[8]\n"
        "    i8: local.int32[2]\n"
        "    c: fragment.float32[2, 3]\n\n"
    )
    return head + "".join(f"    {line}\n" for line in lines)


X = np.arange(8, dtype=np.float32)


def test_copy_reads_zero_and_drops_writes_outside_global_memory() -> None:
    """A box may hang over either end of a parameter: zeros come in, nothing goes out."""
    expected = np.array([0, 0, 0, 1, 2, 3, 4, 5], np.float32)
    (got,) = run(body("copy(X[-2 : +8], x)", "copy(x, Y)"), X)
    np.testing.assert_array_equal(got, expected)
    (got,) = run(body("fill(Y, 0.0)", "copy(X, x)", "copy(x, Y[6 : +8])"), X)
    np.testing.assert_array_equal(got, np.array([0, 0, 0, 0, 0, 0, 0, 1], np.float32))


def test_elements_outside_global_memory_read_zero_and_are_not_written() -> None:
    """A load out of range gives 0, a store out of range does nothing."""
    expected = np.array([0, 1, 2, 3, 4, 5, 6, 0], np.float32)
    text = body("for i in serial(12):", "    Y[i - 2] = X[i - 2] * float32(X[i - 1] != 0.0)")
    (got,) = run(text, X)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("x[8] = 1.0", "x[8] is outside its shape (8,) in `x[8] = 1.0`"),
        ("Y[0] = x[-1]", "x[-1] is outside its shape (8,) in `Y[0] = x[-1]`"),
        ("copy(X, x[i8[0] - i8[0] + 1 : +8])",
         "x[1 : +8] is outside its shape (8,) in `copy(X, x[i8[0] - i8[0] + 1 : +8])`"),
        ("i8[0] = 3 // (i8[1] - i8[1])", "an integer is divided by zero in `i8[0] = 3 // (i8[1] - i8[1])`"),
        ("i8[0] = 1 << 33", "an integer of 32 bits is shifted by 33 in `i8[0] = 1 << 33`"),
    ],
)  # fmt: skip
def test_fault_of_the_kernel_quotes_its_statement(line: str, message: str) -> None:
    """What no kernel may do is a KernelFault that names the statement, and only the innermost."""
    expected = message
    with pytest.raises(KernelFault) as caught:
        run(body("for i in serial(1):", f"    {line}"), X)
    assert caught.value.message == expected


def test_unwritten_memory_is_poisoned() -> None:
    """Outputs and tiles that were never written are NaN, or extreme integers."""
    text = (
        "def f(Y: out.float32[3], Z: out.int32[2], W: out.uint8[2]):\n"
        "    t: local.float16[1]\n\n    Y[1] = 1.0\n    Y[2] = float32(t[0])\n"
    )
    expected = [[np.nan, 1.0, np.nan], [-(2**31)] * 2, [255] * 2]
    for got, want in zip(run(text), expected, strict=True):
        np.testing.assert_array_equal(got, want)


def test_each_block_begins_with_undefined_tiles() -> None:
    """What one block left in a tile is not seen by the next."""
    text = (
        "def f(Y: out.float32[2]):\n    b: grid[2]\n    t: local.float32[1]\n\n"
        "    if b == 0:\n        t[0] = 1.0\n    Y[b] = t[0]\n"
    )
    expected = [1.0, np.nan]
    np.testing.assert_array_equal(run(text)[0], expected)


def test_grid_runs_over_all_blocks_with_the_first_axis_fastest() -> None:
    """Blocks run one after the other, x first."""
    text = (
        "def f(N: inout.int32[1], Y: out.int32[2, 3]):\n    bx: grid[3]\n    by: grid[2]\n\n"
        "    Y[by, bx] = N[0]\n    N[0] = N[0] + 1\n"
    )
    expected = [[0, 1, 2], [3, 4, 5]]
    _, order = run(text, np.zeros(1, np.int32))
    assert order.tolist() == expected


def test_copy_matches_boxes_without_extents_of_one() -> None:
    """Extents of 1 are dropped on both sides, and elements are converted in row-major order."""
    text = (
        "def f(A: float32[2, 3, 4], B: out.float16[3, 1, 4]):\n"
        "    t: shared.float16[3, 4]\n\n    copy(A[1, :, :], t)\n    copy(t, B)\n"
    )
    a = np.linspace(0, 1, 24, dtype=np.float32).reshape(2, 3, 4)
    expected = a[1].astype(np.float16).reshape(3, 1, 4)
    np.testing.assert_array_equal(run(text, a)[0], expected)


@pytest.mark.parametrize("clear", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
def test_gemm_accumulates_in_the_dtype_of_c(clear: bool, transposed: bool) -> None:
    """Each step along k rounds once to c's dtype; clear forgets what c held."""
    rng = np.random.default_rng(1)
    a = rng.standard_normal((3, 5)).astype(np.float16)
    b = rng.standard_normal((5, 2)).astype(np.float16)
    c = rng.standard_normal((3, 2)).astype(np.float16)
    expected = np.zeros_like(c) if clear else c
    for k in range(5):
        product = np.outer(a[:, k].astype(np.float64), b[k].astype(np.float64))
        expected = (expected.astype(np.float64) + product).astype(np.float16)
    shapes = ("5, 3", "2, 5") if transposed else ("3, 5", "5, 2")
    text = (
        f"def f(A: float16[{shapes[0]}], B: float16[{shapes[1]}], C: inout.float16[3, 2]):\n"
        f"    gemm(A, B, C, transpose_a={transposed}, transpose_b={transposed}, clear={clear})\n"
    )
    arrays = (a.T.copy(), b.T.copy()) if transposed else (a, b)
    np.testing.assert_array_equal(run(text, *arrays, c)[0], expected)


def test_integer_gemm_wraps_in_the_dtype_of_c() -> None:
    """int8 operands are multiplied in c's type."""
    a = np.array([[100, -128]], np.int8)
    b = np.array([[100], [-128]], np.int8)
    expected = [[100 * 100 + 128 * 128]]
    text = (
        "def f(A: int8[1, 2], B: int8[2, 1], C: out.int32[1, 1]):\n    gemm(A, B, C, clear=True)\n"
    )
    np.testing.assert_array_equal(run(text, a, b)[0], expected)


@pytest.mark.parametrize(
    ("kind", "expected", "kept"),
    [
        ("sum", [3.0, 3.0], [13.0, -7.0]),
        ("max", [4.0, 5.0], [10.0, 5.0]),
        ("min", [-1.0, -3.0], [-1.0, -10.0]),
        ("abssum", [5.0, 9.0], [15.0, -1.0]),
        ("absmax", [4.0, 5.0], [10.0, 5.0]),
    ],
)
def test_reduce_folds_along_its_axis(kind: str, expected: list[float], kept: list[float]) -> None:
    """Every kind starts from its identity, or with clear off from what is there."""
    x = np.array([[-1.0, 5.0], [4.0, -3.0], [0.0, 1.0]], np.float32)
    start = np.array([10.0, -10.0], np.float32)
    text = (
        "def f(X: float32[3, 2], Y: out.float32[2], Z: inout.float32[1, 2]):\n"
        f'    reduce(X, Y, kind="{kind}", axis=0)\n'
        f'    reduce(X, Z, kind="{kind}", axis=0, clear=False)\n'
    )
    fresh, folded = run(text, x, start.reshape(1, 2))
    np.testing.assert_array_equal(fresh, expected)
    np.testing.assert_array_equal(folded[0], kept)


@pytest.mark.parametrize(("kind", "expected"), [("bitand", 8), ("bitor", 14), ("bitxor", 6)])
def test_reduce_of_bits(kind: str, expected: int) -> None:
    """Bitwise reductions fold integers."""
    x = np.array([12, 10], np.int32)
    text = f'def f(X: int32[2], Y: out.int32[1]):\n    reduce(X, Y, kind="{kind}", axis=0)\n'
    assert run(text, x)[0].tolist() == [expected]


def test_maximum_ignores_one_nan() -> None:
    """Of a number and NaN, max, min and the reductions give the number, in either order."""
    expected = [2.0, 2.0, 2.0, 2.0]
    text = (
        "def f(X: float32[3], Y: out.float32[4]):\n    t: local.float32[1]\n\n"
        "    Y[0] = max(X[0], X[1])\n    Y[1] = min(X[1], X[0])\n"
        '    reduce(X, t, kind="max", axis=0)\n    Y[2] = t[0]\n'
        '    reduce(X, t, kind="min", axis=0)\n    Y[3] = t[0]\n'
    )
    x = np.array([np.nan, 2.0, np.nan], np.float32)
    assert run(text, x)[0].tolist() == expected


def test_break_leaves_the_innermost_loop_only() -> None:
    """A break inside a branch ends the loop around it; the outer loop goes on."""
    text = (
        "def f(Y: out.int32[1]):\n    n: local.int32[1]\n\n    n[0] = 0\n"
        "    for i in serial(3):\n        for j in serial(10):\n"
        "            if j == 4:\n                break\n            n[0] = n[0] + 1\n"
        "        while True:\n            n[0] = n[0] + 100\n            break\n"
        "    Y[0] = n[0]\n"
    )
    expected = [312]
    assert run(text)[0].tolist() == expected


def test_select_and_logic_evaluate_what_they_need() -> None:
    """The argument that is not chosen may be a fault."""
    expected = [1, 0, 1]
    text = (
        "def f(Y: out.int32[3]):\n    t: local.int32[1]\n\n    t[0] = 0\n"
        "    Y[0] = 1 if t[0] == 0 else t[5]\n"
        "    Y[1] = int32(t[0] != 0 and t[5] == 0)\n"
        "    Y[2] = int32(t[0] == 0 or t[5] == 0)\n"
    )
    assert run(text)[0].tolist() == expected


def test_arguments_are_not_changed() -> None:
    """An inout array is returned as a new array."""
    x = np.ones(2, np.float32)
    expected = [1.0, 1.0]
    (got,) = run("def f(X: inout.float32[2]):\n    X[0] = 5.0\n", x)
    assert x.tolist() == expected
    assert got.tolist() == [5.0, 1.0]


def test_dimensions_and_scalars_are_bound() -> None:
    """Shapes give the dims, in grids and expressions; scalars are converted to their dtype."""
    text = (
        "def f(X: float16[m], Y: out.float32[m], s: bfloat16):\n    m: dim\n    b: grid[m]\n\n"
        "    Y[b] = float32(X[b]) * float32(s) + float32(m)\n"
    )
    x = np.array([1.0, 2.0, 3.0], np.float16)
    scale = float(ml_dtypes.bfloat16(1.01))
    expected = (x.astype(np.float32) * np.float32(scale) + 3).tolist()
    assert run(text, x, scalars=(1.01,))[0].tolist() == expected


@pytest.mark.parametrize(
    ("arrays", "scalars", "error", "message"),
    [
        ([], (), BindError, "f takes 1 array, not 0"),
        ([np.zeros((2, 2), "f4")], (), BindError, "X has 1 dimension, the array 2"),
        ([np.zeros(3, "f4")], (), BindError, "X has shape (4,), the array (3,)"),
        ([np.zeros(4, "f8")], (1,), BindError, "X is float32, the array float64"),
        ([np.zeros(4, "f4")], (), BindError, "f takes 1 scalar, not 0"),
        ([np.zeros(4, "f4")], (1.5,), BindError, "1.5 is not int32"),
        ([np.zeros(4, "f4")], (2**31,), BindError, "2147483648 is out of the range of int32"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    arrays: list[Array], scalars: tuple[Any, ...], error: type[Exception], message: str
) -> None:
    """Wrong number, rank, shape, dtype or range of arguments is a BindError that says which."""
    expected = message
    text = "def f(X: inout.float32[4], s: int32):\n    X[0] = float32(s)\n"
    with pytest.raises(error) as caught:
        run(text, *arrays, scalars=scalars)
    assert str(caught.value) == expected


def test_dimension_of_outputs_alone_is_unknown() -> None:
    """A dimension that no array which is read fixes is named."""
    expected = "f: no array that is read fixes dimension m (give m=...)"
    with pytest.raises(UsageError) as caught:
        run("def f(Y: out.float32[m]):\n    m: dim\n\n    Y[0] = 1.0\n")
    assert str(caught.value) == expected


@pytest.mark.slow
@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_generated_programs_run_the_same_twice(program: Program) -> None:
    """Every generated Program runs without a fault, and the same inputs give the same bits."""
    rng = np.random.default_rng(5)
    arrays: list[Array] = []
    for param in program.params:
        if isinstance(param, Tensor) and param.role != "out":
            shape = tuple(evaluate_size(extent, {}) for extent in param.buffer.shape)
            values = rng.integers(0, 2, shape)
            arrays.append(values.astype(find_dtype(param.buffer.dtype).numpy))
    scalars = tuple(1 for param in program.params if isinstance(param, Scalar))
    expected = interpret(program, arrays, scalars)
    for got, want in zip(interpret(program, arrays, scalars), expected, strict=True):
        assert got.tobytes() == want.tobytes()


def test_atomic_update_gives_the_content_before_it() -> None:
    """Each update sees the one before; outside an array nothing is written, and 0 was there."""
    text = """
def f(X: int32[4], S: inout.int32[2], Y: out.int32[4]):
    for i in serial(4):
        old = atomic_add(S[0], X[i])
        missed = atomic_max(S[i + 2], 9)
        last = atomic_exchange(S[1], old)
        Y[i] = last * 10 + missed
"""
    expected = [np.array([10, 6], np.int32), np.array([50, 0, 10, 30], np.int32)]
    values = np.array([1, 2, 3, 4], np.int32)
    got = run(text, values, np.array([0, 5], np.int32))
    np.testing.assert_array_equal(got[0], expected[0])
    np.testing.assert_array_equal(got[1], expected[1])


def test_view_reads_the_same_bytes() -> None:
    """What is written through a view of another shape and type is read from the buffer itself."""
    text = """
def f(X: float32[2, 2], Y: out.float32[4], Z: out.uint8[4]):
    flat: memory.float32[4] = X
    t: shared.float32[2, 2]
    bits: shared.uint32[4] = t
    bytes: memory.uint8[16] = Y
    for i in serial(4):
        bits[i] = reinterpret(flat[3 - i], uint32)
    for j in serial(4):
        Y[j] = t[j // 2, j % 2]
    for k in serial(4):
        Z[k] = bytes[4 * k + 3]
"""
    expected = [np.array([4, 3, 2, 1], np.float32), np.array([64, 64, 64, 63], np.uint8)]
    got = run(text, np.array([[1, 2], [3, 4]], np.float32))
    np.testing.assert_array_equal(got[0], expected[0])
    np.testing.assert_array_equal(got[1], expected[1])


def test_workspace_keeps_its_content_from_block_to_block() -> None:
    """A buffer in global memory that is not a parameter is one for all blocks, and poison at first."""
    text = """
def f(Y: out.float32[4]):
    bx: grid[4]
    W: memory.float32[4]
    W[bx] = float32(bx)
    Y[bx] = W[bx - 1 if bx > 0 else 3]
"""
    expected = np.array([np.nan, 0, 1, 2], np.float32)
    (got,) = run(text)
    np.testing.assert_array_equal(got, expected)


def test_kernel_says_what_it_prints() -> None:
    """A print gives one line with its message and values, in order."""
    text = """
def f(X: float32[2], Y: out.float32[2]):
    for i in serial(2):
        print("X is", i, X[i])
    print("done")
"""
    expected = ["X is 0 1.5\n", "X is 1 -2.0\n", "done\n"]
    said: list[str] = []
    interpret(read_program(text), [np.array([1.5, -2], np.float32)], say=said.append)
    assert said == expected


def test_assertion_that_fails_ends_the_kernel() -> None:
    """The fault has the message of the assertion and names the statement."""
    expected = 'too large in `assert X[i] < 3.0, "too large"`'
    with pytest.raises(KernelFault) as caught:
        run(body("for i in serial(8):", '    assert X[i] < 3.0, "too large"'), X)
    assert caught.value.message == expected
