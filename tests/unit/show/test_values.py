"""How values are written on the command line and in Python."""

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileyard.base.errors import UsageError
from tileyard.base.model import Span, Value
from tileyard.show.values import (
    parse_bytes,
    parse_count,
    parse_duration_s,
    parse_pairs,
    parse_share,
    parse_value,
    read_choices,
    read_names,
    read_path,
    read_time_s,
    read_values,
)


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
    """Numbers and booleans are not text."""
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
    [
        ("7", 7),
        ("2KiB", 2048),
        ("8GiB", 8 << 30),
        ("10G", 10 << 30),
        ("10GB", 10 << 30),
        ("1 T", 1 << 40),
    ],
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
    with pytest.raises(UsageError, match=expected):
        parse_pairs(items, "--arg")


def test_a_path_is_not_a_dash() -> None:
    """A text is refused; a Path of this name is a file's."""
    with pytest.raises(UsageError, match=r"--png takes a path, and - is none"):
        read_path("-", "--png")
    assert read_path(Path("-")) == read_path("./-") == str(Path.cwd() / "-")


def test_counts() -> None:
    """A count is at least 1, and an error names the option."""
    expected = 4
    assert parse_count("4", "--group-size") == expected
    for text in ("0", "-1", "many", "1.5"):
        with pytest.raises(UsageError, match="--group-size"):
            parse_count(text, "--group-size")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["block=32,64", "warp=true"], {"block": (32, 64), "warp": (True,)}),
        ("block=32,64", {"block": (32, 64)}),
        ({"block": [32, 64], "warp": True}, {"block": (32, 64), "warp": (True,)}),
        ({"block": np.array([32, 64]), "dtype": "a,b"}, {"block": (32, 64), "dtype": ("a,b",)}),
        ({"block": (n for n in (1, 2))}, {"block": (1, 2)}),
        (None, {}),
        (["block=16..64:16,100", "n=1..3"], {"block": (16, 32, 48, 64, 100), "n": (1, 2, 3)}),
        (["block=16..60:16"], {"block": (16, 32, 48)}),
        (["block=pow2:16..128", "n=-1..1"], {"block": (16, 32, 64, 128), "n": (-1, 0, 1)}),
        (["file=a..b,../x"], {"file": ("a..b", "../x")}),
        ({"block": range(16, 65, 16)}, {"block": (16, 32, 48, 64)}),
        ({"block": range(0)}, {"block": ()}),
    ],
)
def test_choices(given: Any, expected: dict[str, tuple[Value, ...]]) -> None:  # noqa: ANN401 - any form
    """A text has several values where it has commas, and a value of Python only where it is a list."""
    found = read_choices(given)
    assert found == expected
    assert all(type(one) in (bool, int, str) for values in found.values() for one in values)


def test_a_long_range_is_not_listed() -> None:
    """On the command line and in Python."""
    expected = Span(first=16, last=1000000000, step=16)
    assert read_choices(["n=16..1000000015:16"]) == {"n": expected}
    assert read_choices({"n": range(16, 10**9 + 1, 16)}) == {"n": expected}
    assert (len(expected), expected.numbers[-1]) == (62500000, 10**9)
    down = read_choices({"n": range(10**6, 0, -3)})["n"]
    assert isinstance(down, Span)
    assert down.numbers == range(10**6, 0, -3)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("n=4..1", "--config n=4..1 has no value: 4 is more than 1"),
        ("n=1..4:0", "--config n=1..4:0: the step is 0, which is less than 1"),
        ("n=pow2:3..8", "--config n=pow2:3..8: powers of two from 3 to 8: 3 is not a power of two"),
        ("n=pow2:8..4", "--config n=pow2:8..4: powers of two from 8 to 4: there is none"),
        ("n=pow2:1..8:2", "--config n=pow2:1..8:2: powers of two take no step"),
        (
            "n=1..9999999,3",
            "--config n=1..9999999,3 lists too many values (give a long range alone)",
        ),
        (
            "n=1..99999999999999999999",
            "--config n=1..99999999999999999999: range(1, 100000000000000000000) has",
        ),
        ("n=1,,2", "--config n=1,,2 has an empty value"),
        (
            "n=8,16..",
            "--config n=16.. is not a complete range of whole numbers (a range is 16..256, 16..256:16 for "
            "every 16th number, or pow2:16..256)",
        ),
        ("n=pow2:16", "--config n=pow2:16 is not a complete range"),
        ("n=1.5..3", "--config n=1.5..3 is not a complete range"),
        ("n=x..3", "--config n=x..3 is not a complete range"),
    ],
)
def test_wrong_ranges_are_refused(given: str, expected: str) -> None:
    """In one line with the value."""
    with pytest.raises(UsageError) as refused:
        read_choices([given])
    assert str(refused.value).startswith(expected)


NOISE = st.text("0123456789.:-x /", max_size=4)


@given(
    st.builds("{}..{}".format, st.integers(-9, 99), NOISE)
    | st.builds("{}..{}".format, NOISE, st.integers(-9, 99))
    | st.builds("pow2:{}".format, NOISE)
)
def test_no_part_of_a_range_is_a_text(value: str) -> None:
    """It would be tried as a value of the parameter: a range has whole numbers, or is refused."""
    with contextlib.suppress(UsageError):
        (values,) = read_choices([f"n={value}"]).values()
        assert isinstance(values, Span) or {type(one) for one in values} == {int}


def test_plain_values_of_python() -> None:
    """Seconds, bytes and shares are numbers, names one or several; a value that is no plain one is named."""
    assert read_time_s(90, "--budget") == read_time_s("1.5m", "--budget") == 90.0
    assert parse_bytes(1 << 30) == parse_bytes("1GiB")
    assert parse_share(0.02) == pytest.approx(parse_share("2%"))
    assert (read_names("cpu"), read_names(["a", "b"]), read_names(None)) == (
        ("cpu",),
        ("a", "b"),
        (),
    )
    assert read_values({"M": np.int64(3)}, "--arg") == {"M": 3}
    for wrong, expected in (
        ({"M": object()}, "--arg M: "),
        ({3: 1}, "--arg has 3, which is not a name"),
    ):
        with pytest.raises(UsageError, match=expected):
            read_values(wrong, "--arg")
    for time in (float("nan"), -1.0, float("inf")):
        with pytest.raises(UsageError, match=r"--budget: .* is not a number of seconds"):
            read_time_s(time, "--budget")
