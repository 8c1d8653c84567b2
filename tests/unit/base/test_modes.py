"""What is made is as open as the folder in which it is made, whatever the umask."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tileyard.base.modes import make_folder, open_file, write_file


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """What the user's process has."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize(
    ("mode", "of_files"), [(0o700, 0o600), (0o755, 0o644), (0o2770, 0o660), (0o1777, 0o666)]
)
def test_all_follows_the_folder(tmp_path: Path, mode: int, of_files: int) -> None:
    """Folders as deep as they may be, and files; group and sticky bit included."""
    tmp_path.chmod(mode)
    inner = tmp_path / "a" / "b"
    make_folder(inner)
    make_folder(inner)
    assert inner.stat().st_mode & 0o7777 == mode
    write_file(inner / "file", b"")
    assert (inner / "file").stat().st_mode & 0o777 == of_files


def test_what_is_no_file_keeps_its_mode(tmp_path: Path) -> None:
    """A log may be a device or a pipe."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    tmp_path.chmod(0o777)
    os.close(open_file(pipe, os.O_RDWR | os.O_CREAT))
    assert pipe.stat().st_mode & 0o777 == 0o600


def test_a_file_in_the_way_is_an_error(tmp_path: Path) -> None:
    """A folder cannot be made there."""
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        make_folder(tmp_path / "file")
