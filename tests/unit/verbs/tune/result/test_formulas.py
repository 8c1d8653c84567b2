"""The work of a launch as a formula."""

import pytest

from tileyard.base.errors import UsageError
from tileyard.verbs.tune.result.formulas import evaluate

ARGUMENTS = {"M": 4, "N": 8, "dtype": "float16"}


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("", 0.0),
        ("2*M*N", 64.0),
        ("1e9", 1e9),
        ("(M + N) * 3 // 2 - -1", 19.0),
        ("N / M % 2.5", 2.0),
    ],
)
def test_a_formula_takes_the_arguments(formula: str, expected: float) -> None:
    """By their names, with the operations of arithmetic."""
    assert evaluate(formula, ARGUMENTS) == expected


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("2*K", "--flops 2*K: K is not a number of the kernel's arguments (these are: M, N)"),
        ("2*dtype", "--flops 2*dtype: dtype is not a number"),
        ("M -", "--flops M - gives no number above 0 (numbers and arguments"),
        ("M - 4", "--flops M - 4 gives no number above 0"),
        ("M / 0", "gives no number above 0"),
        ("1e999", "gives no number above 0"),
        ("M ** 9", "gives no number above 0"),
        ("open('x')", "gives no number above 0"),
        ("M.real", "gives no number above 0"),
        ("(" * 300 + "M" + ")" * 300, "gives no number above 0"),
    ],
)
def test_what_is_no_formula_is_refused(formula: str, expected: str) -> None:
    """In one line; nothing of it is run."""
    with pytest.raises(UsageError) as refused:
        evaluate(formula, ARGUMENTS)
    assert expected in str(refused.value)
