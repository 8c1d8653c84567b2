"""Folders that stay where they were made, by a key: what is in them may name the place, so they are not moved into the store.

A folder is made by one process alone and used by any number, which lock it for as long as they live. It counts as made
once its listing is there, and only while it holds what that says.
"""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from tileyard.artifacts.copying import remove_folder, writing_to
from tileyard.artifacts.folders import (
    PROGRAM_MODE,
    check_listing,
    compare,
    compare_contents,
    decode_listing,
    encode_listing,
    freeze,
    read_listing,
)
from tileyard.artifacts.pins import gate, try_lock
from tileyard.errors import DamagedError, UsageError
from tileyard.model import Digest
from tileyard.modes import make_folder, mode_in, open_file, write_file

FOLDER = "kept"
"""Below the data directory: a folder for each key."""
LOCK, LISTING = "lock", "listing"


class KeptFolder:
    """One such folder, locked until it is closed or this process ends. ``content`` is what is kept; ``is_made`` says whether it is complete.

    Where it is not, this process alone may make it, and then calls ``publish``.
    """

    def __init__(self, home: Path, path: Path, lock: int) -> None:
        self._home = home
        self._path = path
        self._lock = lock
        self.content = path / "content"
        self.is_made = self._is_sound()

    def clear(self) -> bool:
        """Begin to make it: empty it. False if another process makes or uses it."""
        if not try_lock(self._lock, fcntl.LOCK_EX):
            return False
        if self._is_sound():  # another process has made it since
            self.is_made = True
            self.share()
            return True
        with writing_to(self._path):
            (self._path / LISTING).unlink(missing_ok=True)
            with suppress(FileNotFoundError):
                remove_folder(self.content)
            make_folder(self.content)
        return True

    def publish(self) -> None:
        """Keep what was made, read-only. Raises UsageError for what no tree can hold."""
        listing = read_listing(self.content)
        check_listing(listing)
        with writing_to(self._path):
            freeze(self.content, mode_in(self._path, PROGRAM_MODE))
            draft = self._path / f"{LISTING}.draft"
            write_file(draft, encode_listing(listing))
            draft.replace(self._path / LISTING)
            self.is_made = True
        self.share()

    def share(self) -> None:
        """Let others use it as well."""
        with gate(self._home / "objects", fcntl.LOCK_SH):  # nobody removes it between two locks
            fcntl.flock(self._lock, fcntl.LOCK_SH)

    def close(self) -> None:
        """Use it no longer."""
        os.close(self._lock)

    def _is_sound(self) -> bool:
        try:
            listing = decode_listing((self._path / LISTING).read_bytes())
            compare(self.content, listing)
            compare_contents(self.content, listing)
        except (OSError, UsageError, DamagedError):
            return False
        return True


def open_kept(home: Path, key: Digest) -> KeptFolder | None:
    """The folder of a key, noted as used now; None while another process makes it. Raises HomeError."""
    path = home / FOLDER / key
    with writing_to(path), gate(home / "objects", fcntl.LOCK_SH):
        make_folder(path)
        lock = open_file(path / LOCK, os.O_RDWR | os.O_CREAT)
        if not try_lock(lock, fcntl.LOCK_SH):
            os.close(lock)
            return None
        os.utime(path / LOCK)
    return KeptFolder(home, path, lock)
