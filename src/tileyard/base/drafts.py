"""Writes files that appear under their names complete or not at all, also where others may write."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def draft_of(path: Path, room_bytes: int = 0) -> Iterator[BinaryIO]:
    """A new file that replaces ``path`` if the block ends well, of the umask's mode and with
    ``room_bytes`` reserved if possible. A link at ``path``, not another user's, is followed; a pipe
    or the like is written directly. Raises OSError.
    """
    if path.is_symlink() and path.lstat().st_uid not in (0, os.geteuid()):
        raise PermissionError(errno.EPERM, "it is a link of another user")
    place = path.resolve()
    if place.exists() and not place.is_file():
        with place.open("wb") as file:
            yield file
        return
    draft = place.with_name(f".{place.name}.{os.urandom(8).hex()}")
    try:
        with draft.open("xb") as file:
            _take_room(file.fileno(), room_bytes)
            yield file
            file.truncate()
        draft.replace(place)
    finally:
        draft.unlink(missing_ok=True)


def _take_room(descriptor: int, room_bytes: int) -> None:
    while room_bytes:
        with contextlib.suppress(
            OSError
        ):  # less suffices, and none if this file system cannot reserve
            os.posix_fallocate(descriptor, 0, room_bytes)
            return
        room_bytes //= 2
