"""Shapes made concrete, work counted, effects and statement numbers."""

import pytest

from tileyard.base.errors import BindError, UsageError
from tileyard.base.model import TensorSpec
from tileyard.ir.printer import print_statement
from tileyard.ir.reader import read_program
from tileyard.ir.specs import bind_dims, count_gemm_flops, tensor_specs
from tileyard.ir.walk import buffer_effects, number_statements

GEMM = read_program("""\
def f(A: float32[m, k], B: float32[k, 96], C: out.float16[m, 96], n: int32):
    m: dim
    k: dim
    bx: grid[3]
    by: grid[(m + 31) // 32]
    a: shared.float32[32, 16]
    b: shared.float32[16, 32]
    c: fragment.float32[32, 32]

    for i in serial((k + 15) // 16):
        copy(A[by * 32 : +32, i * 16 : +16], a)
        copy(B[i * 16 : +16, bx * 32 : +32], b)
        gemm(a, b, c)
    if n > 3:
        c[0, 0] = 1.0
    copy(c, C[by * 32 : +32, bx * 32 : +32])
""")


def test_shapes_are_made_concrete() -> None:
    """Each parameter's spec has the shape that the dimensions give it."""
    expected = (
        TensorSpec(name="A", dtype="float32", shape=(64, 48), role="in"),
        TensorSpec(name="B", dtype="float32", shape=(48, 96), role="in"),
        TensorSpec(name="C", dtype="float16", shape=(64, 96), role="out"),
    )
    assert tensor_specs(GEMM, {"m": 64, "k": 48}) == expected


def test_missing_dimension_is_named() -> None:
    """A dimension without a value is a usage error that names it and its parameter."""
    expected = "f: dimension k of A has no value (give k=...)"
    with pytest.raises(UsageError) as caught:
        tensor_specs(GEMM, {"m": 64})
    assert str(caught.value) == expected


def test_dimensions_follow_from_shapes() -> None:
    """The arrays that are read are enough; with the outputs they must agree."""
    expected = {"m": 64, "k": 48, "n": 5}
    assert bind_dims(GEMM, [(64, 48), (48, 96)], [5]) == expected
    assert bind_dims(GEMM, [(64, 48), (48, 96), (64, 96)], [5]) == expected
    with pytest.raises(BindError, match=r"B has shape \(48, 96\), the array \(47, 96\)"):
        bind_dims(GEMM, [(64, 48), (47, 96)])
    with pytest.raises(BindError, match=r"C has shape \(64, 96\), the array \(65, 96\)"):
        bind_dims(GEMM, [(64, 48), (48, 96), (65, 96)])


def test_work_of_gemms_is_counted() -> None:
    """2 m n k per gemm, times the trips of its loops, times the blocks."""
    expected = 2.0 * 32 * 32 * 16 * 3 * (2 * 3)
    assert count_gemm_flops(GEMM, {"m": 64, "k": 48}) == expected


@pytest.mark.parametrize(
    ("body", "trips"),
    [
        ("    for i in serial(bx):\n        gemm(a, a, a)\n", 2 * (0 + 1 + 2)),
        ("    n = min(bx * 2, 3)\n    for i in serial(n):\n        gemm(a, a, a)\n", 2 * (0 + 2 + 3)),
        ("    if by > 0:\n        gemm(a, a, a)\n", 3),
        ("    if by > 0:\n        gemm(a, a, a)\n    else:\n        gemm(a, a, a)\n", 6),
    ],
)  # fmt: skip
def test_blocks_may_differ_in_their_work(body: str, trips: int) -> None:
    """Loops and branches that depend on the block are summed over the blocks."""
    expected = 2.0 * 8**3 * trips
    head = (
        "def f(A: float32[8]):\n    bx: grid[3]\n    by: grid[2]\n    a: shared.float32[8, 8]\n\n"
    )
    assert count_gemm_flops(read_program(head + body), {}) == expected


@pytest.mark.parametrize(
    "body",
    [
        "    for i in serial(int32(A[0])):\n        gemm(a, a, a)\n",
        "    n = int32(A[0])\n    if n > 1:\n        gemm(a, a, a)\n",
        "    for i in serial(4):\n        for j in serial(i):\n            gemm(a, a, a)\n",
        "    while bx > 1:\n        gemm(a, a, a)\n",
        "    a[0, 0] = 1.0\n",
    ],
)
def test_work_that_cannot_be_told_is_zero(body: str) -> None:
    """A count that depends on data or on another loop, and no gemm at all, give 0."""
    expected = 0.0
    head = "def f(A: float32[8]):\n    bx: grid[3]\n    a: shared.float32[8, 8]\n\n"
    assert count_gemm_flops(read_program(head + body), {}) == expected


def test_effects_tell_reads_from_writes() -> None:
    """Loads, sources, indices and accumulators are read; destinations are written."""
    program = read_program("""\
def f(A: float32[8], B: out.float32[8], I: int32[8]):
    a: shared.float32[8, 8]
    b: shared.float32[8, 8]
    c: shared.float32[8, 8]
    d: shared.float32[8, 8]

    gemm(a, b, c)
    gemm(a, b, d, clear=True)
    B[I[0]] = A[1]
""")
    expected = ({"a", "b", "c", "A", "I"}, {"c", "d", "B"})
    effects = buffer_effects(program.body)
    assert (effects.read, effects.written) == expected


def test_statements_are_numbered_in_pre_order() -> None:
    """A statement comes before what is nested in it."""
    expected = [
        (0, "for i in serial((k + 15) // 16):"),
        (1, "copy(A[by * 32 : +32, i * 16 : +16], a)"),
        (2, "copy(B[i * 16 : +16, bx * 32 : +32], b)"),
        (3, "gemm(a, b, c)"),
        (4, "if n > 3:"),
        (5, "c[0, 0] = 1.0"),
        (6, "copy(c, C[by * 32 : +32, bx * 32 : +32])"),
    ]
    assert [(n, print_statement(GEMM, s)) for n, s in number_statements(GEMM)] == expected


def test_the_work_of_all_roles_counts() -> None:
    """Each role adds its own."""
    expected = 2 * 2 * 8**3
    program = read_program(
        "def f(A: float32[8]):\n    a: shared.float32[8, 8]\n\n"
        "    with roles:\n        with role:\n            gemm(a, a, a)\n"
        "        with role:\n            gemm(a, a, a)\n"
    )
    assert count_gemm_flops(program, {}) == expected
