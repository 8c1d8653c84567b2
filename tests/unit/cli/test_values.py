"""How values are written on the command line."""

import pytest
import typer

from tileyard.cli.values import (
    parse_bytes,
    parse_count,
    parse_duration_s,
    parse_pairs,
    parse_value,
)
from tileyard.errors import UsageError
from tileyard.model import Value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3", 3),
        ("-2", -2),
        ("0.5", 0.5),
        ("1e-3", 1e-3),
        ("true", True),
        ("False", False),
        ("float16", "float16"),
        ("", ""),
    ],
)
def test_values(text: str, expected: Value) -> None:
    """Numbers and booleans are told from text."""
    found = parse_value(text)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90", 90.0), ("500ms", 0.5), ("60s", 60.0), ("5m", 300.0), ("1.5h", 5400.0)],
)
def test_durations(text: str, expected: float) -> None:
    """Durations come with the usual units."""
    assert parse_duration_s(text) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("7", 7), ("2KiB", 2048), ("8GiB", 8 << 30), ("10G", 10 << 30), ("1 T", 1 << 40)],
)
def test_sizes(text: str, expected: int) -> None:
    """Sizes come with binary units."""
    assert parse_bytes(text) == expected


@pytest.mark.parametrize("text", ["soon", "-1s", "5 weeks", ""])
def test_wrong_durations_are_refused(text: str) -> None:
    """What is not a duration is named."""
    expected = "is not a duration"
    with pytest.raises(UsageError, match=expected):
        parse_duration_s(text)


@pytest.mark.parametrize("items", [["M"], ["=3"], ["M="], ["M=1", "M=2"]])
def test_wrong_pairs_are_refused(items: list[str]) -> None:
    """KEY=VALUE needs both, once."""
    expected = "--arg"
    with pytest.raises(typer.BadParameter, match=expected):
        parse_pairs(items, "--arg")


def test_counts() -> None:
    """A count is at least 1, and an error names the option."""
    expected = 4
    assert parse_count("4", "--group-size") == expected
    for text in ("0", "-1", "many", "1.5"):
        with pytest.raises(typer.BadParameter, match="--group-size"):
            parse_count(text, "--group-size")
