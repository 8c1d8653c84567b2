"""Lock files as the keeper sees them."""

import os
from pathlib import Path

import pytest

from tileyard.processes.keeper.locks import Lock
from tileyard.processes.keeper.report import RefusedError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """An empty lock file."""
    path = tmp_path / "cpu-0.lock"
    path.touch()
    return path


def test_a_new_file_has_no_lease(path: Path) -> None:
    """An empty file stands for number 0 and no tree."""
    lock = Lock(str(path))
    expected = (0, "")
    assert lock.read() == expected
    lock.close()


def test_a_record_is_read_back_and_never_grows(path: Path) -> None:
    """Number and token survive, and every record has the same length."""
    lock = Lock(str(path))
    lock.write(7, "0123456789abcdef")
    size = path.stat().st_size
    assert lock.read() == (7, "0123456789abcdef")
    lock.write(10**17, "")
    assert lock.read() == (10**17, "")
    assert path.stat().st_size == size
    lock.close()


def test_only_one_can_hold_it(path: Path) -> None:
    """A second holder is refused until the first has closed the file."""
    first, second = Lock(str(path)), Lock(str(path))
    assert first.try_take()
    assert not second.try_take()
    first.close()
    assert second.try_take()
    second.close()


def test_a_replaced_file_is_opened_anew(path: Path) -> None:
    """Whoever opened the file before it was replaced ends up with the lock on the new one."""
    old, new = Lock(str(path)), Lock(str(path))
    path.unlink()
    path.touch()
    assert new.try_take()
    assert not old.try_take()
    old.close()
    new.close()


@pytest.mark.parametrize("content", ["hello", "-3 x", "9" * 30, "\N{SUPERSCRIPT TWO}"])
def test_a_file_without_a_number_is_refused(path: Path, content: str) -> None:
    """Lease numbers only grow: an unreadable one is not taken for 0."""
    path.write_text(content, encoding="utf-8")
    lock = Lock(str(path))
    with pytest.raises(RefusedError) as caught:
        lock.read()
    assert caught.value.step == "number"
    lock.close()


def test_links_and_pipes_are_refused(path: Path, tmp_path: Path) -> None:
    """What someone else may have planted is never locked or written."""
    link, twin, pipe = tmp_path / "link", tmp_path / "twin", tmp_path / "pipe"
    link.symlink_to(path)
    with pytest.raises(OSError, match="symbolic links"):
        Lock(str(link))
    os.link(path, twin)
    os.mkfifo(pipe)
    for planted in (path, twin, pipe):
        with pytest.raises(RefusedError) as caught:
            Lock(str(planted))
        assert caught.value.step == "planted"
