"""Who else may use the files of a data directory: those who may use the folder in which they are made.

A home is made for one user. One that its user has opened to others stays open to them, whatever the
umask of a process says, while the user's own programs have the umask that the user has.
"""

import os
import stat
from pathlib import Path

_ALL = 0o777
_OTHERS = 0o077


def mode_in(folder: Path, most: int) -> int:
    """The rights of ``most`` that the folder gives to the same users. Raises OSError."""
    return stat.S_IMODE(folder.stat().st_mode) & most


def make_folder(folder: Path) -> None:
    """Make a folder and those above it unless they are there, each as open as the one above. Raises OSError."""
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
            os.fchmod(descriptor, mode)  # mkdir heeds the umask
        finally:
            os.close(descriptor)


def open_file(path: str | Path, flags: int) -> int:
    """Open a file, and make it as open as its folder where ``flags`` ask to make it. Raises OSError.

    Can be the ``opener`` of ``open``.
    """
    if not flags & os.O_CREAT:
        return os.open(path, flags | os.O_CLOEXEC)
    try:
        mode = mode_in(Path(path).parent, 0o666)
    except OSError:
        mode = 0o600  # the error that names the file comes from opening it
    descriptor = os.open(path, flags | os.O_CLOEXEC, mode)
    if mode & _OTHERS:  # open heeds the umask
        status = os.fstat(descriptor)
        is_own = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
        if is_own and stat.S_IMODE(status.st_mode) != mode:
            os.fchmod(descriptor, mode)
    return descriptor


def write_on(descriptor: int, data: bytearray) -> None:
    """Write what is in ``data`` and take it out of there; what is not written stays. Raises OSError."""
    while data:
        del data[: os.write(descriptor, data)]


def write_file(path: Path, data: bytes) -> None:
    """Write a whole file that is as open as its folder. Raises OSError."""
    with open(path, "wb", opener=open_file) as file:
        file.write(data)


def append_file(path: Path, data: bytearray) -> None:
    """Add ``data`` to the end of a file, which is made where it is not, and take out of it what was written. Raises OSError."""
    make_folder(path.parent)
    descriptor = open_file(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        write_on(descriptor, data)
    finally:
        os.close(descriptor)
