"""Errors cross process borders and ``with`` blocks unchanged."""

import contextlib
import inspect
import pickle

import pytest

from tileyard.base import errors
from tileyard.base.errors import TileyardError

KINDS = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, TileyardError)
]


@pytest.mark.parametrize("kind", KINDS)
def test_errors_survive_pickling(kind: type[TileyardError]) -> None:
    """Every class comes back with its fields."""
    error = kind("a message", "a hint")
    again = pickle.loads(pickle.dumps(error))
    expected = (kind, "a message (a hint)", "a hint")
    assert (type(again), str(again), again.hint) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_errors_pass_through_with_blocks(kind: type[TileyardError]) -> None:
    """Every class can be raised through a context manager, which sets its traceback."""

    @contextlib.contextmanager
    def block() -> object:  # type: ignore[misc]  # a plain generator
        yield

    expected = "a message"
    with pytest.raises(kind, match=expected), block():
        raise kind("a message")


def test_codes_are_unique() -> None:
    """A code names one class."""
    codes = [kind.code for kind in KINDS]
    expected = sorted(set(codes))
    assert sorted(codes) == expected
