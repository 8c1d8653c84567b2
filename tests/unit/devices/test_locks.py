"""The directory of device locks can be shared, and is checked before it is trusted."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tileyard.base.errors import UsageError
from tileyard.base.model import Device
from tileyard.devices.locks import prepare_locks


@pytest.fixture(autouse=True)
def _strict_umask() -> Iterator[None]:
    """A umask that would keep others out, if it were heeded."""
    before = os.umask(0o077)
    yield
    os.umask(before)


def device(*locks: Path) -> Device:
    """A device with these lock files."""
    return Device(name="cpu:0", kind="cpu", identity="", locks=tuple(map(str, locks)))


def mode(path: Path) -> int:
    """The permission bits."""
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root serves all users")
def test_directory_and_folders_are_made_for_everyone(tmp_path: Path) -> None:
    """Root's can be entered by all, and its folders are sticky and shared."""
    folder = tmp_path / "locks"
    prepare_locks(device(folder / "cpu-0.lock", folder / "cpu-1.lock"))
    expected = dict.fromkeys(("requests", "leases", "quarantine", "log"), 0o1777)
    assert mode(folder) == 0o755
    assert {path.name: mode(path) for path in folder.iterdir()} == expected


def test_what_is_there_is_kept(tmp_path: Path) -> None:
    """Preparing again replaces nothing."""
    path = tmp_path / "locks" / "cpu-0.lock"
    prepare_locks(device(path))
    record = tmp_path / "locks" / "leases" / "cpu-0.41"
    record.touch()
    prepare_locks(device(path))
    assert record.exists()


def test_a_directory_of_ones_own_will_do(tmp_path: Path) -> None:
    """TILEYARD_LOCK_DIR may be private: then only its owner shares devices with themselves."""
    folder = tmp_path / "locks"
    folder.mkdir(mode=0o700)
    prepare_locks(device(folder / "cpu-0.lock"))
    assert {mode(folder), mode(folder / "leases")} == {0o700}


def test_a_directory_that_cannot_be_made_says_what_to_do(tmp_path: Path) -> None:
    """The error names the directory and the variable."""
    folder = tmp_path / "missing" / "locks"
    with pytest.raises(UsageError, match=rf"{folder}.*No such file.*TILEYARD_LOCK_DIR"):
        prepare_locks(device(folder / "cpu-0.lock"))


def test_a_directory_that_anyone_can_rearrange_is_refused(tmp_path: Path) -> None:
    """Without the sticky bit any user could remove a lock that is held."""
    folder = tmp_path / "locks"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(UsageError, match="not sticky"):
        prepare_locks(device(folder / "cpu-0.lock"))


def test_a_link_for_a_directory_is_refused(tmp_path: Path) -> None:
    """Whoever owns a link can lead different users to different locks."""
    folder = tmp_path / "locks"
    folder.symlink_to(tmp_path, target_is_directory=True)
    with pytest.raises(UsageError, match="is a link"):
        prepare_locks(device(folder / "cpu-0.lock"))


@pytest.mark.parametrize("name", ["requests", "leases", "quarantine"])
def test_planted_folders_are_refused(tmp_path: Path, name: str) -> None:
    """A link or a pipe in place of a folder is not used."""
    folder = tmp_path / "locks"
    folder.mkdir(mode=0o700)
    (folder / name).symlink_to(tmp_path)
    with pytest.raises(UsageError, match=f"{name}: .*is a link or a file"):
        prepare_locks(device(folder / "cpu-0.lock"))
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(UsageError, match=f"{name}: .*is a link or a file"):
        prepare_locks(device(folder / "cpu-0.lock"))


def test_a_relative_directory_is_refused() -> None:
    """It would not mean the same to every process."""
    with pytest.raises(UsageError, match="absolute path"):
        prepare_locks(device(Path("locks") / "cpu-0.lock"))
