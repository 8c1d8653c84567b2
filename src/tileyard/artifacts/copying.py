"""Copies of files and the removal of folders, as the store and its trees need them."""

import contextlib
import fcntl
import os
import shutil
import stat
from pathlib import Path

from tileyard.errors import UsageError

_FICLONE = 0x40049409
"""The ioctl that lets two files share their blocks until one of them is written."""
_CHUNK = 1 << 20


def copy_file(source: Path, target: Path, mode: int) -> None:
    """Make ``target``, which must not exist, a file of its own with the content of ``source``.

    Blocks are shared where the file system can (both files stay independent); never a hard link.
    Raises UsageError where ``source`` is unreadable or no plain file any more, else OSError.
    """
    with contextlib.ExitStack() as stack:
        read = open_plain(source)
        stack.callback(os.close, read)
        # Writable for its owner first: the mode that is asked for may forbid what is done next.
        write = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        stack.callback(os.close, write)
        _copy_content(read, write)
        os.fchmod(write, mode)


def open_plain(path: Path) -> int:
    """A descriptor to read a plain file, which no link, device or pipe can pass for.

    Raises UsageError where there is none, or it cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(f"cannot read {str(path)!r}: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UsageError(f"{str(path)!r} is not a plain file")
    return descriptor


def remove_folder(folder: Path) -> None:
    """Remove a folder with all that is in it, read-only folders too. Raises OSError."""
    for name, _, _ in os.walk(folder):
        with contextlib.suppress(OSError):
            Path(name).chmod(0o700)
    shutil.rmtree(folder)


def _copy_content(read: int, write: int) -> None:
    try:
        fcntl.ioctl(write, _FICLONE, read)
    except OSError:
        with contextlib.suppress(OSError):
            while os.copy_file_range(read, write, 1 << 30):
                pass
        # What the kernel could not copy by itself, from where it stopped; usually nothing.
        while chunk := os.read(read, _CHUNK):
            left = memoryview(chunk)
            while left:
                left = left[os.write(write, left) :]
