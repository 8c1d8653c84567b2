"""The lock directory: whether leases in it can be trusted, and by whom."""

import grp
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from tileyard.devices.locks import FOLDERS, HINT, prepare_directory
from tileyard.devices.users import name_user
from tileyard.doctor.findings import Finding, Level
from tileyard.doctor.storage import nearest_folder
from tileyard.errors import UsageError
from tileyard.settings import Settings
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
    yield Finding(
        subject=SUBJECT, level=Level.OK, message=f"{folder} ({kind}), {describe_writers(folder)}"
    )
    yield from _judge_owners(folder)


def describe_writers(folder: Path) -> str:
    """Who may lease devices here, from the directory's mode."""
    status = folder.stat()
    if status.st_mode & stat.S_IWOTH:
        return "sticky, for all users"
    owner = name_user(status.st_uid)
    if status.st_mode & stat.S_IWGRP:
        return f"sticky, for {owner} and the group {_name_group(status.st_gid)}"
    return f"for {owner} alone"


def _judge_missing(folder: Path) -> Finding:
    above = nearest_folder(folder)
    if folder.parent != above or not os.access(above, os.W_OK | os.X_OK):
        return Finding(
            subject=SUBJECT,
            level=Level.FAIL,
            message=f"{folder} is not there, and cannot be made in {above}",
            todo=HINT,
        )
    return Finding(
        subject=SUBJECT,
        level=Level.OK if os.geteuid() == 0 else Level.WARN,
        message=f"{folder} is not there yet; whoever leases first will own it",
        todo="" if os.geteuid() == 0 else f"let root run: install -d -m 1777 {folder}",
    )


def _judge_owners(folder: Path) -> Iterator[Finding]:
    """Who owns a directory can remove what others put there, sticky or not."""
    if not folder.stat().st_mode & (stat.S_IWOTH | stat.S_IWGRP):
        return
    for path in (folder, *(folder / name for name in FOLDERS)):
        owner = path.stat().st_uid
        if owner not in (0, os.geteuid()):
            yield Finding(
                subject=SUBJECT,
                level=Level.WARN,
                message=f"{path} belongs to {name_user(owner)}, who could remove leases of others",
                todo=f"let root run: chown root {path}",
            )


def _name_group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
