"""The work of a launch is counted from the text of its Program."""

import pytest

from tileyard.ir.reader import read_program
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
        "lines": (32 + 16 * 2) * TRIPS + 2 * 32 * BLOCKS,
        "accesses": (6 * 32 * 16 + 32 * 32) * TRIPS + 2 * 32 * 32 * BLOCKS,
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
        ("Y[j, i] = x[i, j]", {"strided": 2, "written_bytes": 4, "lines": 2 / 16}),
        ("x[i, j] = float32(int32(X[i, 0]))", {"conversions": 2, "read_bytes": 4 / 32}),
        ("x[i, X[i, j] > 0.0] = 1.0", {"strided": 2, "operations": 0}),
        ("x[i, j] = X[i + bx, j]", {"guarded": 1}),
        ("x[i, j] = X[i, j + bx - 4]", {"guarded": 0}),
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


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ("copy(X[0 : +64, 0 : +32], x)", 64 * 2),
        ("copy(X[0 : +64, 0 : +32], x)\n    copy(X[0 : +64, 0 : +32], x)", 64 * 2),
        ("copy(X[0 : +64, 0 : +32], x)\n    copy(X[0 : +64, 1 : +32], x)", 64 * 2 * 2),
        (
            "for k in serial(4):\n        copy(X[k * 16 : +16, 0 : +32], x[0 : +16, 0 : +32])",
            64 * 2,
        ),
        (
            "for k in serial(4):\n        row = k * 16\n"
            "        copy(X[row : +16, 0 : +32], x[0 : +16, 0 : +32])",
            64 * 2,
        ),
        ("copy(X[0 : +8, bx * 4 : +4], x[0 : +8, 0 : +4])", 8 / 4),
        ("copy(x, X)", 64 * 2 * 2),
    ],
)
def test_a_block_moves_each_line_once(body: str, lines: float) -> None:
    """Also one that it reads again, or that the next block goes on with; what is written is read and
    written back.
    """
    assert count_work(read_program(f"{HEAD}    {body}\n"), {"n": 1})["lines"] == 5 * lines


@pytest.mark.parametrize(
    ("columns", "rows", "evicted"),
    [
        (1024, 128, (1 - 8 / 128) * (1 - 1 / 16)),
        (1024, 8, 0.0),
        (1040, 128, 0.0),
    ],
)
def test_lines_that_share_places_of_a_cache_evict_each_other(
    columns: int, rows: int, evicted: float
) -> None:
    """A walk down a column finds its lines again unless too many of them are multiples of a page apart."""
    text = f"""\
def f(Y: out.float32[128, {columns}]):
    for i, j in parallel(16, {rows}):
        Y[j, i] = 0.0
"""
    found = count_work(read_program(text), {})
    assert found.get("evicted", 0.0) == 2 * 16 * rows * evicted


def test_elements_that_fill_no_vector_take_a_vector_each() -> None:
    """Of 20 elements 16 are a vector; a half is done at once, too."""
    text = "    for i, j in parallel(8, {row}):\n        x[i, j] = exp(x[i, j])\n"
    found = {
        row: count_work(read_program(HEAD + text.format(row=row)), {"n": 1})["functions"]
        for row in (16, 20, 24)
    }
    assert found == {16: 5 * 8 * 16, 20: 5 * 8 * (16 + 4 * 16), 24: 5 * 8 * 24}
