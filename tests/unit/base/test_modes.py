"""What is made is as open as the folder in which it is made, whatever the umask; and a path is
trusted if nobody but root and this user can change what it names.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tileyard.base.modes import find_stranger, make_folder, open_file, write_file


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


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
STRANGER = 65534


def test_what_is_ones_own_is_trusted(tmp_path: Path) -> None:
    """So is what does not exist yet, below a sticky folder such as /tmp."""
    assert find_stranger(tmp_path) == ""
    assert find_stranger(tmp_path / "new" / "folder") == ""


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_what_others_may_write_to_is_not(tmp_path: Path, mode: int) -> None:
    """The path itself, sticky or not: anybody could add something to it."""
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(mode)
    assert find_stranger(folder) == f"others may write to {folder}"


def test_folders_above_it_may_be_sticky(tmp_path: Path) -> None:
    """Nobody else can replace what lies in one; without the sticky bit anybody can."""
    folder = tmp_path / "open"
    (folder / "mine").mkdir(parents=True)
    folder.chmod(0o1777)
    assert find_stranger(folder / "mine") == ""
    folder.chmod(0o777)
    assert find_stranger(folder / "mine") == f"others may write to {folder}"


@needs_root
@pytest.mark.parametrize("part", ["a", "a/b", "a/b/c.toml"])
def test_each_part_of_the_way_counts(tmp_path: Path, part: str) -> None:
    """Who owns a folder can replace what lies in it, whoever owns that."""
    path = tmp_path / "a" / "b" / "c.toml"
    path.parent.mkdir(parents=True)
    path.touch()
    os.chown(tmp_path / part, STRANGER, STRANGER)
    assert find_stranger(path) == f"{tmp_path / part} belongs to another user (uid {STRANGER})"


@needs_root
def test_links_are_followed_and_judged(tmp_path: Path) -> None:
    """One of a stranger's leads wherever they like; one's own to a stranger's folder is no better."""
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", STRANGER, STRANGER)
    (tmp_path / "way").symlink_to("theirs/../theirs")
    assert "/theirs belongs to another user" in find_stranger(tmp_path / "way" / "x")
    (tmp_path / "way").unlink()
    (tmp_path / "mine").mkdir()
    (tmp_path / "way").symlink_to("./mine")
    assert find_stranger(tmp_path / "way" / "x") == ""
    os.chown(tmp_path / "way", STRANGER, STRANGER, follow_symlinks=False)
    assert "/way belongs to another user" in find_stranger(tmp_path / "way" / "x")
    (tmp_path / "circle").symlink_to("circle")
    assert "circle of links" in find_stranger(tmp_path / "circle")


@needs_root
@pytest.mark.parametrize(("group", "is_trusted"), [("root", True), ("daemon", False)])
def test_a_group_without_other_members_may_write(
    tmp_path: Path, group: str, is_trusted: bool
) -> None:
    """Where each user has a group of their own, folders are often open to it; other groups have members."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o775)
    os.chown(folder, 0, {"root": 0, "daemon": 1}[group])
    assert (find_stranger(folder) == "") == is_trusted
