"""The work of a launch is counted from the text of its Program."""

import pytest

from tileyard.ir.text import read_program
from tileyard.ir.work import count_work

GEMM = """\
def f(A: float32[m, k], B: float32[k, 96], C: out.float16[m, 96]):
    m: dim
    k: dim
    bx: grid[3]
    by: grid[(m + 31) // 32]
    threads(64, 2)
    a: shared.float32[32, 16]
    b: shared.float32[16, 32]
    c: fragment.float32[32, 32]

    for i in pipelined((k + 15) // 16, stages=3):
        copy(A[by * 32 : +32, i * 16 : +16], a)
        copy(B[i * 16 : +16, bx * 32 : +32], b)
        gemm(a, b, c)
    copy(c, C[by * 32 : +32, bx * 32 : +32])
"""
BLOCKS, TRIPS = 6, 18
"""Blocks of a launch, and iterations of the loop of all of them."""


def test_the_work_of_a_product_is_counted() -> None:
    """Each amount is that of all blocks; those of tiles, threads and stages are of one."""
    expected = {
        "blocks": BLOCKS,
        "threads": 128,
        "stages": 3,
        "shared_tile_bytes": 2 * 4 * 32 * 16,
        "private_tile_bytes": 4 * 32 * 32,
        "products": TRIPS,
        "product_flops": 2 * 32 * 32 * 16 * TRIPS,
        "left": 32 * 16 * TRIPS,
        "right": 16 * 32 * TRIPS,
        "sums": 32 * 32 * TRIPS,
        "conversions": 32 * 32 * BLOCKS,
        "steps": 4 * TRIPS + BLOCKS,
        "rows": (32 + 16 + 32) * TRIPS + 32 * BLOCKS,
        "read_bytes": 2 * 4 * 32 * 16 * TRIPS,
        "written_bytes": 2 * 32 * 32 * BLOCKS,
        "lines": (32 + 16 * 2) * TRIPS + 32 * BLOCKS,
        "accesses": (4 * 32 * 16 + 32 * 32) * TRIPS + 32 * 32 * BLOCKS,
    }
    assert count_work(read_program(GEMM), {"m": 64, "k": 48}) == expected


HEAD = """\
def f(X: float32[64, 32], Y: out.float32[32, 64], n: int32):
    bx: grid[5]
    x: fragment.float32[64, 32]

"""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("x[i, j] = exp(X[i, j]) * 2.0", {"functions": 1, "operations": 1, "read_bytes": 4}),
        ("Y[j, i] = x[i, j]", {"strided": 1, "written_bytes": 4, "lines": 1}),
        ("x[i, j] = float32(int32(X[i, 0]))", {"conversions": 2, "read_bytes": 4 / 32}),
        ("x[i, X[i, j] > 0.0] = 1.0", {"strided": 1, "operations": 0}),
    ],
)
def test_the_work_of_loops_over_elements_is_counted(body: str, expected: dict[str, float]) -> None:
    """Each amount is per element: what the innermost loop does not change is read once per row of it."""
    program = read_program(f"{HEAD}    for i, j in parallel(64, 32):\n        {body}\n")
    found = count_work(program, {"n": 1})
    assert {name: found.get(name, 0.0) / (5 * 64 * 32) for name in expected} == expected
    assert found["rows"] == 5 * 64


@pytest.mark.parametrize(
    ("body", "trips"),
    [
        ("for k in serial(bx + 1):\n        gemm(x, x, x)", 3.0),
        ("for k in serial(int32(X[0, 0])):\n        gemm(x, x, x)", 1.0),
        ("if bx > 1:\n        gemm(x, x, x)", 1.0),
        ("if X[0, 0] > 1.0:\n        gemm(x, x, x)", 0.5),
    ],
)
def test_a_block_in_the_middle_counts_for_all(body: str, trips: float) -> None:
    """What depends on data counts once, or half where one of two things is done."""
    expected = 5 * trips
    head = HEAD.replace("64, 32]", "32, 32]")
    assert count_work(read_program(f"{head}    {body}\n"), {"n": 1})["products"] == expected
