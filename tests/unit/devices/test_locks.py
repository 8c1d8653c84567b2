"""The directory of device locks can be shared, and is checked before it is trusted."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tileyard.devices.locks import prepare_locks
from tileyard.errors import UsageError
from tileyard.model import Device
from tileyard.processes.keeper.locks import Lock


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


def test_directory_and_files_are_made_for_everyone(tmp_path: Path) -> None:
    """The directory is sticky and shared, the files can be locked and numbered by all."""
    folder = tmp_path / "locks"
    prepare_locks(device(folder / "cpu-0.lock", folder / "cpu-1.lock"))
    expected = {"cpu-0.lock": 0o666, "cpu-1.lock": 0o666}
    assert mode(folder) == 0o1777
    assert {path.name: mode(path) for path in folder.iterdir()} == expected


def test_what_is_there_is_kept(tmp_path: Path) -> None:
    """Preparing again neither replaces a file nor forgets its lease number."""
    path = tmp_path / "locks" / "cpu-0.lock"
    prepare_locks(device(path))
    lock = Lock(str(path))
    assert lock.read() == (0, "")
    lock.write(41, "")
    before = path.stat().st_ino
    prepare_locks(device(path))
    assert path.stat().st_ino == before
    assert lock.read() == (41, "")
    lock.close()


def test_a_directory_of_ones_own_will_do(tmp_path: Path) -> None:
    """TILEYARD_LOCK_DIR may be private: then only its owner shares devices with themselves."""
    folder = tmp_path / "locks"
    folder.mkdir(mode=0o700)
    prepare_locks(device(folder / "cpu-0.lock"))
    assert mode(folder) == 0o700


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


def test_planted_files_are_refused(tmp_path: Path) -> None:
    """A link, a second name of some file, a pipe and a folder are not written to."""
    folder = tmp_path / "locks"
    prepare_locks(device(folder / "cpu-0.lock"))
    precious = tmp_path / "precious"
    precious.write_text("mine", encoding="ascii")
    (folder / "link.lock").symlink_to(precious)
    (folder / "dangling.lock").symlink_to(tmp_path / "nowhere")
    os.link(precious, folder / "twin.lock")
    os.mkfifo(folder / "pipe.lock")
    (folder / "folder.lock").mkdir()
    for name in ("link", "dangling", "twin", "pipe", "folder"):
        with pytest.raises(UsageError, match=f"{name}.lock"):
            prepare_locks(device(folder / f"{name}.lock"))
    assert precious.read_text(encoding="ascii") == "mine"
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("folder", ["locks", "/tmp/a:b"])
def test_a_path_that_cannot_be_listed_is_refused(folder: str) -> None:
    """Relative paths and those with a colon would not mean the same to every process."""
    with pytest.raises(UsageError, match="absolute path without ':'"):
        prepare_locks(device(Path(folder) / "cpu-0.lock"))
