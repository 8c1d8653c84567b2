"""Copies files and removes folders, as the store and its trees need it."""

import contextlib
import ctypes
import fcntl
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tileyard.base.errors import HomeError, UsageError, is_of_host

_FICLONE = 0x40049409
"""The ioctl that lets two files share their blocks until one of them is written."""
_HERE, _EXCHANGE = -100, 2
"""For renameat2: paths are relative to the working directory (AT_FDCWD); both stay (RENAME_EXCHANGE)."""
_CHUNK = 1 << 20


def unreadable(path: Path | str, error: OSError, what: str = "") -> HomeError | UsageError:
    """The error for what cannot be read: HomeError for the host's disk, UsageError for the thing itself."""
    kind = HomeError if is_of_host(error) else UsageError
    return kind(f"{what}cannot read {str(path)!r}: {error.strerror}")


def copy_file(source: Path, target: Path, mode: int) -> None:
    """Make ``target``, new, an independent copy of ``source``, sharing blocks if possible. Raises
    as ``open_plain`` for ``source``, else OSError.
    """
    with os.fdopen(open_plain(source), "rb") as read:
        # Writable for its owner first: the requested mode may forbid the next steps.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with os.fdopen(os.open(target, flags, 0o600), "wb") as write:
            try:
                fcntl.ioctl(write, _FICLONE, read.fileno())
            except OSError:
                with contextlib.suppress(OSError):
                    while os.copy_file_range(read.fileno(), write.fileno(), 1 << 30):
                        pass
                # The part that the kernel could not copy by itself; usually nothing.
                shutil.copyfileobj(read, write, _CHUNK)
            os.fchmod(write.fileno(), mode)


def exchange(one: Path, other: Path) -> bool:
    """Exchange two directories of one file system atomically; False if it or the C library cannot."""
    for folder in (one, other):
        with contextlib.suppress(OSError):  # a directory that changes its parent must be writable
            folder.chmod(0o700)
    try:
        rename = ctypes.CDLL(None).renameat2
    except AttributeError:
        return False
    paths = (_HERE, os.fsencode(one), _HERE, os.fsencode(other))
    return int(rename(*paths, _EXCHANGE)) == 0


def open_plain(path: Path) -> int:
    """A descriptor to read a plain file. Raises UsageError for it, HomeError if the host is at fault."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise unreadable(path, error) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UsageError(f"{str(path)!r} is not a plain file")
    return descriptor


@contextlib.contextmanager
def writing_to(place: Path, hint: str = "") -> Iterator[None]:
    """Raise HomeError if a file of a data directory cannot be written in the block."""
    try:
        yield
    except OSError as error:
        raise HomeError(f"cannot write to {place}: {error.strerror or error}", hint) from error


@contextlib.contextmanager
def scratch_folder(parent: Path, prefix: str = "") -> Iterator[Path]:
    """A new folder below ``parent`` that is removed at the end with all its content."""
    folder = Path(tempfile.mkdtemp(dir=parent, prefix=prefix))
    try:
        yield folder
    finally:
        remove_folder(folder)


def remove_folder(folder: Path) -> None:
    """Remove a folder with its content, read-only or of any depth. Raises OSError."""
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
                with contextlib.suppress(OSError):  # moving a directory needs this
                    os.chmod(entry.name, 0o700, dir_fd=handle)
                count += 1
                waiting.append(folder / f"{token}.{count}")
                os.rename(entry.name, waiting[-1], src_dir_fd=handle)
        finally:
            os.close(handle)
        if here != folder:
            here.rmdir()
    folder.rmdir()
