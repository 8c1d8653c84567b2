"""Everything in a home that can be made again, with its size and when it was last used."""

import errno
import os
import stat
from collections import defaultdict
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path

from tileyard.artifacts.references import find_digests
from tileyard.model import Digest, Record

RECORD_KINDS = {
    "build": "artifacts",
    "binary": "artifacts",
    "golden": "golden results",
    "answer": "author answers",
}
"""What people call the records of a kind, and the blobs that they name. Others keep their names."""
TREES, LOGS, WORK = "trees", "logs", "work directories"
STREAMS = "event streams"
LEFTOVERS, UNNAMED = "leftovers", "blobs that nothing names"
CACHES, COMPILED = "build folders", "compiled Python"
RUNNER_LOG = "runner-*.log"
"""The output of a runner while it lives; what an engine that was killed could not move to where it belongs."""
_LEFTOVER_AGE_S = 86_400.0


class Holding(Record):
    """Something that is removed as a whole. Times are seconds since the epoch, of the file system.

    ``marker`` is the file whose time says when it was last used; it goes first. ``folder`` is a
    directory that goes with it, None for none; ``lock`` is locked by who works in it. ``used_at`` may be later than the marker's own time:
    what a record names is as recent as the record.
    """

    what: str
    marker: Path
    size: int
    used_at: float
    folder: Path | None = None
    lock: Path | None = None


def survey_home(home: Path, now_s: float) -> list[Holding]:
    """All holdings of a home. Leftovers are listed once they are a day old. Raises OSError."""
    root = home / "objects"
    found = [
        *_survey_objects(root),
        *_survey_runs(home / "logs", LOGS),
        *_survey_runs(home / "work", WORK),
        *_survey_runs(home / "pytest", WORK),
        *_survey_caches(home / "caches"),
        *_survey_leftovers(home, root),
    ]
    old = now_s - _LEFTOVER_AGE_S
    return [holding for holding in found if holding.what != LEFTOVERS or holding.used_at < old]


def survey_streams(home: Path) -> list[Holding]:
    """What runs have told as they went, a file each, whoever else holds it. Raises OSError."""
    return [_holding(STREAMS, path, status) for path, status in _files(home / "runs")]


def measure(path: Path) -> tuple[int, float]:
    """What a file, or a folder with all that is in it, takes on disk, and its latest change."""
    size, latest = 0, 0.0
    for status in _statuses(path):
        size += status.st_blocks * 512
        # What was moved here keeps the times of its content, and only that of its state is new.
        latest = max(latest, status.st_mtime, status.st_ctime)
    return size, latest


def _survey_objects(root: Path) -> Iterator[Holding]:
    recency: dict[str, float] = defaultdict(float)
    named_by: dict[str, str] = {}
    for path, status in _files(root / "records"):
        kind = path.relative_to(root / "records").parts[0]
        what = RECORD_KINDS.get(kind, kind)
        for digest in find_digests(_read(path)):
            recency[digest] = max(recency[digest], status.st_mtime)
            named_by[digest] = min(what, named_by.get(digest, what))
        yield _holding(what, path, status)
    trees = {path.name: path for path in (root / "trees").glob("[0-9a-f][0-9a-f]/*")}
    for path, status in _blobs(root):
        digest = Digest(path.name)
        used_at = max(status.st_mtime, recency[digest])
        tree = trees.pop(digest, None)
        if tree is None:
            what = named_by.get(digest, UNNAMED)
            yield _holding(what, path, status, used_at)
        else:
            size = status.st_blocks * 512 + measure(tree)[0]
            yield Holding(what=TREES, marker=path, size=size, used_at=used_at, folder=tree)
    for tree in trees.values():  # its listing has not come yet, or never will
        yield from _leftover(tree)


def _survey_runs(place: Path, what: str) -> Iterator[Holding]:
    """A run's directory, or a process's own log, as a whole."""
    for path in _entries(place):
        if (
            fnmatch(path.name, RUNNER_LOG) and path.is_file()
        ):  # its runner moves it away when it ends
            yield from _leftover(path)
            continue
        size, latest = measure(path)
        folder = path if path.is_dir() and not path.is_symlink() else None
        yield Holding(what=what, marker=path, size=size, used_at=latest, folder=folder)


def _survey_caches(caches: Path) -> Iterator[Holding]:
    """What build tools keep from one build to the next."""
    for folder in _entries(caches):
        if folder.is_dir() and not folder.is_symlink():
            lock = caches / f"{folder.name}.lock"
            size, latest = measure(folder)
            used_at = max(latest, measure(lock)[1])
            yield Holding(
                what=CACHES, marker=folder, size=size, used_at=used_at, folder=folder, lock=lock
            )


def _survey_leftovers(home: Path, root: Path) -> Iterator[Holding]:
    """What killed processes left behind, and what was damaged and moved aside."""
    places = (
        home / "tmp",
        root / "tmp",
        root / "damaged",
        root / "trees" / "tmp",
        root / "trees" / "damaged",
    )
    candidates = [path for place in places for path in _entries(place)]
    compiled = home / "toolchains" / "pycache"
    if compiled.is_dir():
        size, latest = measure(compiled)
        yield Holding(what=COMPILED, marker=compiled, size=size, used_at=latest, folder=compiled)
    candidates += [
        path
        for path in _entries(home / "toolchains")
        if path.name.startswith(".") or (path.is_symlink() and not path.exists())
    ]
    for path in candidates:
        yield from _leftover(path)


def _leftover(path: Path) -> Iterator[Holding]:
    size, latest = measure(path)
    if latest:
        folder = path if path.is_dir() and not path.is_symlink() else None
        yield Holding(what=LEFTOVERS, marker=path, size=size, used_at=latest, folder=folder)


def _holding(what: str, path: Path, status: os.stat_result, used_at: float = 0.0) -> Holding:
    return Holding(
        what=what,
        marker=path,
        size=status.st_blocks * 512,
        used_at=max(status.st_mtime, used_at),
    )


def _blobs(root: Path) -> Iterator[tuple[Path, os.stat_result]]:
    for folder in _entries(root):
        if len(folder.name) == 2:
            yield from _files(folder)


def _files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Every file below a folder that is still there when its turn comes."""
    for path in _entries(folder):
        try:
            status = path.lstat()
        except FileNotFoundError:
            continue
        if stat.S_ISDIR(status.st_mode):
            yield from _files(path)
        else:
            yield path, status


def _statuses(path: Path) -> Iterator[os.stat_result]:
    waiting = [path]
    while waiting:
        here = waiting.pop()
        try:
            status = here.lstat()
            if stat.S_ISDIR(status.st_mode):
                waiting += _entries(here)
        except FileNotFoundError:
            continue
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            continue  # what lies so deep is removed with the rest, and not counted
        yield status


def _entries(folder: Path) -> Iterable[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return ()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
