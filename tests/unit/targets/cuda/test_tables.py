"""Machine code that reads what the functions of a cubin share."""

import pytest

from tileyard.targets.cuda.sass import reads_tables


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
