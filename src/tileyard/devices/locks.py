"""The host's lock directory: shared by all users, safe to share.

What lies in it is the keeper's (``processes/keeper/directory.py``): requests, leases, quarantine.
Here it is made, by whoever comes first, or checked before it is trusted. Who made the directory can
remove what lies in it, hence a shared one is best made by root.
"""

import os
import stat
import time
from pathlib import Path

from tileyard.errors import UsageError
from tileyard.model import Device
from tileyard.processes.keeper.files import SHARED_MODE

FOLDERS = ("requests", "leases", "quarantine")
ATTEMPTS, PAUSE_S = 5, 0.002  # somebody else may be half-way through making them
HINT = "let root make it with mode 1777, or set TILEYARD_LOCK_DIR to one that all who share devices can write"


def prepare_locks(device: Device) -> None:
    """Make sure that the lock directory of a device is there and can be trusted.

    Raises UsageError, with what to do about it, if it can't be made or is not what it must be.
    """
    for directory in sorted({Path(lock).parent for lock in device.locks}):
        if not directory.is_absolute():
            raise UsageError(f"the lock directory {directory} is not an absolute path")
        prepare_directory(directory)


def prepare_directory(directory: Path) -> None:
    """Make the lock directory for all users with the folders in it, or check those that are there."""
    for attempt in range(ATTEMPTS):
        try:
            _prepare_folder(directory, SHARED_MODE)
            mode = stat.S_IMODE(directory.stat().st_mode)
            for name in FOLDERS:
                _prepare_folder(directory / name, mode)
        except UsageError:
            if attempt == ATTEMPTS - 1:
                raise
            time.sleep(PAUSE_S)
        else:
            return


def _prepare_folder(folder: Path, mode: int) -> None:
    try:
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            pass
        else:
            folder.chmod(mode)  # in two steps, since mkdir heeds the umask
        status = folder.lstat()
    except OSError as error:
        raise UsageError(
            f"cannot make the lock directory {folder}: {error.strerror}", HINT
        ) from error
    if not stat.S_ISDIR(status.st_mode):
        raise UsageError(f"the lock directory {folder} is a link or a file", HINT)
    others_may_write = status.st_mode & 0o022
    if others_may_write and not status.st_mode & stat.S_ISVTX:
        raise UsageError(
            f"the lock directory {folder} is not sticky: anyone could remove a lease", HINT
        )
    if not others_may_write and status.st_uid not in (0, os.geteuid()):
        raise UsageError(f"the lock directory {folder} belongs to another user alone", HINT)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"the lock directory {folder} is not writable", HINT)
