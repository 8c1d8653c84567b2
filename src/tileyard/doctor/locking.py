"""The lock directory: whether leases in it can be trusted, and by whom."""

import grp
import os
from collections.abc import Iterator
from pathlib import Path

from tileyard.devices.locks import hint_for, install_command, is_for_all, prepare_directory
from tileyard.devices.users import name_user
from tileyard.doctor.findings import Finding, Level
from tileyard.doctor.storage import nearest_folder
from tileyard.errors import UsageError
from tileyard.settings import LOCK_DIR, Settings
from tileyard.store.filesystem import NETWORK, find_filesystem

SUBJECT = "lock directory"
LOW_SPACE_BYTES = 1 << 20


def check_lock_directory(settings: Settings) -> Iterator[Finding]:
    """It is there, cannot be rearranged by others, and lies where the kernel's locks work."""
    folder = settings.lock_dir
    kind = find_filesystem(folder)
    if kind in NETWORK:
        raise UsageError(
            f"{folder} lies on a network file system ({kind}): other hosts' devices are not these",
            "set TILEYARD_LOCK_DIR to a directory of this host, such as one below /run/lock",
        )
    if not folder.exists():
        yield _judge_missing(folder)
        return
    prepare_directory(folder)
    free_bytes = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
    if free_bytes < LOW_SPACE_BYTES:
        raise UsageError(f"{folder} has {free_bytes >> 10} KiB left", f"make room on {kind}")
    is_ones_own = folder == LOCK_DIR and not is_for_all(folder)
    yield Finding(
        subject=SUBJECT,
        level=Level.WARN if is_ones_own else Level.OK,
        message=f"{folder} ({kind}), {describe_writers(folder)}",
        todo=f"to share devices with other users run {install_command(folder)}"
        if is_ones_own
        else "",
    )


def describe_writers(folder: Path) -> str:
    """Who may lease devices here, from the directory's owner and mode."""
    status = folder.stat()
    if not is_for_all(folder) or not status.st_mode & 0o011:
        return f"for {name_user(status.st_uid)} alone"
    return (
        "for all users" if status.st_mode & 0o001 else f"for the group {_name_group(status.st_gid)}"
    )


def _judge_missing(folder: Path) -> Finding:
    above = nearest_folder(folder)
    is_root = os.geteuid() == 0
    if folder.parent != above or not os.access(above, os.W_OK | os.X_OK):
        level, message = Level.FAIL, f"{folder} does not exist, and cannot be made in {above}"
    else:
        level = Level.OK if is_root else Level.WARN
        owner = "for all users" if is_root else "for one user alone"
        message = f"{folder} does not exist yet; the first lease makes it, {owner}"
    todo = "" if level is Level.OK else hint_for(folder)
    return Finding(subject=SUBJECT, level=level, message=message, todo=todo)


def _name_group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
