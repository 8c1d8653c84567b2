"""Accesses certainly outside their tile are refused before any build; indices that wrap get a note."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from tileyard.artifacts.objects import ObjectStore
from tileyard.base.model import Outcome, SourceLine
from tileyard.workers.author import Author
from tileyard.workers.protocol import (
    CheckSync,
    ElaborateConfig,
    ElaboratedConfig,
    Failed,
    SyncChecked,
)

KERNEL = """
import tilelang.language as T
import tileyard


@tileyard.kernel()
def past(N=8):
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((n, 8), "float16"), O: T.Tensor((n, 8), "float16")):
        with T.Kernel(2, threads=32) as bx:
            t = T.alloc_shared((8, 8), "float16")
            u = T.alloc_shared((N,), "float16")
            square = T.alloc_shared((32, 32), "float16")
            total = T.alloc_fragment((32, 32), "float32")
            row = T.alloc_fragment((32,), "float32")
            T.copy(A[0:8, 0:8], t)
            T.fill(u, 0)
            T.fill(square, 0)
            T.clear(total)
            T.clear(row)
            {lines}
            T.copy(t, O[0:8, 0:8])

    return main
"""
numbers = itertools.count()


@pytest.fixture
def ask(tmp_path: Path) -> Callable[..., ElaboratedConfig | Failed]:
    """Elaborates the kernel with these lines, with TIR for a GPU."""

    def elaborate(lines: str, *, with_tir: bool) -> ElaboratedConfig | Failed:
        file = tmp_path / f"past{next(numbers)}.py"
        file.write_text(KERNEL.format(lines=lines.replace("\n", "\n" + 12 * " ")))
        request = ElaborateConfig(kernel="past", arguments={"n": 8}, config={}, with_tir=with_tir)
        reply = Author.of_file(file, ObjectStore(tmp_path)).answer(request)
        assert isinstance(reply, ElaboratedConfig | Failed)
        return reply

    return elaborate


OUTSIDE = {
    "T.fill(u[6:12], 7)": "u[6:12] is outside of u's shape (8)",
    "T.fill(u[N - 2:N + 2], 7)": "u[6:10] is outside of u's shape (8)",
    # TileLang takes it as 12 elements from -4
    "T.fill(u[-4:], 7)": "u[4:16] is outside of u's shape (8)",
    "T.fill(u[-10:-6], 7)": "u[-2:2] is outside of u's shape (8)",
    "T.copy(A[0, 0:8], u[4:12])": "u[4:12] is outside of u's shape (8)",
    "T.copy(t[4:12, 0:8], O[0:8, 0:8])": "t[4:12, 0:8] is outside of t's shape (8, 8)",
    "T.gemm(square[16:48, 0:32], square, total)": "square[16:48, 0:32] is outside of square's shape (32, 32)",
    "T.reduce_sum(total[0:32, 1:33], row, dim=1)": "total[0:32, 1:33] is outside of total's shape (32, 32)",
    "T.atomic_add(O[0, 0:8], u[1:9])": "u[1:9] is outside of u's shape (8)",
    "u[N] = 1": "u[8] is outside of u's shape (8)",
    "u[0] = u[N + 1]": "u[9] is outside of u's shape (8)",
    "u[-9] = 1": "u[-1] is outside of u's shape (8)",
    "if A[0, 0] > 0:\n    T.fill(u[6:12], 7)": "u[6:12] is outside of u's shape (8)",
    "for k in T.serial(4):\n    T.fill(u[k * 4:k * 4 + 4], 7)": (
        "u[12:16] is outside of u's shape (8), where k = 3"
    ),
    "if bx == 1:\n    T.fill(u[bx * 8:bx * 8 + 8], 7)": "u[8:16] is outside of u's shape (8), where bx = 1",
    "for k in T.serial(n // 4):\n    T.fill(u[k * 5:k * 5 + 4], 7)": (
        "u[5:9] is outside of u's shape (8), where k = 1"
    ),
    # no Program has this operation, and the region is refused all the same
    'u[0] = T.call_extern("float16", "of_ours", 1)\nT.fill(u[6:12], 7)': (
        "u[6:12] is outside of u's shape (8)"
    ),
}
UNGUARDED = {
    "for i in T.Parallel(8):\n    u[i] = t[i + 1, 0]": "t[8, 0] is outside of t's shape (8, 8), where i = 7",
    "for i in T.Parallel(8):\n    T.atomic_add(u[i + 8], 1)": "u[8] is outside of u's shape (8), where i = 0",
}
INSIDE = (
    "T.fill(u[4:], 7)",
    "T.copy(A[bx * 100, 0], t)\nT.copy(t, O[4, 4])",  # TileLang guards what is global
    "for k in T.serial(1):\n    if k > 0:\n        T.fill(u[k - 1:k + 7], 7)",
    "for k in T.serial(3):\n    if k < 2:\n        T.fill(u[k * 4:k * 4 + 4], 7)",
    "for k in T.serial(9):\n    if k == 8:\n        T.loop_break()\n    T.fill(u[k:k + 1], 7)",
    "for k in T.serial(n - 8):\n    T.fill(u[k + 9:k + 10], 7)",
    "for i in T.Parallel(8):\n    u[i] = T.if_then_else(i < 7, t[i + 1, 0], 0)",
    "for i in T.Parallel(16):\n    if i < 8:\n        u[i] = t[i, 0]",
)


@pytest.mark.slow
@pytest.mark.parametrize("with_tir", [False, True], ids=["program", "tir"])
@pytest.mark.parametrize("lines", [*OUTSIDE, *UNGUARDED])
def test_an_access_that_is_certainly_outside_is_refused_with_its_line(
    ask: Callable[..., ElaboratedConfig | Failed], lines: str, *, with_tir: bool
) -> None:
    """Every target says the same; elements of loops are refused only if no code of ours looks as they run."""
    reply = ask(lines, with_tir=with_tir)
    if lines in UNGUARDED and not with_tir:
        assert isinstance(reply, ElaboratedConfig)
        return
    assert isinstance(reply, Failed)
    assert reply.outcome is Outcome.COMPILE_ERROR
    assert reply.diagnostic is not None
    assert reply.diagnostic.message == f"out of bounds: {(OUTSIDE | UNGUARDED)[lines]}"
    where = reply.diagnostic.where
    first = KERNEL[: KERNEL.index("{lines}")].count("\n") + 1
    assert isinstance(where, SourceLine)
    assert where.line == first + lines.count("\n")
    assert f"{Path(where.file).name}:{where.line}: out of bounds: " in reply.message


@pytest.mark.slow
@pytest.mark.parametrize("lines", INSIDE)
def test_what_may_be_inside_is_built(
    ask: Callable[..., ElaboratedConfig | Failed], lines: str
) -> None:
    """Code that does not run at these sizes, guarded code and global arrays are no mistakes."""
    assert isinstance(ask(lines, with_tir=True), ElaboratedConfig)


@pytest.mark.slow
def test_a_check_reports_such_an_access_as_a_finding(tmp_path: Path) -> None:
    """`tileyard check` runs the kernel, so a constant index past the end is one of its findings."""
    file = tmp_path / "past.py"
    file.write_text(KERNEL.format(lines="u[N] = 1").replace("N=8", "N=8, n=8", 1))
    question = CheckSync(kernel="past", arguments={"n": 8}, config={})
    reply = Author.of_file(file, ObjectStore(tmp_path)).answer(question)
    assert isinstance(reply, SyncChecked), reply
    assert [finding.kind for finding in reply.findings] == ["out of bounds"]
    assert not reply.notes
    file.write_text(KERNEL.format(lines="T.fill(u[-4:0], 7)").replace("N=8", "N=8, n=8", 1))
    reply = Author.of_file(file, ObjectStore(tmp_path)).answer(question)
    assert isinstance(reply, SyncChecked), reply
    assert not reply.findings
    assert len(reply.notes) == 1


WRAPPED = {
    "if bx == 0:\n    T.copy(A[bx * 8 - 1, 0], t)": (
        "A is accessed at bx * 8 - 1, which is certainly negative here: TileLang counts it from "
        "the end, as bx * 8 + n - 1; "
        "for zeros there, use T.if_then_else(bx * 8 - 1 >= 0, A[...], 0) for each element; if "
        "that is meant, write bx * 8 + n - 1"
    ),
    "if bx == 0:\n    T.copy(t, O[bx * 8 - 1, 0])": (
        "to write nothing there, put it under `if bx * 8 - 1 >= 0`; if"
    ),
    "for i in T.Parallel(4):\n    u[i] = t[i - 8, 0]": (
        "t is accessed at i - 8, which is certainly negative here: "
    ),
    "for i in T.Parallel(4):\n    u[i - 8] = 0": "to write nothing there, put it under `if i - 8 >= 0`; if",
    "T.gemm(square[-32:0, 0:32], square, total)": (
        "square is accessed at -32, which is certainly negative here: TileLang counts it from "
        "the end, as 0; if that is meant, write 0"
    ),
    "T.fill(u[-4:0], 7)": (
        "u is accessed at -4, which is certainly negative here: TileLang counts it from the end, "
        "as 4; if"
    ),
    # a guard that excludes it, an index that may not be negative,
    # and Python's own way to name the last element
    "if bx > 0:\n    T.copy(A[bx * 8 - 1, 0], t)": "",
    "for i in T.Parallel(4):\n    u[i] = A[i - 2, 0]": "",
    "u[0] = u[-1]": "",
}


@pytest.mark.slow
@pytest.mark.parametrize("with_tir", [False, True], ids=["program", "tir"])
@pytest.mark.parametrize("lines", WRAPPED)
def test_an_index_that_counts_from_the_end_gets_a_note_with_its_line(
    ask: Callable[..., ElaboratedConfig | Failed], lines: str, *, with_tir: bool
) -> None:
    """It is no mistake: TileLang does so on every target, without a word."""
    reply = ask(lines, with_tir=with_tir)
    assert isinstance(reply, ElaboratedConfig), reply
    notes = reply.elaborated.notes
    assert len(notes) == bool(WRAPPED[lines])
    for note in notes:
        assert WRAPPED[lines] in note.message
        assert note.where is not None
        first = KERNEL[: KERNEL.index("{lines}")].count("\n") + 1
        assert note.where.line == first + lines.count("\n")
