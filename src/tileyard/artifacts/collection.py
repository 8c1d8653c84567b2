"""Collection of garbage: what was not used for long goes, and what is in use never does."""

import contextlib
import fcntl
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tileyard.artifacts.copying import remove_folder
from tileyard.artifacts.holdings import LEFTOVERS, Holding, measure, survey_home, survey_streams
from tileyard.artifacts.pins import (
    GATE,
    SLACK_S,
    THROTTLE_S,
    collection_began,
    find_oldest_pin,
    gate,
)
from tileyard.clock import Clock, SystemClock
from tileyard.errors import HomeError, UsageError
from tileyard.model import Record
from tileyard.modes import make_folder, open_file

DAY_S = 86_400.0
_SYSTEM_CLOCK = SystemClock()


class Keep(Record):
    """What may stay. ``max_bytes`` and ``days`` are None for no limit."""

    max_bytes: int | None = None
    days: float | None = None


class Freed(Record):
    """What was removed of one kind."""

    what: str
    count: int
    size: int


class Collection(Record):
    """What a collection did, or would do. Sizes are bytes on disk.

    ``in_use`` is what it would have removed too, had a pin not protected it or somebody not used it
    meanwhile. ``pinned_since`` is when the oldest run that goes on began, 0 for none.
    """

    freed: tuple[Freed, ...]
    freed_bytes: int
    kept_bytes: int
    in_use_bytes: int = 0
    pinned_since: float = 0.0
    is_dry: bool = False


def is_nowhere_else(_stream: Path) -> bool:
    """What a run has told stands in its stream alone."""
    return False


def collect(
    home: Path,
    keep: Keep,
    *,
    dry_run: bool = False,
    clock: Clock = _SYSTEM_CLOCK,
    is_recorded: Callable[[Path], bool] = is_nowhere_else,
) -> Collection:
    """Remove from a home what is older than is to be kept, the least recently used first.

    Safe beside any number of runs. Trials are never removed; a run's stream of events is, once it is older
    than ``keep.days`` and ``is_recorded`` says that all its trials are. Raises UsageError where there is nothing to collect from or another collection goes on, HomeError
    where the home cannot be written.
    """
    root = home / "objects"
    if not root.is_dir():
        raise UsageError(f"there is nothing to collect in {home}")
    try:
        with _alone(root):
            with gate(root, fcntl.LOCK_EX):
                # From here on every use is noted anew; what is noted from here on stays.
                os.utime(root / GATE)
                began = collection_began(root)
                pinned = find_oldest_pin(root)
            protected = began if pinned is None else min(began, pinned - THROTTLE_S - SLACK_S)
            holdings = survey_home(home, clock.wall_s())
            oldest = _find_oldest(keep, clock.wall_s())
            streams = (stream for stream in survey_streams(home) if stream.used_at < oldest)
            holdings += [stream for stream in streams if is_recorded(stream.marker)]
            chosen = choose(holdings, keep, clock.wall_s())
            gone = [
                holding
                for holding in chosen
                if holding.used_at < protected and (dry_run or _remove(holding, root, protected))
            ]
    except OSError as error:
        raise HomeError(f"cannot collect from {home}: {error.strerror or error}") from error
    freed = sum(holding.size for holding in gone)
    return Collection(
        freed=tuple(_sum_up(gone)),
        freed_bytes=freed,
        kept_bytes=sum(holding.size for holding in holdings) - freed,
        in_use_bytes=sum(holding.size for holding in chosen) - freed,
        pinned_since=pinned or 0.0,
        is_dry=dry_run,
    )


def choose(holdings: Iterable[Holding], keep: Keep, now_s: float) -> list[Holding]:
    """What is to go, in the order in which it is to go. Pure.

    Leftovers go in any case, then what was not used for long, then, until the rest fits, whatever
    was used least recently: records before what they name.
    """
    ordered = sorted(
        holdings, key=lambda one: (one.what != LEFTOVERS, one.used_at, -len(one.marker.parts))
    )
    left = sum(holding.size for holding in ordered)
    oldest = _find_oldest(keep, now_s)
    chosen = []
    for holding in ordered:
        is_over = keep.max_bytes is not None and left > keep.max_bytes
        if holding.what == LEFTOVERS or holding.used_at < oldest or is_over:
            chosen.append(holding)
            left -= holding.size
    return chosen


def _find_oldest(keep: Keep, now_s: float) -> float:
    return 0.0 if keep.days is None else now_s - keep.days * DAY_S


def _remove(holding: Holding, root: Path, protected: float) -> bool:
    """Remove one holding unless it was used meanwhile. What is used at this moment waits for us."""
    hidden = None
    try:
        with gate(root, fcntl.LOCK_EX), _locked(holding.lock) as is_free:
            if not is_free or _latest(holding) >= protected:
                return False
            if holding.folder is not None:
                # Out of sight at once: to remove a folder takes its time.
                hidden = holding.folder.with_name(f".{holding.folder.name}.{os.getpid()}")
            if holding.folder != holding.marker:
                holding.marker.unlink()
            if hidden is not None and holding.folder is not None:
                holding.folder.chmod(0o700)
                holding.folder.rename(hidden)
        if hidden is not None:
            remove_folder(hidden)
    except (FileNotFoundError, PermissionError):
        # Somebody else removed it, or alone may.
        return False
    return True


def _latest(holding: Holding) -> float:
    if holding.folder == holding.marker:
        return measure(holding.marker)[1]
    return holding.marker.lstat().st_mtime


@contextlib.contextmanager
def _locked(lock: Path | None) -> Iterator[bool]:
    """Whether nobody works in a directory; nobody begins to in the block."""
    if lock is None:
        yield True
        return
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def _sum_up(gone: Iterable[Holding]) -> Iterator[Freed]:
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for holding in gone:
        counts[holding.what] += 1
        sizes[holding.what] += holding.size
    for what, size in sizes.most_common():
        yield Freed(what=what, count=counts[what], size=size)


@contextlib.contextmanager
def _alone(root: Path) -> Iterator[None]:
    """No other collection goes on in this store."""
    make_folder(root)
    descriptor = open_file(root / "gc.alone", os.O_RDONLY | os.O_CREAT)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"another collection goes on in {root}") from None
        yield
    finally:
        os.close(descriptor)
