"""The host's lock directory, before it is used: made, or checked, and installed for all users by root.

What lies in it is the keeper's (``processes/keeper/directory.py``), as is how it is opened and checked
(``folders.py`` there). Root's serves all users; one that a user made serves that user alone.
"""

import contextlib
import fcntl
import os
import shlex
import shutil
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tileyard.devices.users import name_user
from tileyard.errors import UsageError
from tileyard.model import Device
from tileyard.ownership import find_stranger
from tileyard.processes.keeper.files import is_locked, open_seen
from tileyard.processes.keeper.folders import (
    FOLDERS,
    OPEN,
    make_directory,
    open_directory,
    open_folder,
)
from tileyard.processes.keeper.report import RefusedError
from tileyard.processes.refusals import REFUSALS
from tileyard.settings import LOCK_DIR

TMPFILE = "tileyard.conf"
LOCK_LIMIT_S, PAUSE_S = 2.0, 0.01


def prepare_locks(device: Device) -> None:
    """Make sure that the lock directory of a device exists and can be trusted.

    Raises UsageError, with what to do about it, if it can't be made or is not what it must be.
    """
    for directory in sorted({Path(lock).parent for lock in device.locks}):
        prepare_directory(directory)


def prepare_directory(directory: Path) -> None:
    """Make the lock directory with the folders in it, or check those that exist. Raises UsageError."""
    if not directory.is_absolute():
        raise UsageError(f"the lock directory {directory} is not an absolute path")
    with explaining(directory):
        check_way(directory)
        try:
            root = open_directory(str(directory))
        except FileNotFoundError:
            make_directory(str(directory))
            root = open_directory(str(directory))
        try:
            for name in FOLDERS:
                os.close(open_folder(root, name, str(directory)))
        finally:
            os.close(root)
        if not os.access(directory / FOLDERS[0], os.W_OK | os.X_OK):
            raise UsageError(f"the lock directory {directory} is not writable", hint_for(directory))


def check_way(directory: Path) -> None:
    """Raise UsageError where a stranger could put another directory in the place of this one."""
    if reason := find_stranger(directory.parent, is_way=True):
        raise UsageError(
            f"the lock directory {directory} is not safe: {reason}", hint_for(directory)
        )


@contextlib.contextmanager
def explaining(directory: Path) -> Iterator[None]:
    """Raise a UsageError that says what to do for what the lock directory refuses in the block."""
    try:
        yield
    except RefusedError as error:
        raise UsageError(f"{error.text}: {REFUSALS[error.step]}", hint_for(directory)) from error
    except OSError as error:
        raise UsageError(
            f"the lock directory {directory} cannot be used: {error.strerror}", hint_for(directory)
        ) from error


def is_for_all(directory: Path) -> bool:
    """Whether the lock directory, which exists, serves all users and not only the one who made it."""
    return directory.stat().st_uid == 0


def hint_for(directory: Path) -> str:
    """What to do about a lock directory that cannot be used."""
    return f"run {install_command(directory)}, or set TILEYARD_LOCK_DIR to a directory of yours"


def install_command(directory: Path) -> str:
    """The exact line with which root makes a lock directory for all users."""
    words = ["sudo"]
    if directory != LOCK_DIR:
        words += ["env", f"TILEYARD_LOCK_DIR={directory}"]
    script = Path(sys.argv[0])
    if script.name == "tileyard":
        words.append(str(script.absolute()))
    else:
        words += [
            sys.executable,
            "-P",
            "-m",
            "tileyard",
        ]  # -P: nothing is imported from where root stands
    return shlex.join([*words, "devices", "--install"])


# ---- installing ---------------------------------------------------------------------------------


def install_directory(directory: Path, tmpfiles: Path) -> list[str]:
    """Make the lock directory for all users, now and at each start of the host; returns what was done.

    One that cannot be trusted is replaced, unless somebody holds or waits for a device in it. What is
    right already stays as it is. Raises UsageError where this user is not root, or it cannot be done.
    """
    if os.geteuid():
        raise UsageError(
            "only root can make a lock directory for all users",
            f"run: {install_command(directory)}",
        )
    if reason := find_stranger(tmpfiles):
        raise UsageError(f"{tmpfiles / TMPFILE} is not safe: {reason}")
    done = []
    with explaining(directory):
        check_way(directory)
        if not _serves_all(directory):
            _set_aside(directory)
            make_directory(str(directory))
            done.append(f"made {directory} for all users")
    prepare_directory(directory)
    with _explaining_file(tmpfiles / TMPFILE):
        if _write_tmpfile(directory, tmpfiles / TMPFILE):
            done.append(f"wrote {tmpfiles / TMPFILE}, so that it is made again at each start")
    return done or [f"{directory} serves all users already"]


def _serves_all(directory: Path) -> bool:
    try:
        root = open_directory(str(directory))
    except (FileNotFoundError, RefusedError):
        return False
    try:
        for name in FOLDERS:
            os.close(open_folder(root, name, str(directory)))
    except RefusedError:
        return False
    else:
        return bool(os.fstat(root).st_mode & 0o011)
    finally:
        os.close(root)


def _set_aside(directory: Path) -> None:
    """Remove what is at this path, which nobody uses. Raises UsageError where somebody does."""
    try:
        directory.lstat()
    except FileNotFoundError:
        return
    with contextlib.ExitStack() as closing:
        with contextlib.suppress(OSError):  # a link or a file has no users
            root = os.open(directory, OPEN)
            closing.callback(os.close, root)
            _lock(root)  # nobody is given a lease in it from now on
            if users := _list_users(root):
                raise UsageError(
                    f"{directory} cannot be replaced: {', '.join(users)} holds or waits for a device in it",
                    "run this again when that has ended",
                )
        aside = directory.parent / f".{directory.name}.{os.urandom(6).hex()}"
        aside.mkdir(mode=0o700)  # nobody else can follow it there
        try:
            directory.rename(aside / "old")
        finally:
            shutil.rmtree(aside)


def _lock(root: int) -> None:
    """Keep others from deciding about leases; a stranger who keeps us from it is not waited for."""
    deadline = time.monotonic() + LOCK_LIMIT_S
    while time.monotonic() < deadline:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(root, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(PAUSE_S)


def _list_users(root: int) -> list[str]:
    """Whose leases and requests are alive in a directory that may hold anything."""
    found: set[int] = set()
    for name in FOLDERS[:2]:
        try:
            folder = os.open(name, OPEN, dir_fd=root)
        except OSError:
            continue
        for file in os.listdir(folder):  # noqa: PTH208 - a descriptor
            if (seen := open_seen(folder, file)) is not None:
                if is_locked(seen.fd):
                    found.add(seen.uid)
                os.close(seen.fd)
        os.close(folder)
    return [name_user(uid) for uid in sorted(found)]


def _write_tmpfile(directory: Path, file: Path) -> bool:
    """Have systemd make the directory at each start, as it is now; whether that is new."""
    found = {path: path.stat() for path in (directory, *(directory / name for name in FOLDERS))}
    lines = [
        f"d {_quote(path)} {stat.S_IMODE(status.st_mode):04o} root {status.st_gid} -\n"
        for path, status in found.items()
    ]
    text = "# made by: tileyard devices --install\n" + "".join(lines)
    with contextlib.suppress(FileNotFoundError):
        if file.read_text(encoding="utf-8") == text:
            return False
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}.{os.urandom(6).hex()}")
    draft.write_text(text, encoding="utf-8")
    draft.chmod(0o644)
    draft.replace(file)
    return True


def _quote(path: Path) -> str:
    """A path as tmpfiles.d takes it."""
    text = str(path).replace("%", "%%")
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return text if escaped == text and " " not in text else f'"{escaped}"'


@contextlib.contextmanager
def _explaining_file(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror}") from error
