"""Collects garbage: removes what was not used for long, and never what is in use."""

import contextlib
import errno
import fcntl
import os
import stat
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatch
from itertools import chain
from pathlib import Path

from tileyard.artifacts.copying import remove_folder
from tileyard.artifacts.folders import FOLDER, LOCK
from tileyard.artifacts.objects import find_digests
from tileyard.artifacts.pins import (
    GATE,
    SLACK_S,
    THROTTLE_S,
    collection_began,
    find_oldest_pin,
    gate,
    try_lock,
)
from tileyard.base.clock import Clock
from tileyard.base.errors import HomeError, UsageError
from tileyard.base.model import Record
from tileyard.base.modes import make_folder, open_file

DAY_S = 86_400.0
RECORD_KINDS = {
    "build": "artifacts",
    "binary": "artifacts",
    "golden": "golden results",
    "sync": "checks of synchronization",
    "answer": "author answers",
    "footprint": "what results depend on",
}
"""Display names for the records of a kind and the blobs that they name. Other kinds keep their names."""
TREES, LOGS, WORK = "trees", "logs", "work directories"
STREAMS, RESULTS = "event streams", "results of runs"
LEFTOVERS, UNNAMED = "leftovers", "blobs that nothing names"
CACHES, COMPILED = "build folders", "compiled Python"
SIDES = "checkouts and environments"
KEPT = "compile steps of tests"
RUNNER_LOG = "runner-*.log"
"""The output of a live runner, or what a killed engine could not move to the logs."""
_LEFTOVER_AGE_S = DAY_S
_CLOCK = Clock()


class Holding(Record):
    """Something that is removed as a whole; times are the file system's, in seconds since the
    epoch. ``marker``, removed first, has the last use; ``folder`` goes with it, locked by ``lock``
    while in use. ``used_at`` may be later: objects are as recent as their record.
    """

    what: str
    marker: Path
    size: int
    used_at: float
    folder: Path | None = None
    lock: Path | None = None


class Keep(Record):
    """The limits of what may stay. ``max_bytes`` and ``days`` are None for no limit."""

    max_bytes: int | None = None
    days: float | None = None


class Freed(Record):
    """The removed holdings of one kind."""

    what: str
    count: int
    size: int


class Collection(Record):
    """A collection, or a dry run; sizes are bytes on disk. ``in_use``: kept for a pin or a use
    meanwhile. ``pinned_since``: the start of the oldest active run, 0 for none.
    """

    freed: tuple[Freed, ...]
    freed_bytes: int
    kept_bytes: int
    in_use_bytes: int = 0
    pinned_since: float = 0.0
    is_dry: bool = False


def is_nowhere_else(_stream: Path) -> bool:
    """The default of ``is_recorded``: the events of a run are only in its stream."""
    return False


def collect(
    home: Path,
    keep: Keep,
    *,
    dry_run: bool = False,
    clock: Clock = _CLOCK,
    is_recorded: Callable[[Path], bool] = is_nowhere_else,
) -> Collection:
    """Remove from a data directory what exceeds ``keep``, least recently used first; safe beside
    runs. Trials stay; after ``keep.days`` results go, and event streams if ``is_recorded``. Raises
    UsageError if there is no store or another collection, HomeError if not writable.
    """
    root = home / "objects"
    if not root.is_dir():
        raise UsageError(f"nothing to collect in {home}")
    try:
        with _alone(root):
            with gate(root, fcntl.LOCK_EX):
                # From here on every use is noted again; what is noted from here on stays.
                os.utime(root / GATE)
                began = collection_began(root)
                pinned = find_oldest_pin(root)
            protected = began if pinned is None else min(began, pinned - THROTTLE_S - SLACK_S)
            holdings = survey_home(home, clock.wall_s())
            oldest = _find_oldest(keep, clock.wall_s())
            streams = (stream for stream in survey_streams(home) if stream.used_at < oldest)
            holdings += [one for one in streams if one.what == RESULTS or is_recorded(one.marker)]
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
    """The holdings to remove: leftovers, long unused, least recently used until all fit. Pure."""
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
    """Remove one holding unless it was used meanwhile. A use at this moment waits for the removal."""
    hidden = None
    try:
        with gate(root, fcntl.LOCK_EX), _locked(holding.lock) as is_free:
            if not is_free or _latest(holding) >= protected:
                return False
            if holding.folder != holding.marker:
                holding.marker.unlink()
            if holding.folder is not None:
                # Hidden at once: removing a folder takes time.
                hidden = holding.folder.with_name(f".{holding.folder.name}.{os.getpid()}")
                holding.folder.chmod(0o700)
                holding.folder.rename(hidden)
        if hidden is not None:
            remove_folder(hidden)
    except (FileNotFoundError, PermissionError):
        # Another process removed it, or only another user may.
        return False
    return True


def _latest(holding: Holding) -> float:
    if holding.folder == holding.marker:
        return measure(holding.marker)[1]
    return holding.marker.lstat().st_mtime


@contextlib.contextmanager
def _locked(lock: Path | None) -> Iterator[bool]:
    """Whether no process works in a directory; none starts to within the block."""
    if lock is None:
        yield True
        return
    with lock.open("rb") as file:
        yield try_lock(file.fileno(), fcntl.LOCK_EX)


def _sum_up(gone: Iterable[Holding]) -> list[Freed]:
    """The removed holdings by kind, the most bytes first."""
    sizes: dict[str, list[int]] = defaultdict(list)
    for holding in gone:
        sizes[holding.what].append(holding.size)
    freed = [Freed(what=what, count=len(own), size=sum(own)) for what, own in sizes.items()]
    return sorted(freed, key=lambda one: -one.size)


@contextlib.contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Within the block no other collection runs in this store. Raises UsageError if one does."""
    make_folder(root)
    descriptor = open_file(root / "gc.alone", os.O_RDONLY | os.O_CREAT)
    try:
        if not try_lock(descriptor, fcntl.LOCK_EX):
            raise UsageError(f"another collection is running in {root}")
        yield
    finally:
        os.close(descriptor)


# ---- survey -------------------------------------------------------------------------------------


def survey_home(home: Path, now_s: float) -> list[Holding]:
    """All holdings of a data directory. Leftovers are listed once they are a day old. Raises OSError."""
    root = home / "objects"
    found = [
        *_survey_objects(root),
        *_survey_runs(home / "logs", LOGS),
        *_survey_runs(home / "work", WORK),
        *_survey_runs(home / "pytest", WORK),
        *_survey_caches(home / "caches"),
        *_survey_sides(home / "sides"),
        *_survey_kept(home / FOLDER),
        *_survey_leftovers(home, root),
    ]
    old = now_s - _LEFTOVER_AGE_S
    return [one for one in found if one.what != LEFTOVERS or 0.0 < one.used_at < old]


def survey_streams(home: Path) -> list[Holding]:
    """The event streams and results of runs, one file each, even if another holding contains them. Raises
    OSError.
    """
    places = ((STREAMS, home / "runs"), (RESULTS, home / "results"))
    return [_holding(what, *one) for what, place in places for one in _files(place)]


def measure(path: Path) -> tuple[int, float]:
    """The disk space in bytes of a file, or of a folder with its content, and its latest change."""
    size, latest = 0, 0.0
    for _, status in _walk(path):
        size += status.st_blocks * 512
        # A moved file keeps the times of its content; only its change time is new.
        latest = max(latest, status.st_mtime, status.st_ctime)
    return size, latest


def _survey_objects(root: Path) -> Iterator[Holding]:
    recency: dict[str, float] = defaultdict(float)
    named_by: dict[str, str] = {}
    for path, status in _files(root / "records"):
        kind = path.relative_to(root / "records").parts[0]
        what = RECORD_KINDS.get(kind, kind)
        data = b""
        with contextlib.suppress(FileNotFoundError):
            data = path.read_bytes()
        for digest in find_digests(data):
            recency[digest] = max(recency[digest], status.st_mtime)
            named_by[digest] = min(what, named_by.get(digest, what))
        yield _holding(what, path, status)
    trees = {path.name: path for path in (root / "trees").glob("[0-9a-f][0-9a-f]/*")}
    blobs = (_files(folder) for folder in _entries(root) if len(folder.name) == 2)
    for path, status in chain.from_iterable(blobs):
        used_at = max(status.st_mtime, recency[path.name])
        tree = trees.pop(path.name, None)
        if tree is None:
            yield _holding(named_by.get(path.name, UNNAMED), path, status, used_at)
        else:
            size = status.st_blocks * 512 + measure(tree)[0]
            yield Holding(what=TREES, marker=path, size=size, used_at=used_at, folder=tree)
    for tree in trees.values():  # its listing has not been published yet, or never will be
        yield _whole(LEFTOVERS, tree)


def _survey_runs(place: Path, what: str) -> Iterator[Holding]:
    """A run's directory, or a process's own log, as a whole."""
    for path in _entries(place):
        # A runner moves its log away when it ends.
        is_left = fnmatch(path.name, RUNNER_LOG) and path.is_file()
        yield _whole(LEFTOVERS if is_left else what, path)


def _survey_caches(caches: Path) -> Iterator[Holding]:
    for folder in _entries(caches):
        if folder.is_dir() and not folder.is_symlink():
            yield _whole(CACHES, folder, caches / f"{folder.name}.lock")


def _survey_sides(place: Path) -> Iterator[Holding]:
    """Folders in which versions are compared; hidden and ``tmp-`` ones are of killed processes."""
    for path in _entries(place):
        yield _whole(LEFTOVERS if path.name.startswith((".", "tmp-")) else SIDES, path)


def _survey_kept(place: Path) -> Iterator[Holding]:
    """Results of functions of tests; a killed process was removing the hidden ones."""
    for path in _entries(place):
        if path.name.startswith("."):
            yield _whole(LEFTOVERS, path)
        elif (path / LOCK).exists():  # otherwise it is being made
            yield _whole(KEPT, path, path / LOCK)


def _survey_leftovers(home: Path, root: Path) -> Iterator[Holding]:
    """Leftovers of killed processes, and damaged objects that were moved aside."""
    compiled = home / "toolchains" / "pycache"
    if compiled.is_dir():
        yield _whole(COMPILED, compiled)
    trees = root / "trees"
    for place in (home / "tmp", root / "tmp", root / "damaged", trees / "tmp", trees / "damaged"):
        for path in _entries(place):
            yield _whole(LEFTOVERS, path)
    for path in _entries(home / "toolchains"):
        if path.name.startswith(".") or (path.is_symlink() and not path.exists()):
            yield _whole(LEFTOVERS, path)


def _whole(what: str, path: Path, lock: Path | None = None) -> Holding:
    """A file, or a folder with its content; what has disappeared meanwhile was never used."""
    size, used_at = measure(path)
    if lock is not None:
        used_at = max(used_at, measure(lock)[1])
    folder = path if path.is_dir() and not path.is_symlink() else None
    return Holding(what=what, marker=path, size=size, used_at=used_at, folder=folder, lock=lock)


def _holding(what: str, path: Path, status: os.stat_result, used_at: float = 0.0) -> Holding:
    return Holding(
        what=what,
        marker=path,
        size=status.st_blocks * 512,
        used_at=max(status.st_mtime, used_at),
    )


def _files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    for top in _entries(folder):
        for path, status in _walk(top):
            if not stat.S_ISDIR(status.st_mode):
                yield path, status


def _walk(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    waiting = [path]
    while waiting:
        here = waiting.pop()
        try:
            status = here.lstat()
            if stat.S_ISDIR(status.st_mode):
                waiting += reversed(_entries(here))
        except FileNotFoundError:
            continue
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            continue  # such deep content is removed with the rest, and not counted
        yield here, status


def _entries(folder: Path) -> Sequence[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return ()
