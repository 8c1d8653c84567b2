"""Which unit each copy and each product uses on an architecture, and why no better one."""

import pytest
from tests.passes.cases import run_text, step_of

from tileyard.base.errors import UsageError
from tileyard.passes.annotate_instructions import AnnotateInstructions


def notes_of(text: str, pipeline: str) -> list[str]:
    """What the pipeline says of the units."""
    return [
        note.message for note in step_of(run_text(text, pipeline), "annotate-instructions").notes
    ]


COPY = """\
def f(A: float16[64, 256], n: int32, C: out.float16[64, 64]):
    threads(128)
    a: shared.float16[64, 64]

    copy(A[n : +64, n * 8 : +64], a)
    copy(a, C)
"""


@pytest.mark.parametrize(
    ("old", "new", "tma", "cp_async"),
    [
        ("", "", "", ""),
        ("n * 8", "n", "", "cp.async moves 4, 8 or 16 aligned bytes, and A has 2 in a row here"),
        (
            "A: float16[64, 256]",
            "A: float16[64, 252]",
            "TMA needs strides of 16 bytes, and those of A are not known to be",
            "",
        ),
        (
            "A: float16[64, 256]",
            "A: float16[64, 256] @ (260, 1)",
            "TMA needs strides of 16 bytes, and those of A are not known to be",
            "",
        ),
        (
            "A: float16[64, 256]",
            "A: float16[64, 256] @ (512, 2)",
            "the elements of a row of A are not one after the other",
            "cp.async moves 4, 8 or 16 aligned bytes, and A has 2 in a row here",
        ),
        (
            "A: float16[64, 256]",
            "A: float32[64, 256]",
            "it converts float32 to float16",
            "it converts float32 to float16",
        ),
        ("float16", "bool", "TMA has no elements of type bool", ""),
        (
            "copy(A[n : +64, n * 8 : +64], a)",
            "copy(A[n : +64, n * 8 : +4], a[:, 0 : +4])",
            "TMA copies rows of 16 bytes, and 4 elements of float16 are none",
            "",
        ),
        (
            "copy(A[n : +64, n * 8 : +64], a)",
            "copy(A[n, n * 4 : +64], a[0, :])",
            "TMA copies one row from a multiple of 16 bytes, and this one of A may begin elsewhere",
            "",
        ),
    ],
)
def test_a_load_uses_the_best_unit_that_can_do_it(
    old: str, new: str, tma: str, cp_async: str
) -> None:
    """TMA before cp.async before registers."""
    assert old in COPY
    text = COPY.replace(old, new) if old else COPY
    first, second = notes_of(text, "sm_90a")
    assert second == "by copy"
    if not tma:
        assert first == "by tma"
    elif not cp_async:
        assert first == f"by cp_async, because {tma}"
    else:
        assert first.startswith(f"by copy, because {tma}")
    assert notes_of(text, "sm_80")[0] == (
        f"by copy, because {cp_async}" if cp_async else "by cp_async"
    )


def test_a_box_has_at_most_256_elements_in_a_dimension() -> None:
    """And an array at most 5 dimensions."""
    text = """\
def f(A: uint8[1024, 512], B: uint8[2, 2, 2, 2, 2, 16], C: out.uint8[16]):
    threads(128)
    a: shared.uint8[512, 16]
    b: shared.uint8[2, 16]

    copy(A[0 : +512, 0 : +16], a)
    copy(B[0, 0, 0, 0, :, :], b)
    copy(b[0, :], C)
"""
    assert notes_of(text, "sm_90a") == [
        "by cp_async, because a side of the box has more than 256 elements",
        "by cp_async, because TMA takes arrays of 5 dimensions at most, and B has 6",
        "by copy",
    ]


@pytest.mark.parametrize(
    ("layout", "sm_90a", "sm_80"),
    [
        ("i0, i1", "tma", "cp_async"),
        ("i0 * 64 + i1", "tma", "cp_async"),
        ("i0, (i1 // 8 ^ i0 % 8) * 8 + i1 % 8", "tma", "cp_async"),
        ("i1 // 32, i0, (i1 % 32 // 8 ^ i0 % 8 // 2) * 8 + i1 % 8", "tma", "cp_async"),
        ("i0 * 72 + i1", "cp_async", "cp_async"),
        ("i0, i1 ^ i0 % 32 * 2", "cp_async", "cp_async"),
        ("i0, i1 ^ i0", "copy", "copy"),
        ("i1, i0", "copy", "copy"),
    ],
)
def test_a_layout_of_the_users_is_one_that_the_unit_knows(
    layout: str, sm_90a: str, sm_80: str
) -> None:
    """TMA swizzles 32, 64 or 128 bytes; cp.async needs 4 bytes together."""
    text = COPY.replace(
        "a: shared.float16[64, 64]", f"a: shared.float16[64, 64] = layout({layout})"
    )
    assert notes_of(text, "sm_90a")[0].split(",")[0] == f"by {sm_90a}"
    assert notes_of(text, "sm_80")[0].split(",")[0] == f"by {sm_80}"


PRODUCT = """\
def f(C: out.float32[64, 64]):
    threads(128)
    a: shared.float16[64, 32]
    b: shared.float16[32, 64]
    c: fragment.float32[64, 64]

    gemm(a, b, c)
    copy(c, C)
"""


@pytest.mark.parametrize(
    ("changes", "sm_90a", "sm_80"),
    [
        ({}, "wgmma", "mma"),
        ({"a: shared": "a: fragment"}, "wgmma", "mma"),
        (
            {"b: shared": "b: fragment"},
            "mma, because not wgmma: b is not in shared memory",
            "mma",
        ),
        (
            {"threads(128)": "threads(96)"},
            "mma, because not wgmma: 96 threads are no groups of four warps",
            "mma",
        ),
        (
            {"64, 32]": "32, 32]", "float32[64, 64]": "float32[32, 64]"},
            "mma, because not wgmma: its 32 rows are not a multiple of 64",
            "mma",
        ),
        (
            {"32]": "20]", "[32,": "[20,"},
            "fma, because not wgmma: its depth of 20 is not a multiple of 16; not mma: its depth "
            "of 20 is not a multiple of 8",
            "fma, because not mma: its depth of 20 is not a multiple of 8",
        ),
        (
            {"float16": "int8", "float32": "int32"},
            "mma, because not wgmma: operands of this type are multiplied along their rows only",
            "mma",
        ),
        (
            {
                "float16": "int8",
                "float32": "int32",
                "[32, 64]": "[64, 32]",
                "b, c)": "b, c, transpose_b=True)",
            },
            "wgmma",
            "mma",
        ),
        (
            {"float16": "int16", "float32": "int32"},
            "fma, because not wgmma: it does not add int16 x int16 to int32; not mma: it does "
            "not add int16 x int16 to int32",
            "fma, because not mma: it does not add int16 x int16 to int32",
        ),
    ],
)
def test_a_product_uses_the_best_unit_that_can_do_it(
    changes: dict[str, str], sm_90a: str, sm_80: str
) -> None:
    """Wgmma before mma before no matrix unit."""
    text = PRODUCT
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    assert notes_of(text, "sm_90a")[0] == f"by {sm_90a}"
    assert notes_of(text, "sm_80")[0] == f"by {sm_80}"


def test_an_unknown_architecture_is_refused() -> None:
    """With the names that there are."""
    program = run_text(COPY, "none")[0].program
    with pytest.raises(UsageError, match="there are no rules for 'sm_1'"):
        AnnotateInstructions("sm_1").run(program)
