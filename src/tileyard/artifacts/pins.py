"""Protects what is in use in an object store from the collection of garbage.

Every use of a blob or record is noted in its modification time (never the access time, which mounts
may not keep): at most once a day, but again after each collection has begun. A collection removes
nothing that was used after it began. A run holds a pin, a file locked by the kernel for as long as its
process lives; while one is held, nothing is removed that was used since the day before it was taken.

``gate`` orders the two sides: noting a use or taking a pin shares it, removing
holds it exclusively, so an object is either noted first and kept, or removed first and missed.
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
    """Keep everything that is used in the block from being collected, however its process ends.

    ``root`` is the object store's. The workers of a run need no pin of their own. Raises HomeError
    if the store cannot be written.
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
    """When the oldest pin that is held was taken; None for none. Pins of dead processes are removed.

    Call this with the gate closed. Raises OSError.
    """
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
    """Note that an object is used now, if that is due; False if it has been removed meanwhile.

    ``status`` is the object's. In another user's store that cannot be written, the old time stays.
    """
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
    """Lock a file without waiting: ``LOCK_SH`` or ``LOCK_EX``; False if another process holds it. Raises OSError."""
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
