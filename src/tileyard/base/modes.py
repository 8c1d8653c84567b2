"""Makes files and folders that all users of their folder may use, whatever the umask is: a data
directory that its user opens to others stays open to them. Checks whether other users could have created, or
could change, what is at a path.
"""

import contextlib
import grp
import os
import pwd
import stat
from pathlib import Path

_ALL = 0o777
_OTHERS = 0o077


def mode_in(folder: Path, most: int) -> int:
    """The permissions of ``most`` that the folder grants as well. Raises OSError."""
    return stat.S_IMODE(folder.stat().st_mode) & most


def make_folder(folder: Path) -> None:
    """Make a folder and missing ones above it, each as open as the one above it. Raises OSError."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    mode = mode_in(folder.parent, _ALL | stat.S_ISGID | stat.S_ISVTX)
    try:
        folder.mkdir(mode & _ALL)
    except FileExistsError:
        if not folder.is_dir():
            raise
        return
    if mode & _OTHERS:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fchmod(descriptor, mode)  # mkdir applies the umask
        finally:
            os.close(descriptor)


def open_file(path: str | Path, flags: int) -> int:
    """Open a file (as ``opener`` too), as open as its folder if ``flags`` create it. Raises OSError."""
    if not flags & os.O_CREAT:
        return os.open(path, flags | os.O_CLOEXEC)
    try:
        mode = mode_in(Path(path).parent, 0o666)
    except OSError:
        mode = 0o600  # opening it raises the error that names the file
    descriptor = os.open(path, flags | os.O_CLOEXEC, mode)
    if mode & _OTHERS:  # open applies the umask
        status = os.fstat(descriptor)
        is_own = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
        if is_own and stat.S_IMODE(status.st_mode) != mode:
            os.fchmod(descriptor, mode)
    return descriptor


def write_on(descriptor: int, data: bytearray) -> None:
    """Write ``data`` and remove the written bytes from it; unwritten bytes stay. Raises OSError."""
    while data:
        del data[: os.write(descriptor, data)]


def write_file(path: Path, data: bytes) -> None:
    """Write a complete file that is as open as its folder. Raises OSError."""
    with open(path, "wb", opener=open_file) as file:
        file.write(data)


def append_file(path: Path, data: bytearray) -> None:
    """Append ``data`` to a file, made if missing, and remove what is written from it. Raises OSError."""
    make_folder(path.parent)
    descriptor = open_file(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        write_on(descriptor, data)
    finally:
        os.close(descriptor)


MAX_LINKS = 40
"""Most links that are followed on one path, as in the Linux kernel."""


def find_stranger(path: Path, *, is_way: bool = False) -> str:
    """Why ``path`` cannot be trusted, as a clause that names the place; empty if it can: only root
    and this user may write to folders on the way, links and itself. Folders above, with ``is_way``
    itself, may be sticky; a private group may write; missing parts are not judged.
    """
    here, rest, links = Path("/"), list(path.absolute().parts[1:]), 0
    while True:
        try:
            status = here.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return ""
        except OSError as error:
            return f"{here} cannot be looked at ({error.strerror})"
        if status.st_uid not in (0, os.geteuid()):
            return f"{here} belongs to another user (uid {status.st_uid})"
        if stat.S_ISLNK(status.st_mode):
            links += 1
            if links > MAX_LINKS:
                return f"{here} is a circle of links"
            rest[:0] = Path(here.readlink()).parts
            here = here.parent
        elif _may_others_write(here, status) and not (
            (rest or is_way) and status.st_mode & stat.S_ISVTX
        ):
            return f"others may write to {here}"
        if not rest:
            return ""
        part = rest.pop(0)
        here = here.parent if part == ".." else here / part


def _may_others_write(path: Path, status: os.stat_result) -> bool:
    if status.st_mode & stat.S_IWOTH:
        return True
    return bool(status.st_mode & stat.S_IWGRP) and not _is_alone_in(path, status.st_gid)


def _is_alone_in(path: Path, gid: int) -> bool:
    """Whether a group is this user's private group, and no access list gives its rights to others."""
    with contextlib.suppress(OSError):
        os.getxattr(path, "system.posix_acl_access")
        return False
    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    is_private = group.gr_gid == user.pw_gid and group.gr_name == user.pw_name
    return is_private and set(group.gr_mem) <= {user.pw_name}
