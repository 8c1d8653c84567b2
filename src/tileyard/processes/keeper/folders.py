"""The lock directory itself: made, opened and checked through descriptors, never by path twice.

It belongs to root and then serves all users, or to this user and then nobody else. The owner of a
directory can remove what others put there, sticky or not, so one of a third user is refused, and so are
folders in it that belong to somebody else than the directory.
"""

import errno
import os
import stat

from .report import RefusedError

FOLDERS = ("requests", "leases", "quarantine")
OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
SHARED_TOP, SHARED_FOLDER, PRIVATE = 0o755, 0o1777, 0o700


def open_directory(path: str) -> int:
    """The lock directory. Raises RefusedError where it cannot be trusted, FileNotFoundError, OSError."""
    return _open_checked(path, None, (0, os.geteuid()), path)


def open_folders(root: int, path: str, names: tuple[str, ...] = FOLDERS) -> list[int]:
    """Folders of the lock directory ``root``, which is at ``path``; made if its owner misses them.

    Raises RefusedError where one cannot be trusted or only root can make it, OSError.
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
    """Whether another directory than the open one is at ``path`` by now."""
    try:
        now = os.stat(path, follow_symlinks=False)
    except OSError:
        return True
    was = os.fstat(root)
    return (now.st_dev, now.st_ino) != (was.st_dev, was.st_ino)


def make_directory(path: str) -> None:
    """Make the lock directory, for all users if this one is root; harmless if there is one by now.

    It gets its name when it is complete. Raises OSError, FileNotFoundError if there is none.
    """
    above, name = os.path.split(path)
    parent = os.open(above, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    draft = f".{name}.{os.urandom(6).hex()}"
    try:
        os.mkdir(draft, PRIVATE, dir_fd=parent)
        root = os.open(draft, OPEN, dir_fd=parent)
        try:
            os.fchmod(root, SHARED_TOP if os.geteuid() == 0 else PRIVATE)
            for folder in FOLDERS:
                _make_folder(root, folder)
            os.rename(draft, name, src_dir_fd=parent, dst_dir_fd=parent)
        except OSError:
            for folder in FOLDERS:
                _remove_folder(folder, root)
            _remove_folder(draft, parent)
            os.stat(name, dir_fd=parent, follow_symlinks=False)  # somebody else was faster
        finally:
            os.close(root)
    finally:
        os.close(parent)


def _make_folder(root: int, name: str) -> None:
    """Make a folder for those who can enter ``root``, which belongs to this user."""
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
            os.fchmod(fd, SHARED_FOLDER)  # apart from mkdir, which heeds the umask
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
