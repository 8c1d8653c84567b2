"""The host's directory of device locks: shared by all users, safe to share.

The kernel's flock on a file decides who holds a device, so the files must be the same for everyone:
they are made once, by whoever comes first, and never removed. What others may have planted (links,
pipes, a directory that anyone can rearrange) is refused. Who made the directory can still remove
what lies in it, hence a shared one is best made by root.
"""

import contextlib
import os
import stat
import time
from pathlib import Path

from tileyard.errors import UsageError
from tileyard.model import Device

SHARED_MODE = 0o1777
FILE_MODE = 0o666
FIRST_RECORD = f"{0:020d} {'':<31}\n".encode()
"""A lease number of 0, in the width that the keeper rewrites in place."""
ATTEMPTS, PAUSE_S = 5, 0.002  # somebody else may be half-way through making them
HINT = "let root make it with mode 1777, or set TILEYARD_LOCK_DIR to one that all who share devices can write"


def prepare_locks(device: Device) -> None:
    """Make sure that the lock files of a device are there and can be trusted.

    Raises UsageError, with what to do about it, if they can't be made or are not what they must be.
    """
    paths = [Path(lock) for lock in device.locks]
    for path in paths:
        if ":" in str(path) or not path.is_absolute():
            raise UsageError(
                f"the lock directory {path.parent} is not an absolute path without ':'"
            )
    for attempt in range(ATTEMPTS):
        try:
            for directory in sorted({path.parent for path in paths}):
                prepare_directory(directory)
            for path in paths:
                _prepare_file(path)
        except UsageError:
            if attempt == ATTEMPTS - 1:
                raise
            time.sleep(PAUSE_S)
        else:
            return


def prepare_directory(directory: Path) -> None:
    """Make the lock directory for all users, or check the one that is there."""
    try:
        try:
            directory.mkdir(mode=0o700)
        except FileExistsError:
            pass
        else:
            directory.chmod(SHARED_MODE)  # in two steps, since mkdir heeds the umask
        status = directory.lstat()
    except OSError as error:
        raise UsageError(
            f"cannot make the lock directory {directory}: {error.strerror}", HINT
        ) from error
    if not stat.S_ISDIR(status.st_mode):
        raise UsageError(f"the lock directory {directory} is a link or a file", HINT)
    others_may_write = status.st_mode & 0o022
    if others_may_write and not status.st_mode & stat.S_ISVTX:
        raise UsageError(
            f"the lock directory {directory} is not sticky: anyone could remove a lock", HINT
        )
    if not others_may_write and status.st_uid not in (0, os.geteuid()):
        raise UsageError(f"the lock directory {directory} belongs to another user alone", HINT)
    if not os.access(directory, os.W_OK | os.X_OK):
        raise UsageError(f"the lock directory {directory} is not writable", HINT)


def _prepare_file(path: Path) -> None:
    try:
        with contextlib.suppress(FileExistsError):
            _create_file(path)
        _check_file(path)
    except OSError as error:
        raise UsageError(f"cannot use the lock file {path}: {error.strerror}", HINT) from error


def _create_file(path: Path) -> None:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(fd, FILE_MODE)  # in two steps, since open heeds the umask
        os.pwrite(fd, FIRST_RECORD, 0)
    finally:
        os.close(fd)


def _check_file(path: Path) -> None:
    """Refuse what is not a plain file that every user can lock and number."""
    fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(fd)
    finally:
        os.close(fd)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        raise UsageError(f"the lock file {path} is not a plain file", "remove it")
