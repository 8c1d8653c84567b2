"""Copies of files and the removal of folders, as the store and its trees need them."""

import contextlib
import fcntl
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator
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


@contextlib.contextmanager
def scratch_folder(parent: Path) -> Iterator[Path]:
    """A new folder below ``parent`` that is removed at the end, whatever programs left in it."""
    folder = Path(tempfile.mkdtemp(dir=parent))
    try:
        yield folder
    finally:
        remove_folder(folder)


def remove_folder(folder: Path) -> None:
    """Remove a folder with all that is in it, read-only folders too. Raises OSError.

    Folders within are moved up before they are looked into: so no path is too long, however deep they lie.
    """
    token, count, waiting = secrets.token_hex(8), 0, [folder]
    while waiting:
        here = waiting.pop()
        with contextlib.suppress(OSError):
            here.chmod(0o700)
        handle = os.open(here, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            with os.scandir(handle) as found:
                entries = list(found)
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.name, dir_fd=handle)
                    continue
                with contextlib.suppress(OSError):  # one that changes its parent must be writable
                    os.chmod(entry.name, 0o700, dir_fd=handle)
                count += 1
                waiting.append(folder / f"{token}.{count}")
                os.rename(entry.name, waiting[-1], src_dir_fd=handle)
        finally:
            os.close(handle)
        if here != folder:
            here.rmdir()
    folder.rmdir()


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
