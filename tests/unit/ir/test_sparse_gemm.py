"""Products of a sparse matrix: their meaning, their rules, and what asynchronous ones read."""

import numpy as np
import pytest
from tests.compressed import compress, draw_sparse

from tileyard.base.errors import InvalidProgramError
from tileyard.ir.hazards import LateRun
from tileyard.ir.interpret import interpret
from tileyard.ir.nodes import SparseGemm
from tileyard.ir.printer import print_program
from tileyard.ir.reader import read_program
from tileyard.ir.specs import count_gemm_flops
from tileyard.ir.verify import verify
from tileyard.ir.walk import own_effects

TEXT = """\
def f(A: {dtype}[{a}], E: {meta}[{e}], B: {dtype}[{b}], C: inout.{total}[8, 6]):

    gemm_sp(A, E, B, C{flags})
"""


def shape_of(array: np.ndarray) -> str:
    """A shape as text."""
    return ", ".join(map(str, array.shape))


@pytest.mark.parametrize(
    ("dtype", "meta"),
    [
        ("float16", "int16"),
        ("float16", "uint8"),
        ("int8", "int32"),
        ("float32", "int16"),
        ("float32", "int8"),
    ],
)
@pytest.mark.parametrize("flags", ["", "transpose_a", "transpose_e", "transpose_b", "clear"])
def test_product_of_what_was_kept_is_that_of_the_whole_matrix(
    dtype: str, meta: str, flags: str
) -> None:
    """Whatever the types, and whichever operand is transposed."""
    dense = draw_sparse((8, 64), dtype, seed=3)
    a, e = compress(dense, meta)
    b = np.random.default_rng(4).integers(-3, 4, (64, 6)).astype(dtype)
    total = "int32" if dtype == "int8" else "float32"
    c = np.ones((8, 6), total)
    expected = dense.astype(total) @ b.astype(total) + (0 if flags == "clear" else c)
    arrays = {"a": a, "e": e, "b": b}
    arrays = {k: v.T.copy() if flags.endswith(f"_{k}") else v for k, v in arrays.items()}
    text = TEXT.format(
        dtype=dtype,
        meta=meta,
        total=total,
        flags=f", {flags}=True" if flags else "",
        **{name: shape_of(array) for name, array in arrays.items()},
    )
    program = read_program(text)
    verify(program)
    assert print_program(program) == text
    (got,) = interpret(program, [*arrays.values(), c])
    np.testing.assert_array_equal(got, expected)


def small(e: str = "int16[8, 2]", b: str = "float16[32, 6]", flags: str = "") -> str:
    """A Program of one product of 8 rows of 32 elements."""
    return (
        f"def f(A: float16[8, 16], E: {e}, B: {b}, C: inout.float32[8, 6]):\n\n"
        f"    gemm_sp(A, E, B, C{flags})\n"
    )


def test_zeros_that_were_left_out_are_not_multiplied() -> None:
    """A number that is none beside one does no harm."""
    a, e = compress(np.tile(np.array([1, 0, 0, 1], np.float16), (8, 8)), "int16")
    b = np.tile(np.array([1, np.nan, np.inf, 1], np.float16)[:, None], (8, 6))
    (got,) = interpret(read_program(small()), [a, e, b, np.zeros((8, 6), np.float32)])
    np.testing.assert_array_equal(got, np.full((8, 6), 16, np.float32))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (small(e="float16[8, 2]"), "gemm_sp finds elements by float16"),
        (small(e="int16[4, 2]"), "gemm_sp's a and e differ in m"),
        (small(e="int32[8, 2]"), "gemm_sp's e is for rows of 64, those of a are 32"),
        (small(b="float16[16, 6]"), "gemm's operands differ in k"),
        (small(b="int8[32, 6]"), "gemm does not take float16, int8, float32"),
    ],
)
def test_operands_that_do_not_fit_are_refused(text: str, message: str) -> None:
    """By what is wrong with them."""
    with pytest.raises(InvalidProgramError) as caught:
        verify(read_program(text))
    assert caught.value.message.startswith(f"{message} in `gemm_sp(A, E, B, C)`")


def test_it_reads_all_operands_and_writes_the_last() -> None:
    """And does half of the work of a whole product."""
    program = read_program(small())
    (stmt,) = program.body
    assert isinstance(stmt, SparseGemm)
    assert own_effects(stmt).read == {"A", "E", "B", "C"}
    assert own_effects(read_program(small(flags=", clear=True")).body[0]).read == {"A", "E", "B"}
    assert own_effects(stmt).written == {"C"}
    assert count_gemm_flops(program, {}) == 2 * 8 * 6 * 16


def test_places_that_change_under_way_are_found() -> None:
    """An asynchronous product reads them until it is waited for."""
    text = """\
def f(A: float16[8, 16], E: int16[8, 2], B: float16[32, 6], C: out.float32[8, 6]):
    threads(128)
    a: shared.float16[8, 16]
    e: shared.int16[8, 2]
    b: shared.float16[32, 6]
    c: fragment.float32[8, 6]

    copy(A, a)
    copy(E, e)
    copy(B, b)
    sync(threads=128, count=128)
    fence_proxy_async(threads=128)
    with issue("wgmma"):
        gemm_sp(a, e, b, c, clear=True)
    commit_group(unit="wgmma")
{between}    wait_group(0, unit="wgmma")
    copy(c, C)
"""
    dense = draw_sparse((8, 32), "float16", seed=1)
    arrays = [*compress(dense, "int16"), np.ones((32, 6), np.float16)]
    found = []
    for between in ("", "    fill(e, 0)\n"):
        program = read_program(text.format(between=between))
        verify(program)
        run = LateRun(program, arrays)
        run.grid()
        found.append({(one.kind, one.buffer) for one in run.hazards.values()})
        if not between:
            whole = dense.astype(np.float32) @ arrays[2].astype(np.float32)
            np.testing.assert_array_equal(run.written()[0], whole)
    assert found == [set(), {("source changed in flight", "e")}]
