"""The lock directory belongs to root or to this user, and its folders to whom it belongs."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tileyard.processes.keeper.files import (
    FOLDERS,
    close_all,
    make_directory,
    open_directory,
    open_folders,
)
from tileyard.processes.keeper.report import RefusedError

STRANGER = 1001
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture(autouse=True)
def _strict_umask() -> Iterator[None]:
    """A umask that would keep others out, if it were heeded."""
    before = os.umask(0o077)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    """The permission bits."""
    return stat.S_IMODE(path.stat().st_mode)


def refusal(path: Path) -> str:
    """Why the directory or one of its folders is refused, empty if none is."""
    try:
        root = open_directory(str(path))
    except RefusedError as error:
        return error.step
    try:
        close_all(open_folders(root, str(path)))
    except RefusedError as error:
        return error.step
    finally:
        os.close(root)
    return ""


@as_root
def test_roots_directory_is_for_all(tmp_path: Path) -> None:
    """All can enter it, and add files to its folders, but take none of others away."""
    make_directory(str(tmp_path / "locks"))
    expected = {0o1777}
    assert {mode(tmp_path / "locks" / name) for name in FOLDERS} == expected
    assert mode(tmp_path / "locks") == 0o755
    assert refusal(tmp_path / "locks") == ""


@as_root
@pytest.mark.parametrize(("top", "folders"), [(0o1777, 0o1777), (0o1770, 0o1770), (0o700, 0o700)])
def test_folders_that_miss_are_made_for_those_who_can_enter(
    tmp_path: Path, top: int, folders: int
) -> None:
    """All users, a group, or nobody else, as root has made the directory itself."""
    tmp_path.chmod(top)
    os.chown(tmp_path, 0, STRANGER)
    assert refusal(tmp_path) == ""
    expected = {folders}
    assert {mode(tmp_path / name) for name in FOLDERS} == expected
    if folders == 0o1770:
        assert {(tmp_path / name).stat().st_gid for name in FOLDERS} == {STRANGER}


def test_a_directory_that_came_first_stays(tmp_path: Path) -> None:
    """Of several who make it one wins, and nothing is left of the others."""
    (tmp_path / "locks" / "leases").mkdir(parents=True, mode=0o700)
    make_directory(str(tmp_path / "locks"))
    expected = [tmp_path / "locks"]
    assert list(tmp_path.iterdir()) == expected
    assert list(expected[0].iterdir()) == [tmp_path / "locks" / "leases"]


@as_root
@pytest.mark.parametrize("name", ["", *FOLDERS])
def test_what_belongs_to_a_third_user_is_refused(tmp_path: Path, name: str) -> None:
    """Its owner could take a lease out of it while it is held."""
    path = tmp_path / "locks"
    make_directory(str(path))
    os.chown(path / name, STRANGER, STRANGER)
    expected = "foreign"
    assert refusal(path) == expected


@pytest.mark.parametrize("name", ["", *FOLDERS])
def test_what_anyone_can_rearrange_is_refused(tmp_path: Path, name: str) -> None:
    """Without the sticky bit everyone can take a lease out of it."""
    path = tmp_path / "locks"
    make_directory(str(path))
    (path / name).chmod(0o777)
    expected = "unsafe"
    assert refusal(path) == expected


@pytest.mark.parametrize("name", ["", *FOLDERS])
def test_links_and_pipes_are_refused(tmp_path: Path, name: str) -> None:
    """They could lead different users to different places, or nowhere."""
    path = tmp_path / "locks"
    make_directory(str(path))
    (path / name).rename(tmp_path / "moved")
    (path / name).symlink_to(tmp_path / "moved")
    assert refusal(path) == "planted"
    (path / name).unlink()
    os.mkfifo(path / name)
    expected = "planted"
    assert refusal(path) == expected
