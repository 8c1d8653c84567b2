"""Decoding of JSON and TOML that may be anything."""

import os
from pathlib import Path

import msgspec
import pytest

from tileyard.base.decoding import DEEPEST, decode_json, decode_toml, draft_of

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


def write(path: Path, data: bytes = b"new") -> None:
    """Write a file as reports are written."""
    with draft_of(path) as file:
        file.write(data)


def test_what_is_no_plain_file_is_written_to_as_it_is(tmp_path: Path) -> None:
    """A pipe stays a pipe, also behind a link, as /dev/stdout is one."""
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    for path in (pipe, link):
        write(path)
        expected = b"new"
        assert os.read(reader, 100) == expected
    os.close(reader)
    assert pipe.is_fifo()
    assert link.is_symlink()
    reader, writer = os.pipe()  # which has no name in any folder
    write(Path(f"/proc/self/fd/{writer}"))
    assert os.read(reader, 100) == expected
    os.close(reader)
    os.close(writer)


def test_a_link_of_ones_own_leads_to_the_file(tmp_path: Path) -> None:
    """It stays, and what it names is replaced."""
    link = tmp_path / "link"
    link.symlink_to("file")
    write(link)
    expected = b"new"
    assert (tmp_path / "file").read_bytes() == expected
    assert link.is_symlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_link_of_another_user_is_refused(tmp_path: Path) -> None:
    """It could name any file of this user's."""
    precious, link = tmp_path / "precious", tmp_path / "link"
    precious.write_bytes(b"mine")
    link.symlink_to(precious)
    os.chown(link, 65534, 65534, follow_symlinks=False)
    with pytest.raises(PermissionError, match="link of another user"):
        write(link)
    expected = b"mine"
    assert precious.read_bytes() == expected
