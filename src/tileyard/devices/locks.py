"""Makes or checks the host's lock directory, whose content the keeper owns: root's, or for one user."""

import contextlib
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

from tileyard.base.errors import UsageError
from tileyard.base.model import Device
from tileyard.base.modes import find_stranger
from tileyard.base.settings import LOCK_DIR
from tileyard.processes.keeper.files import (
    FOLDERS,
    close_all,
    make_directory,
    open_directory,
    open_folders,
)
from tileyard.processes.keeper.report import RefusedError
from tileyard.processes.keeper_line import REFUSALS


def prepare_locks(device: Device) -> None:
    """Make sure that a device's lock directory exists and can be trusted. Raises UsageError, with advice."""
    for directory in sorted({Path(lock).parent for lock in device.locks}):
        prepare_directory(directory)


def prepare_directory(directory: Path) -> None:
    """Make the lock directory with its folders, or check those that exist. Raises UsageError."""
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
            close_all(open_folders(root, str(directory)))
        finally:
            os.close(root)
        if not os.access(directory / FOLDERS[0], os.W_OK | os.X_OK):
            raise UsageError(f"the lock directory {directory} is not writable", hint_for(directory))


def check_way(directory: Path) -> None:
    """Raise UsageError if a stranger could put another directory in the place of this one."""
    if reason := find_stranger(directory.parent, is_way=True):
        raise UsageError(
            f"the lock directory {directory} is not safe: {reason}", hint_for(directory)
        )


@contextlib.contextmanager
def explaining(directory: Path) -> Iterator[None]:
    """Turn refusals of the lock directory in the block into a UsageError with advice."""
    try:
        yield
    except RefusedError as error:
        raise UsageError(f"{error.text}: {REFUSALS[error.step]}", hint_for(directory)) from error
    except OSError as error:
        raise UsageError(
            f"the lock directory {directory} cannot be used: {error.strerror}", hint_for(directory)
        ) from error


def is_for_all(directory: Path) -> bool:
    """Whether the lock directory, which exists, serves all users and not only its maker."""
    return directory.stat().st_uid == 0


def hint_for(directory: Path) -> str:
    """Advice on a lock directory that cannot be used."""
    return f"run {install_command(directory)}, or set TILEYARD_LOCK_DIR to a directory of yours"


def install_command(directory: Path) -> str:
    """The exact line with which root makes a lock directory for all users."""
    variables = [] if directory == LOCK_DIR else ["env", f"TILEYARD_LOCK_DIR={directory}"]
    program = [str(Path(sys.argv[0]).absolute())]
    if (
        Path(sys.argv[0]).name != "tileyard"
    ):  # -P: nothing is imported from root's current directory
        program = [sys.executable, "-P", "-m", "tileyard"]
    return shlex.join(["sudo", *variables, *program, "devices", "--install"])
