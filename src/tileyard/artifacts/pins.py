"""Protects what is in use in an object store from the collection of garbage.
Uses are noted in modification times, at most once a day and again after each collection began,
which spares what was used since. A run's pin, a locked file, spares what was used since the day
before. ``gate`` is shared by uses and pins, and exclusive for removing.
"""

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tileyard.artifacts.copying import writing_to
from tileyard.base.modes import make_folder, mode_in, open_file

THROTTLE_S = 86_400.0
SLACK_S = 600.0
"""Most seconds by which the clocks of hosts that share a store may differ."""
GATE, PINS = "gc.lock", "pins"


@contextlib.contextmanager
def hold(root: Path) -> Iterator[None]:
    """Keep what is used in the block from being collected, however its process ends; workers need
    no pin. Raises HomeError if the store ``root`` cannot be written.
    """
    with writing_to(root), gate(root, fcntl.LOCK_SH):
        folder = root / PINS
        make_folder(folder)
        descriptor, name = tempfile.mkstemp(dir=folder, prefix=f"{os.getpid()}.")
        os.fchmod(descriptor, mode_in(folder, 0o644))  # other users must see that it is held
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        Path(name).unlink(missing_ok=True)
        os.close(descriptor)


def find_oldest_pin(root: Path) -> float | None:
    """When the oldest held pin was taken, or None; removes dead ones. Gate closed. Raises OSError."""
    taken = []
    for path in (root / PINS).glob("*"):
        with contextlib.suppress(FileNotFoundError):
            since = path.stat().st_mtime
            with path.open("rb") as file:
                is_free = try_lock(file.fileno(), fcntl.LOCK_SH)
            if is_free:
                path.unlink()
            else:
                taken.append(since)
    return min(taken, default=None)


@contextlib.contextmanager
def gate(root: Path, how: int) -> Iterator[None]:
    """The gate between use and removal: ``LOCK_SH`` to use, ``LOCK_EX`` to remove. Raises OSError."""
    make_folder(root)
    # Reading is enough to lock, so that users who share a store can share its gate.
    descriptor = open_file(root / GATE, os.O_RDONLY | os.O_CREAT)
    try:
        fcntl.flock(descriptor, how)
        yield
    finally:
        os.close(descriptor)


def note_use(root: Path, path: Path, status: os.stat_result, now_s: float) -> bool:
    """Note, if due and writable, that an object with ``status`` is used now; False if it was removed."""
    if status.st_mtime >= max(now_s - THROTTLE_S, collection_began(root)):
        return True
    try:
        with gate(root, fcntl.LOCK_SH):
            os.utime(path)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return True


def collection_began(root: Path) -> float:
    """When the last collection began; 0 for none."""
    try:
        return (root / GATE).stat().st_mtime
    except OSError:
        return 0.0


@contextlib.contextmanager
def locked_cache(folder: Path) -> Iterator[None]:
    """Hold a folder of caches exclusively within the block; create it if it is missing. Raises OSError."""
    make_folder(folder.parent)
    with open(folder.with_name(f"{folder.name}.lock"), "w", opener=open_file) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        make_folder(folder)  # under the lock, which the collection of garbage takes, too
        yield


def try_lock(descriptor: int, how: int) -> bool:
    """Lock a file at once (``LOCK_SH`` or ``LOCK_EX``); False if another process holds it. Raises OSError."""
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
