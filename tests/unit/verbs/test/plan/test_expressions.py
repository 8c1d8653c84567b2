"""Expressions of names: what they select, and which are refused."""

import pytest

from tileyard.base.errors import UsageError
from tileyard.verbs.test.plan.expressions import is_expression, select

NAMES = {"a": "123", "b": "2", "c/x-*": "34", "7[f]": "5"}
EVERY = frozenset("12345")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("not b", "1345"),
        ("a and not b", "13"),
        ("a or c/x-*", "1234"),
        ("a and b or c/x-*", "234"),
        ("a and (b or c/x-*)", "23"),
        ("not (a or 7[f])", "4"),
        ("  ( not a )and(c/x-*)  ", "4"),
        ("a and\tnot not b", "2"),
    ],
)
def test_names_are_joined_as_in_python(text: str, expected: str) -> None:
    """Whatever characters they hold."""
    found = select(text, EVERY, lambda name: frozenset(NAMES[name]))
    assert is_expression(text)
    assert found == frozenset(expected)


@pytest.mark.parametrize(
    "text", ["a b", "a and", "and a", "a or or b", "(a or b", "a ()", "a (b)", "not ", "() or a"]
)
def test_what_is_no_expression_is_refused(text: str) -> None:
    """In one line that shows what one looks like."""
    with pytest.raises(UsageError, match="is not an expression of names with and, or, not"):
        select(text, EVERY, lambda name: frozenset(NAMES[name]))


@pytest.mark.parametrize("text", ["not " * 50_000 + "a", "(" * 5_000 + "a" + ")" * 5_000])
def test_what_is_nested_too_deep_is_refused(text: str) -> None:
    """And ends nothing else."""
    with pytest.raises(UsageError, match="is not an expression of names"):
        select(text, EVERY, lambda name: frozenset(NAMES[name]))
