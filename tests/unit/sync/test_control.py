"""Which whole numbers decide what a Program does."""

import pytest

from tileyard.ir.reader import read_program
from tileyard.sync.control import deciding_numbers

HEAD = """
def main(N: int32[4], M: bool[4], X: float32[4], Y: out.float32[4]):
    t: shared.int32[4]

"""


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (("Y[N[0]] = X[0]",), {"N"}),
        (("Y[0] = X[N[0]]",), {"N"}),
        (("for i in serial(N[1]):", "    Y[i] = X[i]"), {"N"}),
        (("if M[0]:", "    Y[0] = X[0]"), {"M"}),
        (("copy(N, t)", "k = t[2] + 1", "Y[k] = X[0]"), {"N"}),
        (("for i in serial(4):", "    Y[i] = X[i] * float32(N[i])"), set()),
        (("copy(N, t)", "Y[0] = float32(t[0])"), set()),
        (("if X[0] > 0.0:", "    Y[0] = 1.0"), set()),
    ],
)
def test_numbers_decide_as_indices_lengths_and_conditions(
    lines: tuple[str, ...], expected: set[str]
) -> None:
    """Also through tiles and variables; as values, and of floats, they decide nothing."""
    program = read_program(HEAD + "".join(f"    {line}\n" for line in lines))
    assert deciding_numbers(program) == expected
