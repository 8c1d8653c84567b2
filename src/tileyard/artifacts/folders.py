"""Folders on disk as listings: read, compared and made read-only."""

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from tileyard.artifacts.copying import open_plain
from tileyard.artifacts.keys import digest_chunks
from tileyard.artifacts.listing import (
    LONGEST_PATH,
    MOST_NAMES,
    Entry,
    Listing,
    TreeFile,
    TreeFolder,
    TreeLink,
    check_listing,
)
from tileyard.errors import UsageError
from tileyard.model import Digest

FILE_MODE, PROGRAM_MODE = 0o444, 0o555
_OWNERS_OR_WRITABLE = 0o722
MOST_BYTES = 64 << 30
"""Most bytes in all files of a tree, and of the inputs of a step: so many are read within minutes."""
SPARSE_BYTES, SPARSE_SHARE = 1 << 30, 100
"""A file of more than these bytes, of which less than a hundredth is on the disk, is all holes."""
_CHUNK = 1 << 20

Stamp = tuple[int, int, int, int]
"""Of an entry of a folder: time of change, size, inode and mode."""


def read_listing(folder: Path) -> Listing:
    """What a folder consists of, by content. Raises UsageError for what no tree can hold."""
    entries: dict[str, Entry] = {}
    for path, status in walk(folder):
        if stat.S_ISLNK(status.st_mode):
            entries[path] = TreeLink(target=read_link(folder / path))
        elif stat.S_ISDIR(status.st_mode):
            entries[path] = TreeFolder()
        else:
            entries[path] = TreeFile(
                digest=digest_file(folder / path),
                size=status.st_size,
                is_executable=bool(status.st_mode & stat.S_IXUSR),
            )
    holding = {path.rpartition("/")[0] for path in entries}
    return Listing(entries={path: entry for path, entry in entries.items() if path not in holding})


def check_folder(folder: Path) -> int:
    """The size of all files of a folder. Raises UsageError, in one line, for what no tree can hold."""
    if not folder.is_dir():
        raise UsageError(f"{str(folder)!r} is not a directory")
    entries: dict[str, Entry] = {}
    size = 0
    for path, status in walk(folder):
        if stat.S_ISLNK(status.st_mode):
            entries[path] = TreeLink(target=read_link(folder / path))
        elif stat.S_ISREG(status.st_mode):
            entries[path] = TreeFile(digest=Digest(""), size=status.st_size)
            size = add_size(size, path, status)
    check_listing(Listing(entries=entries))
    return size


def add_size(size: int, path: str, status: os.stat_result) -> int:
    """``size`` and that of a file. Raises UsageError where they are too much to be read."""
    if status.st_size > SPARSE_BYTES and status.st_blocks * 512 * SPARSE_SHARE < status.st_size:
        raise UsageError(f"{path!r} has {status.st_size:,} bytes, nearly all of them holes")
    if size + status.st_size > MOST_BYTES:
        raise UsageError(f"with {path!r} there are more than {MOST_BYTES >> 30} GiB")
    return size + status.st_size


def walk(folder: Path, below: str = "") -> Iterator[tuple[str, os.stat_result]]:
    """Everything in a folder, parents first, by path. Raises UsageError for what is unreadable
    or neither file, directory nor link.
    """
    try:
        with os.scandir(folder / below) as found:
            entries = sorted(found, key=lambda entry: entry.name)
        for entry in entries:
            path = f"{below}/{entry.name}" if below else entry.name
            status = entry.stat(follow_symlinks=False)
            kind = stat.S_IFMT(status.st_mode)
            if kind not in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK):
                raise UsageError(f"{path!r} is neither a file, a directory nor a link")
            if path.count("/") >= MOST_NAMES or len(path) > LONGEST_PATH:
                raise UsageError(f"the path {path[:60]!r}... is too long")
            yield path, status
            if kind == stat.S_IFDIR:
                yield from walk(folder, path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UsageError(f"cannot read {str(folder / below)!r}: {error.strerror}") from error


def compare(folder: Path, listing: Listing) -> dict[str, Stamp]:
    """The stamps of all that is there. Raises UsageError where names, kinds or sizes differ."""
    stamps = {"": _stamp(folder.lstat())}
    directories = set(listing.folders())
    expected = directories | listing.entries.keys()
    for path, status in walk(folder):
        if path not in expected:
            raise UsageError(f"{path!r} was added")
        entry = listing.entries.get(path)
        if path in directories:
            is_same = stat.S_ISDIR(status.st_mode)
        elif isinstance(entry, TreeLink):
            is_same = stat.S_ISLNK(status.st_mode) and read_link(folder / path) == entry.target
        else:
            is_same = isinstance(entry, TreeFile) and _has_form(status, entry)
        if not is_same:
            raise UsageError(f"{path!r} was changed")
        stamps[path] = _stamp(status)
    missing = expected - stamps.keys()
    if missing:
        raise UsageError(f"{min(missing)!r} is gone")
    return stamps


def is_unchanged(folder: Path, stamps: Mapping[str, Stamp]) -> bool:
    """Whether a folder has the stamps that ``compare`` once gave: those of its directories change
    with every entry that comes or goes. Raises FileNotFoundError where the folder is gone.
    """
    root = str(folder.absolute())
    try:
        return all(_stamp(os.lstat(f"{root}/{path}")) == stamp for path, stamp in stamps.items())
    except FileNotFoundError:
        folder.lstat()
        return False


def _has_form(status: os.stat_result, entry: TreeFile) -> bool:
    owners = (PROGRAM_MODE if entry.is_executable else FILE_MODE) & stat.S_IRWXU
    is_plain = stat.S_ISREG(status.st_mode) and status.st_mode & _OWNERS_OR_WRITABLE == owners
    return is_plain and status.st_size == entry.size


def compare_contents(folder: Path, listing: Listing) -> None:
    """Raise UsageError where a file's content differs, or cannot be read."""
    for path, entry in listing.entries.items():
        if isinstance(entry, TreeFile) and digest_file(folder / path) != entry.digest:
            raise UsageError(f"{path!r} was changed")


def digest_file(path: Path) -> Digest:
    """The digest of a plain file. Raises UsageError where it is none, or cannot be read."""
    with os.fdopen(open_plain(path), "rb") as file:
        return digest_chunks(iter(lambda: file.read(_CHUNK), b""))


def freeze(folder: Path, most: int) -> None:
    """Take away the right to write, so that nobody changes a tree by accident, and what ``most`` lacks."""
    for path, status in list(walk(folder)):
        if stat.S_ISREG(status.st_mode):
            is_executable = status.st_mode & stat.S_IXUSR
            (folder / path).chmod((PROGRAM_MODE if is_executable else FILE_MODE) & most)
        elif stat.S_ISDIR(status.st_mode):
            (folder / path).chmod(PROGRAM_MODE & most)


def read_link(path: Path) -> str:
    """A link's target as it is written. Raises UsageError."""
    try:
        return os.readlink(path)  # noqa: PTH115 - a Path would drop a trailing slash or dot
    except OSError as error:
        raise UsageError(f"cannot read {str(path)!r}: {error.strerror}") from error


def _stamp(status: os.stat_result) -> Stamp:
    return status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode
