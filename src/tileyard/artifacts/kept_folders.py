"""Keeps folders by a key where they were made, as their content may name the place. One process
makes a folder, any use it, all lock it; it counts once its listing exists, while that matches.
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
from tileyard.base.errors import DamagedError, UsageError
from tileyard.base.model import Digest
from tileyard.base.modes import make_folder, mode_in, open_file, write_file

FOLDER = "kept"
"""The folder below the data directory with one folder per key."""
LOCK, LISTING = "lock", "listing"


class KeptFolder:
    """A kept folder, locked until closed or this process ends. Unless ``is_made``, only this
    process may make its ``content``, and then calls ``publish``.
    """

    def __init__(self, home: Path, path: Path, lock: int) -> None:
        self._home = home
        self._path = path
        self._lock = lock
        self.content = path / "content"
        self.is_made = self._is_sound()

    def clear(self) -> bool:
        """Empty it, to begin making it. False if another process makes or uses it."""
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
        """Keep what was made, read-only. Raises UsageError for what a tree cannot contain."""
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
        """Let other processes use it as well."""
        with gate(self._home / "objects", fcntl.LOCK_SH):  # nobody removes it between two locks
            fcntl.flock(self._lock, fcntl.LOCK_SH)

    def close(self) -> None:
        """Stop using it."""
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
    """The folder of a key, with its use noted; None while another process makes it. Raises HomeError."""
    path = home / FOLDER / key
    with writing_to(path), gate(home / "objects", fcntl.LOCK_SH):
        make_folder(path)
        lock = open_file(path / LOCK, os.O_RDWR | os.O_CREAT)
        if not try_lock(lock, fcntl.LOCK_SH):
            os.close(lock)
            return None
        os.utime(path / LOCK)
    return KeptFolder(home, path, lock)
