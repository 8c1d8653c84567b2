"""Makes the host's lock directory for all users, as root: ``tileyard devices --install``."""

import contextlib
import os
import shutil
import stat
from pathlib import Path

from tileyard.base.decoding import draft_of
from tileyard.base.errors import UsageError
from tileyard.base.ownership import find_stranger
from tileyard.devices.base import name_user
from tileyard.devices.locks import check_way, explaining, install_command, prepare_directory
from tileyard.devices.occupancy import keep_from_deciding
from tileyard.processes.keeper.files import (
    FOLDERS,
    OPEN,
    close_all,
    is_locked,
    make_directory,
    open_directory,
    open_folders,
    open_seen,
)
from tileyard.processes.keeper.report import RefusedError

TMPFILE = "tileyard.conf"


def install_directory(directory: Path, tmpfiles: Path) -> list[str]:
    """Make the lock directory for all users, now and at each start; returns the actions taken. An untrusted
    one is replaced unless in use. Raises UsageError if this user is not root, or it cannot be done.
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
    try:
        if _write_tmpfile(directory, tmpfiles / TMPFILE):
            done.append(f"wrote {tmpfiles / TMPFILE}, so that it is made again at each start")
    except OSError as error:
        raise UsageError(f"cannot write {tmpfiles / TMPFILE}: {error.strerror}") from error
    return done or [f"{directory} serves all users already"]


def _serves_all(directory: Path) -> bool:
    try:
        root = open_directory(str(directory))
    except (FileNotFoundError, RefusedError):
        return False
    try:
        close_all(open_folders(root, str(directory)))
    except RefusedError:
        return False
    else:
        return bool(os.fstat(root).st_mode & 0o011)
    finally:
        os.close(root)


def _set_aside(directory: Path) -> None:
    """Remove what is at this path. Raises UsageError if somebody uses it."""
    try:
        directory.lstat()
    except FileNotFoundError:
        return
    with contextlib.ExitStack() as closing:
        with contextlib.suppress(OSError):  # a link or a file has no users
            root = os.open(directory, OPEN)
            closing.callback(os.close, root)
            keep_from_deciding(root)  # nobody gets a lease in it from now on
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


def _list_users(root: int) -> list[str]:
    """The users whose leases and requests are alive in a directory that may contain anything."""
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
    """Have systemd make the directory at each start, as it is now; returns whether that is new."""
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
    with draft_of(file) as draft:
        os.fchmod(draft.fileno(), 0o644)
        draft.write(text.encode())
    return True


def _quote(path: Path) -> str:
    text = str(path).replace("%", "%%")
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return text if escaped == text and " " not in text else f'"{escaped}"'
