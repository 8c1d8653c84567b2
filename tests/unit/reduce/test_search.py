"""The search for a small Program, with predicates on its text."""

from collections.abc import Callable

import pytest

from tileyard.ir.nodes import Program
from tileyard.ir.printer import print_program
from tileyard.ir.reader import read_program
from tileyard.ir.verify import verify
from tileyard.reduce.search import bind_numbers, count_statements, search

TEXT = """\
def f(A: float16[256, 64], B: float16[64, 128], S: int32[4], C: out.float32[256, 128], n: int32):
    bx: grid[2]
    by: grid[4]
    threads(256)
    a: shared.float16[2, 64, 64]
    b: shared.float16[64, 64] = layout(i0, i1 ^ i0 % 8)
    c: fragment.float32[64, 64]
    r: fragment.float32[64]
    full: barrier[128, 128]

    init_barrier(full)
    x = S[1] + n
    fill(c, 0.0)
    with roles:
        with role(0, 128):
            with issue("tma", full[0]):
                copy(A[by * 64 : +64, :], a[0, :, :])
            arrive(full[0], count=128, bytes=8192)
        with role(128, 256):
            wait_barrier(full[0], 0)
            if x > 3:
                copy(B[:, bx * 64 : +64], b)
            else:
                fill(b, 0.0)
            gemm(a[0, :, :], b, c)
            for k in pipelined(4, stages=2):
                for i, j in parallel(64, 64):
                    c[i, j] = exp(c[i, j] * 2.0 + float32(k)) - 1.0
            reduce(c, r, kind="sum", axis=1)
            while r[0] > 0.0:
                r[0] = r[0] - 1.0
            copy(c, C[by * 64 : +64, bx * 64 : +64])
"""


def reduce_text(text: str, fails: Callable[[str], bool]) -> str:
    """What is left of a Program as long as its text fails."""
    program = read_program(text)
    verify(program)
    found = search(program)
    try:
        candidate = next(found)
        while True:
            is_failing = fails(print_program(candidate))
            program = candidate if is_failing else program
            candidate = found.send(is_failing)
    except StopIteration:
        return print_program(program)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kept", "left"),
    [
        (
            ("gemm(",),
            """\
def f():
    bx: grid[1]
    threads(256)
    a: shared.float16[1, 16, 16]
    b: shared.float16[16, 16]
    c: fragment.float32[16, 16]

    gemm(a, b, c, clear=True)
""",
        ),
        (
            ("exp(",),
            """\
def f():
    bx: grid[1]
    threads(256)
    c: fragment.float32[1, 1]

    c[0, 0] = exp(0.0)
""",
        ),
        (
            ("while",),
            """\
def f():
    bx: grid[1]
    threads(256)
    r: fragment.float32[1]

    while False:
        r[0] = 0.0
""",
        ),
        (
            ("copy(A", "arrive("),
            """\
def f(A: float16[1, 1]):
    bx: grid[1]
    threads(256)
    a: shared.float16[1, 1, 1]
    full: barrier[128]

    copy(A, a)
    arrive(full[0], count=128, bytes=8192)
""",
        ),
    ],
)
def test_what_is_not_needed_goes(kept: tuple[str, ...], left: str) -> None:
    """Statements, branches, roles, loops, buffers, parameters, axes, sizes, operands."""
    assert reduce_text(TEXT, lambda text: all(word in text for word in kept)) == left


@pytest.mark.slow
def test_candidates_are_valid_smaller_and_tried_once() -> None:
    """Whatever is answered: no candidate is larger than what failed before it."""
    program = read_program(TEXT)
    seen: list[Program] = []
    found = search(program)
    candidate = next(found)
    try:
        while True:
            verify(candidate)
            assert read_program(print_program(candidate)) == candidate
            assert count_statements(candidate) <= count_statements(program)
            seen.append(candidate)
            candidate = found.send(False)
    except StopIteration:
        pass
    assert len(set(seen)) == len(seen) > 100


@pytest.mark.slow
def test_the_order_is_the_same_each_time() -> None:
    """Two searches with the same answers try the same candidates."""
    runs = []
    for _ in range(2):
        tried: list[str] = []

        def fails(text: str, tried: list[str] = tried) -> bool:
            tried.append(text)
            return "reduce(" in text

        reduce_text(TEXT, fails)
        runs.append(tried)
    assert runs[0] == runs[1]


def test_numbers_take_the_place_of_dimensions_and_scalars() -> None:
    """In shapes, in the grid and in statements; what has no number stays."""
    text = """\
def f(A: inout.float32[m, n], s: float32, k: int32):
    m: dim
    n: dim
    bx: grid[m // 2]

    for i in serial(n, start=k):
        A[bx, i] = s
"""
    bound = print_program(bind_numbers(read_program(text), {"m": 8, "n": 4, "s": 0.5}))
    assert bound.splitlines() == [
        "def f(A: inout.float32[8, 4], k: int32):",
        "    bx: grid[8 // 2]",
        "",
        "    for i in serial(4, start=k):",
        "        A[bx, i] = 0.5",
    ]


def test_what_is_not_run_loses_statements_first() -> None:
    """Sizes come first only where small ones make a candidate fast."""
    program = read_program(TEXT)
    first = {is_run: next(search(program, is_run=is_run)) for is_run in (True, False)}
    assert count_statements(first[True]) == count_statements(program)
    assert count_statements(first[False]) < count_statements(program)
