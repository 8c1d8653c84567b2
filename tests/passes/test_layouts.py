"""Layouts of tiles in shared memory: Programs in text, and what TileLang itself chooses."""

import importlib
from typing import Any

import numpy as np
import pytest
from tests.passes.cases import faults_of, run_text

from tileyard.ir.nodes import Buffer, Const
from tileyard.ir.printer import print_program
from tileyard.passes.bank_conflicts import (
    SPANS,
    count_ways,
    laid_out_addresses,
    make_swizzle,
    possible_spans,
    swizzled_addresses,
)
from tileyard.passes.infer_shared_layouts import InferSharedLayouts
from tileyard.passes.pipeline import Step


def infer(text: str, architecture: str = "sm_80") -> Step:
    """A Program in text with layouts."""
    return run_text(text, [InferSharedLayouts(architecture)])[-1]


def spans_of(step: Step) -> dict[str, int]:
    """The span of the swizzle of each tile in shared memory, 0 for tiles without a layout."""
    tiles = [buffer for buffer in step.program.buffers if buffer.scope == "shared"]
    return {
        tile.name: next(
            (n for n in possible_spans(tile) if make_swizzle(tile, n) == tile.layout), 0
        )
        for tile in tiles
    }


def notes_of(step: Step) -> list[str]:
    """What the pass reports."""
    return [note.message for note in step.notes]


def tile(shape: tuple[int, ...], dtype: str = "float16") -> Buffer:
    """A tile in shared memory."""
    return Buffer("s", dtype, tuple(Const(n, "int32") for n in shape), "shared")


GEMM = """\
def f(A: float16[256, 256], B: float16[256, 256], C: out.float16[256, 256]):
    bx: grid[2]
    by: grid[2]
    threads(128)
    a: shared.float16[128, 32]
    b: shared.float16[32, 128]
    c: fragment.float32[128, 128]
    d: shared.float16[128, 128]

    fill(c, 0.0)
    for k in serial(8):
        copy(A[by * 128 : +128, k * 32 : +32], a)
        copy(B[k * 32 : +32, bx * 128 : +128], b)
        gemm(a, b, c)
    copy(c, d)
    copy(d, C[by * 128 : +128, bx * 128 : +128])
"""


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a"])
def test_products_read_swizzled_tiles(architecture: str) -> None:
    """Operands, and the result's tile, have the largest swizzle that divides their rows."""
    step = infer(GEMM, architecture)
    assert spans_of(step) == {"a": 64, "b": 128, "d": 128}
    assert notes_of(step) == [
        "a is written by a copy: 1-way bank conflicts in rows, 1-way with a swizzle of 64 bytes",
        "b is written by a copy: 1-way bank conflicts in rows, 1-way with a swizzle of 128 bytes",
        "a is read by a product: 4-way bank conflicts in rows, 1-way with a swizzle of 64 bytes",
        "b is read by a product: 8-way bank conflicts in rows, 1-way with a swizzle of 128 bytes",
        "d is written as a product has it in registers: 8-way bank conflicts in rows, 1-way with "
        "a swizzle of 128 bytes",
        "d is read by a copy: 1-way bank conflicts in rows, 1-way with a swizzle of 128 bytes",
    ]


def test_layouts_are_behind_the_versions() -> None:
    """In the pipeline a tile has its swizzle in each version, and the result stays."""
    text = GEMM.replace("256", "128").replace("grid[2]", "grid[1]")
    steps = run_text(text.replace("in serial(8)", "in pipelined(4, stages=3)"))
    assert spans_of(steps[-1]) == {"a": 64, "b": 128, "d": 128}
    assert "a: shared.float16[3, 128, 32] = layout(i0, 0, i1 // 8," in print_program(
        steps[-1].program
    )
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-2, 3, (128, 128)).astype(np.float16) for _ in range(2)]
    assert faults_of(steps, arrays) == []


TRANSPOSE = """\
def f(A: float32[64, 64], C: out.float32[64, 64]):
    threads(128)
    a: shared.float32[64, 64]

    copy(A, a)
    for i, j in parallel(64, 64):
        C[i, j] = a[j, i]
"""


def test_a_tile_that_is_read_by_columns_is_swizzled() -> None:
    """A warp that reads a column has fewer conflicts, and the copy keeps having none."""
    step = infer(TRANSPOSE)
    assert spans_of(step) == {"a": 128}
    assert notes_of(step)[1] == (
        "a is read by a parallel loop: 32-way bank conflicts in rows, 4-way with a swizzle of 128 bytes"
    )


@pytest.mark.parametrize("row", ["r - 1", "r + 64", "63 - r"])
def test_a_row_beside_that_of_a_loop_conflicts_as_any_other(row: str) -> None:
    """An index that another variable's 0 puts outside the tile is counted: only differences matter."""
    loop = f"""for r in serial(64):
        if r > 0:
            for i in parallel(64):
                C[r, i] = a[i, {row}]
"""
    start = TRANSPOSE.index("for i, j")
    step = infer(TRANSPOSE[:start] + loop)
    assert notes_of(step)[1] == (
        "a is read by a parallel loop: 32-way bank conflicts in rows, 4-way with a swizzle of 128 bytes"
    )


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("C[i, j] = a[j, i]", "C[i, j] = a[i, j]", ""),
        ("C[i, j] = a[j, i]", "old = atomic_add(a[j, i], A[i, j])", "it is updated atomically"),
        ("shared.float32[64, 64]\n", "shared.float32[64, 64]\n    v: shared.float32[4096] = a\n",
         "it is seen as more than one buffer"),
        ("copy(A, a)", "copy(A[0 : +60, :], a)", "no swizzle divides its rows"),
        ("    copy(A, a)",
         '    r: fragment.float32[64]\n\n    copy(A, a)\n    reduce(a, r, kind="sum", axis=1)',
         "it is reduced"),
    ],
)  # fmt: skip
def test_other_tiles_are_left_to_tilelang(old: str, new: str, said: str) -> None:
    """Those without conflicts say nothing, others the reason."""
    text = TRANSPOSE.replace(old, new).replace("]\n\n    r:", "]\n    r:")
    if "60" in new:
        text = text.replace("64, 64]\n\n", "60, 64]\n\n").replace("(64, 64)", "(64, 60)")
    step = infer(text)
    assert spans_of(step)["a"] == 0
    reasons = {note.rpartition("left to TileLang: ")[2] for note in notes_of(step)}
    assert reasons == ({said} if said else set())


TWO_PRODUCTS = """\
def f(A: float16[64, 64], B: float16[64, 64], C: out.float32[64, 64]):
    threads(128)
    a: shared.float16[64, 64]
    b: shared.float16[64, 64]
    c: fragment.float32[64, 64]

    copy(A, a)
    copy(B, b)
    gemm(a, b, c, clear=True)
    gemm(a[:, 0 : +32], b[0 : +32, :], c)
    copy(c, C)
"""


def test_uses_that_disagree_are_reported() -> None:
    """The tile gets the smaller swizzle, which both can read; on sm_80 they agree."""
    step = infer(TWO_PRODUCTS, "sm_90a")
    assert spans_of(step) == {"a": 64, "b": 128}
    said = "a could have a swizzle of 128 bytes here, and another use allows 64"
    assert said in notes_of(step)
    assert spans_of(infer(TWO_PRODUCTS)) == {"a": 128, "b": 128}


PINNED = TWO_PRODUCTS.replace("a: shared.float16[64, 64]", "a: shared.float16[64, 64] = layout({})")


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (
            "i0 * 64 + (i1 // 8 ^ i0 % 8) * 8 + i1 % 8",
            [],
        ),
        (
            "i0, i1 ^ i0",
            ["the layout that a is given is not a swizzle that wgmma reads"],
        ),
        ("i1, i1", ["the layout that a is given puts two elements at one place"]),
    ],
)
def test_layouts_of_the_user_stay(place: str, said: list[str]) -> None:
    """Those that a unit cannot use are reported at its statement."""
    step = infer(PINNED.format(place), "sm_90a")
    assert f"a: shared.float16[64, 64] = layout({place})" in print_program(step.program)
    assert [note for note in notes_of(step) if "given" in note] == said


@pytest.mark.parametrize(
    ("pitch", "width", "ways"), [(4, 4, 1), (128, 4, 32), (128, 16, 8), (16, 16, 1), (256, 8, 16), (0, 4, 1)]
)  # fmt: skip
def test_words_of_one_bank_conflict(pitch: int, width: int, ways: int) -> None:
    """Of what is served at once: a whole warp, halves or quarters of it."""
    assert count_ways(np.arange(32, dtype=np.int64) * pitch, width) == ways


SHAPES = [
    (8, 64),
    (16, 32),
    (128, 64),
    (64, 96),
    (128, 16),
    (3, 128, 64),
    (2, 2, 64, 256),
    (24, 48),
]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_swizzle_is_what_its_expressions_say(shape: tuple[int, ...]) -> None:
    """The addresses that are counted are those of the layout, each of which is taken once."""
    one = tile(shape)
    for span in possible_spans(one):
        whole = np.indices(shape).reshape(len(shape), -1)
        counted = swizzled_addresses(one, span, tuple(whole))
        assert np.array_equal(counted, laid_out_addresses(one, make_swizzle(one, span)))
        assert np.array_equal(np.sort(counted), np.arange(whole.shape[1]) * 2)


@pytest.mark.slow  # imports TileLang
@pytest.mark.parametrize("dtype", ["float16", "float32", "int8"])
def test_swizzles_are_those_of_tilelang(dtype: str) -> None:
    """Expression by expression, as the frontend reads them and TileLang compares layouts."""
    layouts = importlib.import_module("tilelang.layout")
    tvm: Any = importlib.import_module("tilelang").tvm
    with_layout = importlib.import_module("tileyard.frontend.hints").with_layout
    scope_of = importlib.import_module("tileyard.frontend.scope").Scope
    makers = dict(zip(SPANS, ("full", "half", "quarter"), strict=True))
    for shape in SHAPES:
        one = tile(shape, dtype)
        buffer = tvm.tirx.decl_buffer(shape, dtype, "s", scope="shared")
        for span in possible_spans(one):
            scope = scope_of()
            scope.bind_buffer(buffer, one)
            theirs = getattr(layouts, f"make_{makers[span]}_bank_swizzled_layout")(buffer)
            scope.layouts.append((buffer.data, theirs))
            assert with_layout(scope, one).layout == make_swizzle(one, span)
