"""Safe access to the lock directory and its files that processes of several users share.
Directories are opened and checked through descriptors. The lock directory belongs to root and
serves all users, or to this user and serves nobody else; other owners' are refused, since an owner
can remove others' files.
A file becomes visible only when complete and locked: by an open file description lock for writing,
which others can test and wait for, but not take, and which ends with its owner. Content is one
escaped ``key value`` per line.
"""

import errno
import fcntl
import os
import stat
import struct
import time

from .report import RefusedError

FOLDERS = ("requests", "leases", "quarantine")
LOG = "log"
"""A folder that may be missing: leases do not depend on it."""
OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
SHARED_TOP, SHARED_FOLDER, PRIVATE = 0o755, 0o1777, 0o700
MAX_BYTES = 1 << 16
"""Most bytes of a file that is ours."""
DRAFT_NS = 60 * 10**9
"""Nanoseconds after which the maker of an unfinished file counts as killed."""
FILE_MODE = 0o644
FLOCK = "hhqqi4x"  # struct flock, as fcntl takes it
PLAIN = frozenset(map(chr, range(33, 127))) - {"%"}


# ---- directories ----------------------------------------------------------------------------


def open_directory(path: str) -> int:
    """The lock directory. Raises RefusedError if it cannot be trusted, FileNotFoundError, OSError."""
    return _open_checked(path, None, (0, os.geteuid()), path)


def open_folders(root: int, path: str, names: tuple[str, ...] = FOLDERS) -> list[int]:
    """Folders of the lock directory ``root`` at ``path``, created if this user owns it. Raises
    RefusedError if one cannot be trusted or only root can make it, and OSError.
    """
    owner = os.fstat(root).st_uid
    fds: list[int] = []
    try:
        fds.extend(_open_folder(root, owner, name, f"{path}/{name}") for name in names)
    except BaseException:
        close_all(fds)
        raise
    return fds


def close_all(fds: list[int]) -> None:
    """Close these descriptors."""
    for fd in fds:
        os.close(fd)


def _open_folder(root: int, owner: int, name: str, path: str) -> int:
    try:
        return _open_checked(name, root, (owner,), path)
    except FileNotFoundError:
        if owner != os.geteuid():
            raise RefusedError("incomplete", 0, text=path) from None
    _make_folder(root, name)
    return _open_checked(name, root, (owner,), path)


def is_replaced(root: int, path: str) -> bool:
    """Whether ``path`` now leads to another directory than the open one."""
    try:
        now = os.stat(path, follow_symlinks=False)
    except OSError:
        return True
    was = os.fstat(root)
    return (now.st_dev, now.st_ino) != (was.st_dev, was.st_ino)


def make_directory(path: str) -> None:
    """Make the lock directory, complete before it has its name, for all users if this is root; it
    may exist. Raises OSError, FileNotFoundError if there is still none.
    """
    above, name = os.path.split(path)
    parent = os.open(above, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    draft = f".{name}.{os.urandom(6).hex()}"
    try:
        os.mkdir(draft, PRIVATE, dir_fd=parent)
        root = os.open(draft, OPEN, dir_fd=parent)
        try:
            os.fchmod(root, SHARED_TOP if os.geteuid() == 0 else PRIVATE)
            for folder in (*FOLDERS, LOG):
                _make_folder(root, folder)
            os.rename(draft, name, src_dir_fd=parent, dst_dir_fd=parent)
        except OSError:
            for folder in (*FOLDERS, LOG):
                _remove_folder(folder, root)
            _remove_folder(draft, parent)
            os.stat(name, dir_fd=parent, follow_symlinks=False)  # another process was faster
        finally:
            os.close(root)
    finally:
        os.close(parent)


def _make_folder(root: int, name: str) -> None:
    """Make a folder for the users who can enter ``root``, which belongs to this user."""
    try:
        os.mkdir(name, PRIVATE, dir_fd=root)
    except FileExistsError:
        return
    above = os.fstat(root)
    if os.geteuid() or not above.st_mode & 0o011:
        return
    fd = os.open(name, OPEN, dir_fd=root)
    try:
        if above.st_mode & 0o001:
            os.fchmod(fd, SHARED_FOLDER)  # separate from mkdir, which applies the umask
        else:
            os.fchown(fd, -1, above.st_gid)
            os.fchmod(fd, SHARED_FOLDER & ~0o007)
    finally:
        os.close(fd)


def _remove_folder(name: str, parent: int) -> None:
    try:
        os.rmdir(name, dir_fd=parent)
    except OSError:
        pass


def _open_checked(name: str, parent: int | None, owners: tuple[int, ...], path: str) -> int:
    try:
        fd = os.open(name, OPEN, dir_fd=parent)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise RefusedError("planted", 0, text=path) from error
        if error.errno == errno.EACCES:
            _check(os.stat(name, dir_fd=parent, follow_symlinks=False), owners, path)
        raise
    try:
        _check(os.fstat(fd), owners, path)
    except RefusedError:
        os.close(fd)
        raise
    return fd


def _check(status: os.stat_result, owners: tuple[int, ...], path: str) -> None:
    if status.st_uid not in owners:
        raise RefusedError("foreign", 0, text=f"{path} (uid {status.st_uid})")
    if status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:
        raise RefusedError("unsafe", 0, text=path)


# ---- content --------------------------------------------------------------------------------


def escape(text: str) -> str:
    """Text without spaces, controls or anything but ASCII; bytes that are not UTF-8 survive."""
    if PLAIN.issuperset(text) and text:
        return text
    data = text.encode("utf-8", "surrogateescape")
    return "".join(chr(b) if chr(b) in PLAIN else f"%{b:02x}" for b in data) or "%"


def unescape(text: str) -> str:
    """The text that was escaped. Raises ValueError if it was not."""
    if "%" not in text:
        return text
    if text == "%":
        return ""
    first, *rest = text.split("%")
    data = bytearray(first.encode())
    for part in rest:
        data.append(int(part[:2], 16))
        data += part[2:].encode()
    return data.decode("utf-8", "surrogateescape")


def format_lines(pairs: list[tuple[str, str]]) -> bytes:
    """``key value`` lines."""
    return "".join(f"{key} {value}\n" for key, value in pairs).encode("ascii")


def parse_lines(data: bytes) -> list[tuple[str, str]]:
    """The pairs of ``format_lines``. Raises ValueError if they are not."""
    text = data.decode("ascii")
    if not text.endswith("\n"):
        raise ValueError("cut short")
    return [(key, value) for key, _, value in (line.partition(" ") for line in text.splitlines())]


# ---- locks ----------------------------------------------------------------------------------


def lock_for_writing(fd: int) -> None:
    """Mark a new file as its owner's while the descriptor is open in any process."""
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack(FLOCK, fcntl.F_WRLCK, 0, 0, 0, 0))


def is_locked(fd: int) -> bool:
    """Whether the owner of the file still holds it."""
    answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, struct.pack(FLOCK, fcntl.F_RDLCK, 0, 0, 0, 0))
    return bool(struct.unpack(FLOCK, answer)[0] != fcntl.F_UNLCK)


def wait_unlocked(fd: int) -> None:
    """Block until the owner of the file has released it. Raises OSError if that cannot be waited for."""
    fcntl.fcntl(fd, fcntl.F_OFD_SETLKW, struct.pack(FLOCK, fcntl.F_RDLCK, 0, 0, 0, 0))


# ---- files ----------------------------------------------------------------------------------


class Seen:
    """A file that was found in the lock directory. The finder must close ``fd``."""

    def __init__(self, fd: int, status: os.stat_result) -> None:
        self.fd = fd
        self.uid = status.st_uid
        self.size = status.st_size
        self.ctime_ns = status.st_ctime_ns

    def read(self) -> list[tuple[str, str]]:
        """Its lines. Raises ValueError if it contains something else."""
        if not 0 < self.size <= MAX_BYTES:
            raise ValueError("not of ours")
        return parse_lines(os.pread(self.fd, MAX_BYTES, 0))


def open_seen(folder: int, name: str) -> Seen | None:
    """Open a file of any user, if it is a plain file; never waits for a pipe."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        fd = os.open(name, flags, dir_fd=folder)
    except OSError:
        return None
    status = os.fstat(fd)
    if stat.S_ISREG(status.st_mode) and not status.st_mode & 0o022:
        return Seen(fd, status)
    os.close(fd)
    return None


def publish(folder: int, name: str, data: bytes, *, is_unique: bool = False) -> int:
    """Make a new file, complete and locked; return its descriptor. With ``is_unique`` no other
    process can have the name, and its ctime stays when it became visible. Raises FileExistsError,
    OSError; then it does not exist.
    """
    draft = f".{os.urandom(6).hex()}"
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(draft, flags, 0o600, dir_fd=folder)
    try:
        lock_for_writing(fd)
        if os.write(fd, data) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fchmod(fd, FILE_MODE)
        if is_unique:
            os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
        else:
            os.link(draft, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
            remove(folder, draft)
    except OSError:
        remove(folder, draft)
        os.close(fd)
        raise
    return fd


def remove(folder: int, name: str) -> None:
    """Remove a file if it exists and we may remove it."""
    try:
        os.unlink(name, dir_fd=folder)
    except OSError:
        pass


def remove_drafts(folder: int, names: list[str]) -> None:
    """Remove files that processes of this user had not finished when they were killed."""
    for name in names:
        seen = open_seen(folder, name) if name.startswith(".") else None
        if seen is not None:
            is_old = time.time_ns() - seen.ctime_ns > DRAFT_NS
            if is_old and seen.uid == os.geteuid() and not is_locked(seen.fd):
                remove(folder, name)
            os.close(seen.fd)
