"""What studies have decided: the latest counts, and files of it are read with care."""

from pathlib import Path

import msgspec
import pytest

from tileyard.base.errors import UsageError
from tileyard.base.model import TensorSpec
from tileyard.store.choices import (
    FILE_NAME,
    Choice,
    add_choices,
    as_python,
    decode_choices,
    encode_choices,
    list_choices,
)

FIRST = Choice(
    kernel="gemm",
    arguments={"M": 64},
    target="cpu",
    silicon="one",
    config={"block": 16},
    tensors=(TensorSpec(name="A", dtype="float32", shape=(64,), role="in"),),
    latency_ns=10.0,
)


def test_the_latest_choice_of_a_subject_counts(tmp_path: Path) -> None:
    """Other arguments, silicon and files are other subjects; a torn line hides no other."""
    later = msgspec.structs.replace(FIRST, config={"block": 32})
    other = msgspec.structs.replace(FIRST, silicon="two")
    named = msgspec.structs.replace(FIRST, kernel="rowsum")
    assert list_choices(tmp_path) == []
    add_choices(tmp_path, [FIRST, other])
    with (tmp_path / FILE_NAME).open("ab") as file:
        file.write(b'\n{"kernel": "ge')
    add_choices(tmp_path, [named, later])
    assert list_choices(tmp_path) == [later, other, named]
    assert list_choices(tmp_path, "rowsum") == [named]


def test_a_file_of_choices_comes_back() -> None:
    """As JSON for another home, and as a table for code."""
    assert decode_choices(encode_choices([FIRST]), "c.json") == (FIRST,)
    table: dict[str, object] = {}
    other = msgspec.structs.replace(FIRST, silicon="two", config={"block": 32})
    exec(as_python([FIRST, other]), table)
    assert table["CONFIGS"] == {
        ("cpu", "one"): {("gemm", (("M", 64),)): {"block": 16}},
        ("cpu", "two"): {("gemm", (("M", 64),)): {"block": 32}},
    }


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"{", "truncated"),
        (b'{"tileyard": "choices 2", "choices": []}', r"\$.tileyard"),
        (
            encode_choices([FIRST]).replace(b'"latency_ns": 10.0', b'"latency_ns": "x"'),
            "latency_ns",
        ),
    ],
)
def test_what_is_no_file_of_choices_is_named(data: bytes, says: str) -> None:
    """The file, and the key that is wrong."""
    with pytest.raises(UsageError, match=f"c.json is not a file of choices: .*{says}"):
        decode_choices(data, "c.json")
