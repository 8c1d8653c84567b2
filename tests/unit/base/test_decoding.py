"""Decoding of JSON and TOML that may be anything."""

import msgspec
import pytest

from tileyard.base.decoding import DEEPEST, decode_json, decode_toml

DEEP = 50_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[" * DEEP, "nested too deeply"),
        ('{"a":' * DEEP, "nested too deeply"),
        ("[" * (DEEPEST + 1) + "]" * (DEEPEST + 1), "nested too deeply"),
        ("", "truncated"),
    ],
)
def test_json_that_cannot_be_read(text: str, expected: str) -> None:
    """Whatever is wrong with JSON is one kind of error."""
    with pytest.raises(msgspec.DecodeError, match=expected):
        decode_json(text, object)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = " + "[" * DEEP, "nested too deeply"),
        ("x" + ".a" * 1000 + " = 1", "nested too deeply"),
        ("x" + ".a" * 1_000_000 + " = 1", "nested too deeply"),
        ("[x" + ".a" * 1_000_000 + "]", "nested too deeply"),
        ("x = " + "[" * DEEPEST + "]" * DEEPEST, "nested too deeply"),
        ("x = " + "1" * 5000, "digits"),
        ("x", "Expected"),
        (b"x = '\xff'", "UTF-8"),
    ],
)
def test_toml_that_cannot_be_read(text: str | bytes, expected: str) -> None:
    """Whatever is wrong with TOML is one kind of error."""
    with pytest.raises(msgspec.DecodeError, match=expected):
        decode_toml(text)


def test_what_can_be_read() -> None:
    """A document with a few levels is itself."""
    assert decode_json('[{"a": [1]}]', object) == [{"a": [1]}]
    assert decode_toml("a = { b = [[1]] }") == {"a": {"b": [[1]]}}
