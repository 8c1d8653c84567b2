"""Files that several users share: complete, locked and unforgeable, or not there."""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileyard.processes.keeper import files
from tileyard.processes.keeper.files import (
    escape,
    format_lines,
    is_locked,
    open_seen,
    parse_lines,
    publish,
    remove_drafts,
    unescape,
    wait_unlocked,
)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    """An open folder."""
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


@given(st.binary(max_size=60))
def test_any_bytes_survive_as_plain_text(data: bytes) -> None:
    """Commands and names of any bytes come back, and disturb neither lines nor words."""
    expected = os.fsdecode(data)
    text = escape(expected)
    assert text.isascii()
    assert text.isprintable()
    assert " " not in text
    assert os.fsencode(unescape(text)) == os.fsencode(expected)


def test_lines_are_read_back() -> None:
    """Keys may be repeated and values may hold spaces; what was cut short is refused."""
    expected = [("choice", "a b c"), ("choice", "d"), ("state", "")]
    assert parse_lines(format_lines(expected)) == expected
    with pytest.raises(ValueError, match="cut short"):
        parse_lines(format_lines(expected)[:-1])


def test_a_file_is_there_only_when_it_is_whole_and_locked(folder: int, tmp_path: Path) -> None:
    """Others can read it, and see that its owner lives, until the owner lets go of it."""
    fd = publish(folder, "one", b"content\n")
    seen = open_seen(folder, "one")
    assert seen is not None
    expected = [("content", "")]
    assert seen.read() == expected
    assert is_locked(seen.fd)
    assert stat.S_IMODE((tmp_path / "one").stat().st_mode) == 0o644
    assert [path.name for path in tmp_path.iterdir()] == ["one"]
    os.close(fd)
    assert not is_locked(seen.fd)
    wait_unlocked(seen.fd)
    os.close(seen.fd)


def test_a_name_that_is_taken_is_not_replaced(folder: int, tmp_path: Path) -> None:
    """Not even where it is a link or a pipe that somebody planted; and nothing is left over."""
    (tmp_path / "file").write_text("theirs", encoding="ascii")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe")
    before = sorted(path.name for path in tmp_path.iterdir())
    for name in before:
        with pytest.raises(FileExistsError):
            publish(folder, name, b"ours\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert (tmp_path / "file").read_text(encoding="ascii") == "theirs"


def test_who_only_reads_can_neither_lock_nor_delay(folder: int) -> None:
    """A reader's own lock is not taken for the owner's, and does not keep others waiting."""
    owner = publish(folder, "one", b"content\n")
    os.close(owner)
    reader, other = open_seen(folder, "one"), open_seen(folder, "one")
    assert reader is not None
    assert other is not None
    wait_unlocked(reader.fd)  # holds what it waited for
    assert not is_locked(other.fd)
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        files.lock_for_writing(reader.fd)
    os.close(reader.fd)
    os.close(other.fd)


def test_links_pipes_and_writable_files_are_not_looked_at(folder: int, tmp_path: Path) -> None:
    """What somebody planted is as good as absent, and nobody waits for a pipe."""
    (tmp_path / "file").touch(mode=0o600)
    (tmp_path / "link").symlink_to(tmp_path / "file")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "open").touch()
    (tmp_path / "open").chmod(0o666)
    for name in ("link", "pipe", "folder", "open", "missing"):
        assert open_seen(folder, name) is None, name


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\n", b"x" * 70_000, b"no end"])
def test_what_is_not_ours_is_told_by_its_content(
    folder: int, tmp_path: Path, content: bytes
) -> None:
    """Empty, foreign, huge and cut files are refused, not read."""
    (tmp_path / "file").write_bytes(content)
    (tmp_path / "file").chmod(0o600)
    seen = open_seen(folder, "file")
    assert seen is not None
    with pytest.raises(ValueError, match=r"not of ours|cut short|codec"):
        seen.read()
    os.close(seen.fd)


def test_a_write_that_falls_short_leaves_nothing(
    folder: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a file is an error of the disk, and is taken away."""
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:3]))
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        publish(folder, "one", b"content\n")
    assert list(tmp_path.iterdir()) == []


def test_drafts_of_the_dead_are_taken_away(
    folder: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a killed process had begun goes; what a living one is making stays."""
    (tmp_path / ".dead.1").touch(mode=0o600)
    alive = os.open(tmp_path / ".alive.2", os.O_RDWR | os.O_CREAT, 0o600)
    files.lock_for_writing(alive)
    (tmp_path / "other").touch()
    monkeypatch.setattr(files, "DRAFT_NS", 10**12)
    remove_drafts(folder, os.listdir(folder))
    assert (tmp_path / ".dead.1").exists()  # it may have been made just now
    monkeypatch.setattr(files, "DRAFT_NS", -1)
    remove_drafts(folder, os.listdir(folder))
    expected = [".alive.2", "other"]
    assert sorted(path.name for path in tmp_path.iterdir()) == expected
    os.close(alive)
