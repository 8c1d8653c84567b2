"""Constraints as text: what they say of one point, and what is refused."""

import pytest

from tileyard.base.errors import UsageError
from tileyard.base.model import Value
from tileyard.frontend.constraints import (
    Const,
    Constraint,
    check_kinds,
    evaluate,
    evaluate_formula,
    limit_to_active,
    put_constants,
    read_constraint,
    spell,
)

ARGUMENTS: dict[str, Value] = {"M": 4, "N": 8, "dtype": "float16"}
VALUES: dict[str, Value] = {
    "bm": 64,
    "bn": 32,
    "tma": False,
    "dtype": "float16",
    "zero": 0,
    "x": 0.5,
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bm * bn <= 2048", True),
        ("bm * bn < 2048", False),
        ("not tma or bn > 64", True),
        ("16 <= bm <= 64 < 65", True),
        ("16 <= bm < 64", False),
        ("bm in (32, 64) and dtype in ['float16', 'bfloat16'] and bm not in {1}", True),
        ("dtype == 'float16'", True),
        ("min(bm, bn) + max(bm, bn, 100) == 132 and abs(-bm) == +64", True),
        ("bm // 10 == 6 and bm % 10 == 4 and bm / 128 == x and -bm // 10 == -7", True),
        ("bm", True),
        ("zero", False),
        ("dtype", False),
        ("bm % zero == 0", False),
        ("zero == 0 or bm % zero == 0", True),
        ("bm % zero == 0 or zero == 0", True),
        ("not (bm % zero == 0)", False),
        ("dtype < 3", False),
        ("dtype == 3", False),
        ("dtype == None", False),
        ("bm % 64 == 0 and bn % zero == 0", False),
    ],
)
def test_a_constraint_of_one_point(text: str, expected: bool) -> None:
    """As Python has it; undefined is not true, unless the other side of an ``or`` decides."""
    constraint = read_constraint(text)
    assert constraint.accepts(VALUES) is expected
    known = put_constants(constraint.expr, VALUES)
    assert isinstance(known, Const)
    assert Constraint(text, known).accepts({}) is expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a constraint is empty"),
        ("bm <=", "constraint 'bm <=': invalid syntax, at column "),
        ("bm <= 3; import os", "invalid syntax"),
        ("bm ** 2 < 9", "'bm ** 2' is not supported, at column 1"),
        ("1 < __import__('os').getpid()", "is not supported, at column 5"),
        ("(lambda: 1)()", "is not supported"),
        ("bm.bit_length() > 2", "'bm.bit_length()' is not supported"),
        ("bm[0] == 1", "is not supported"),
        ("bm in values", "is not supported"),
        ("bm is None", "is not supported"),
        ("min() < 3", "is not supported"),
        ("abs(bm, bn) < 3", "is not supported"),
        ("min(*bm) < 3", "is not supported"),
        ("bm == 3j", "is not supported"),
        ("f'{bm}' == '3'", "is not supported"),
        ("+" * 200 + "bm", "is nested too deeply"),
        ("(" * 5000 + "bm" + ")" * 5000, "constraint '"),
    ],
)
def test_what_is_not_in_the_language_is_refused(text: str, message: str) -> None:
    """In one line, with the part and its place."""
    with pytest.raises(UsageError) as refused:
        read_constraint(text)
    assert message in refused.value.message
    assert "\n" not in refused.value.message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dtype * 2 < 3", "dtype is a text, and * takes numbers"),
        ("dtype or bm", "dtype is a text, and neither true nor false"),
        ("dtype < bm", "< cannot compare dtype (text) and bm (number)"),
        ("bm < 'a'", "< cannot compare bm (number) and 'a' (text)"),
    ],
)
def test_operations_that_no_value_has_are_refused(text: str, message: str) -> None:
    """With the operation; what some values have is no mistake."""
    kinds = {"dtype": frozenset({"text"}), "bm": frozenset({"number"})}
    constraint = read_constraint(text)
    with pytest.raises(UsageError, match="constraint ") as refused:
        check_kinds(constraint, constraint.expr, kinds)
    assert message in refused.value.message
    check_kinds(constraint, constraint.expr, dict.fromkeys(kinds, frozenset({"number", "text"})))


def test_a_constraint_does_not_apply_to_what_does_not_count() -> None:
    """Where a parameter that it names is not active, by its own condition or by that of another."""
    conditions = {"box": read_constraint("tma"), "swizzle": read_constraint("box > 64")}
    expr = limit_to_active(read_constraint("swizzle < 4"), conditions)
    for tma, box, swizzle, expected in (
        (True, 128, 2, True),
        (True, 128, 8, False),
        (True, 64, 8, True),
        (False, 128, 8, True),
    ):
        assert evaluate(expr, {"tma": tma, "box": box, "swizzle": swizzle}) is expected
    turning = {"a": read_constraint("b"), "b": read_constraint("c"), "c": read_constraint("b > 1")}
    with pytest.raises(UsageError, match="when 'b > 1': whether c counts depends on itself"):
        limit_to_active(read_constraint("a < 4"), turning)


def test_a_part_is_spelled_for_messages() -> None:
    """So that it can be read again."""
    text = "not (bm + 1) * -bn in (1, 'a') and min(bm, bn) <= 3"
    once = spell(read_constraint(text).expr)
    assert spell(read_constraint(once).expr) == once


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
    assert evaluate_formula("--flops", formula, ARGUMENTS) == expected


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
        evaluate_formula("--flops", formula, ARGUMENTS)
    assert expected in str(refused.value)
