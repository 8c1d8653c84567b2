"""Machine code that reads what the functions of a cubin share, and what nvdisasm prints of one artifact."""

import pytest

from tileyard.targets.cuda.sass import keep_functions, reads_tables


def _code(*words: int) -> bytes:
    return b"".join(word.to_bytes(16, "little") for word in words)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        (0xAB9 | 4 << 54 | 8 << 40, True),  # ULDC.64 UR4, c[0x4][0x8]
        (0xB82 | 3 << 54, True),  # LDC R0, c[0x3][...]
        (0xAB9 | 0x118 << 38, False),  # ULDC.64 UR4, c[0x0][0x118]: a parameter
        (0xA10 | 2 << 54, False),  # a constant of the function's own
        (0x210 | 4 << 54, False),  # registers alone: these bits mean something else
    ],
)
def test_banks_of_a_whole_cubin_are_told(word: int, expected: bool) -> None:
    """Banks 3 and 4 as operands are shared tables; parameters and own constants are not."""
    assert reads_tables(_code(0x7918, word)) is expected


HEAD = "\t.target\tsm_80\n\n"
FIRST = (
    "//--------------------- .text.first_kernel --------------------------\n"
    ".other first, STO_CUDA_ENTRY\nA ;\n"
)
SECOND = (
    "//--------------------- .text.second_kernel --------------------------\n"
    ".other second, STO_CUDA_ENTRY\nB ;\n"
)
CALLED = "//--------------------- .text.helper --------------------------\n.other helper, STO_LOCAL\nC ;\n"


def test_kernels_of_others_are_left_out() -> None:
    """Of a cubin that several kernels share, those that are asked for remain, with what they may call."""
    text = HEAD + FIRST + SECOND + CALLED
    expected = HEAD + SECOND + CALLED
    assert "".join(keep_functions(text, ["second_kernel"])) == expected


def test_all_of_an_artifacts_kernels_remain() -> None:
    """An artifact with several launches keeps the functions of all."""
    text = HEAD + FIRST + SECOND
    assert "".join(keep_functions(text, ["second_kernel", "first_kernel"])) == text
