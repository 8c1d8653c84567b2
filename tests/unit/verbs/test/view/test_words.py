"""Reports are written whole or not at all; logs are quoted from their ends."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tileyard.base.errors import UsageError
from tileyard.verbs.test.view.words import Report, read_tail, write_atomically


def test_a_report_that_fails_leaves_the_one_before(tmp_path: Path) -> None:
    """What breaks in the middle of writing changes nothing and leaves nothing behind."""

    def half() -> Iterator[bytes]:
        yield b"half"
        raise ZeroDivisionError

    path = tmp_path / "report.xml"
    path.write_bytes(b"before")
    with pytest.raises(ZeroDivisionError):
        write_atomically(path, half())
    expected = b"before"
    assert path.read_bytes() == expected
    assert list(tmp_path.iterdir()) == [path]


def test_a_report_may_lie_in_a_new_folder(tmp_path: Path) -> None:
    """Folders above it are made, and it can be read by whom the umask lets."""
    path = tmp_path / "out" / "junit" / "report.xml"
    before = os.umask(0o022)
    try:
        write_atomically(path, (b"a", b"b"))
    finally:
        os.umask(before)
    expected = (b"ab", 0o644)
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == expected


def test_a_report_that_cannot_be_written_is_the_users_to_fix(tmp_path: Path) -> None:
    """The message names the path and the reason."""
    path = tmp_path / "file" / "report.xml"
    path.parent.write_bytes(b"")
    expected = f"cannot write {path}: "
    with pytest.raises(UsageError, match=expected):
        write_atomically(path, (b"",))


def test_a_report_has_its_room_before_it_is_written(tmp_path: Path) -> None:
    """Nobody sees it by then; and what is written has its own length."""
    path = tmp_path / "report.xml"
    path.write_bytes(b"before")
    with Report(path) as report:
        report.reserve(100_000)
        (draft,) = set(tmp_path.iterdir()) - {path}
        assert 512 * draft.stat().st_blocks >= 100_000
        assert path.read_bytes() == b"before"
        report.write((b"after", b"wards"))
    expected = b"afterwards"
    assert path.read_bytes() == expected
    assert list(tmp_path.iterdir()) == [path]


def test_a_report_that_is_never_written_leaves_the_one_before(tmp_path: Path) -> None:
    """Its draft goes with what it was to report."""
    path = tmp_path / "report.xml"
    path.write_bytes(b"before")

    def fail() -> None:
        with Report(path) as report:
            report.reserve(100_000)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_tail_begins_with_a_whole_line(tmp_path: Path) -> None:
    """It says how much comes before it, and where."""
    log = tmp_path / "case.log"
    log.write_bytes(b"one\ntwo\nthree\n")
    expected = f"(8 bytes before this are in {log})\nthree\n"
    assert read_tail(log, 8) == expected
    assert read_tail(log, 100) == "one\ntwo\nthree\n"


def test_one_line_that_is_too_long_is_quoted_from_its_middle(tmp_path: Path) -> None:
    """There is no whole line to begin with."""
    log = tmp_path / "case.log"
    log.write_bytes(b"x" * 100)
    expected = f"(90 bytes before this are in {log})\n" + "x" * 10
    assert read_tail(log, 10) == expected


def test_a_tail_is_text_without_terminal_codes(tmp_path: Path) -> None:
    """Colours, cursor movements and titles are gone; bytes that are not text are marked."""
    log = tmp_path / "case.log"
    log.write_bytes(b"\x1b[1;31mred\x1b[0m \x1b]0;title\x07\xff\x1b(Bend\n")
    expected = "red \ufffdend\n"
    assert read_tail(log, 100) == expected


def test_no_log_has_no_tail(tmp_path: Path) -> None:
    """A log that is gone, or no file, is not an error."""
    expected = ""
    assert read_tail(tmp_path / "none", 10) == expected
    assert read_tail(tmp_path, 10) == expected
