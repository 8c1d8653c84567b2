"""Makes files and folders that all users of their folder may use, whatever the umask is: a data
directory that its user opens to others stays open to them.
"""

import os
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
