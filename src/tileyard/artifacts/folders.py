"""Defines the listing of a tree and its legal names and links, and reads folders on disk as listings."""

import fcntl
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from tileyard.artifacts.copying import open_plain, remove_folder, unreadable, writing_to
from tileyard.artifacts.objects import canonical_json, chunks_of, digest_chunks
from tileyard.artifacts.pins import gate, try_lock
from tileyard.base.decoding import decode_json
from tileyard.base.errors import DamagedError, UsageError
from tileyard.base.model import Digest, Record
from tileyard.base.modes import make_folder, mode_in, open_file, write_file

LISTING_VERSION = 1
MOST_HOPS = 40
"""Number of links that the kernel follows before it reports a loop."""
_OWNERS_OR_WRITABLE = 0o722
MOST_BYTES = 64 << 30
"""Most bytes in all files of a tree, and of the inputs of a step: that many are read within minutes."""
Stamp = tuple[int, int, int, int]
"""For an entry of a folder: change time, size, inode and mode."""
FOLDER = "kept"
"""The folder below the data directory with one folder per key."""


LONGEST_NAME, LONGEST_PATH, MOST_NAMES = 255, 1024, 64
FILE_MODE, PROGRAM_MODE = 0o444, 0o555
SPARSE_BYTES, SPARSE_SHARE = 1 << 30, 100
"""A file with more than these bytes, of which less than a hundredth is on the disk, counts as only holes."""


class TreeFile(Record, tag="file"):
    """A file by its content; of its mode only the right to run it is kept."""

    digest: Digest
    size: int
    is_executable: bool = False


class TreeLink(Record, tag="link"):
    """A symbolic link whose target, relative to the link's own folder, is in the tree."""

    target: str


class TreeFolder(Record, tag="folder"):
    """An empty directory. Other directories follow from their content."""


Entry = TreeFile | TreeLink | TreeFolder


class Listing(Record):
    """A tree's entries by path, relative and with ``/`` between names."""

    entries: dict[str, Entry]
    version: int = LISTING_VERSION

    def with_links_last(self) -> list[tuple[str, Entry]]:
        """All entries in the order of creation: nothing is ever written through a link."""
        return sorted(self.entries.items(), key=lambda item: isinstance(item[1], TreeLink))

    def narrowed(self, part: str) -> "Listing":
        """The entries at or below a path, whose names are patterns as in a shell; empty: all."""
        names = part.split("/") if part else []

        def fits(path: str) -> bool:
            own = path.split("/")
            return len(own) >= len(names) and all(map(fnmatchcase, own, names))

        return Listing(entries={path: one for path, one in self.entries.items() if fits(path)})

    @property
    def has_files(self) -> bool:
        """Whether it contains anything but folders."""
        return not all(isinstance(entry, TreeFolder) for entry in self.entries.values())

    def folders(self) -> list[str]:
        """Every directory of the tree but its root, parents first."""
        found = {path for path, entry in self.entries.items() if isinstance(entry, TreeFolder)}
        return sorted(found | _parents(self.entries))


def encode_listing(listing: Listing) -> bytes:
    """The bytes whose digest is the name of the tree: equal trees have equal ones."""
    return canonical_json(listing).encode()


def decode_listing(data: bytes) -> Listing:
    """A listing that follows all rules. Raises DamagedError, in one line, if it does not."""
    try:
        listing = decode_json(data, Listing)
    except msgspec.DecodeError as error:
        raise DamagedError(f"a tree's listing cannot be read: {error}") from error
    if listing.version != LISTING_VERSION:
        raise DamagedError(f"a tree's listing has the version {listing.version}, not 1")
    try:
        check_listing(listing)
    except UsageError as error:
        raise DamagedError(error.message) from error
    if encode_listing(listing) != data:
        raise DamagedError("a tree's listing is not in its one canonical form")
    return listing


def check_listing(listing: Listing) -> None:
    """Raise UsageError, in one line, for a name or link that a tree must not have."""
    entries = listing.entries
    for path in entries:
        check_path(path)
    parents = _parents(entries)
    for path, entry in entries.items():
        if path in parents:
            raise UsageError(f"{path!r} is an entry and holds others")
        if isinstance(entry, TreeFile) and entry.size < 0:
            raise UsageError(f"{path!r} has a size below zero")
        if isinstance(entry, TreeLink):
            check_link(path, entry.target, entries)


def check_path(path: str) -> None:
    """Raise UsageError for a name that a tree must not have."""
    names = path.split("/")
    if any(name in ("", ".", "..") or "\0" in name for name in names):
        raise UsageError(f"{path!r} is not a plain path below the tree's root")
    if len(names) > MOST_NAMES or len(path) > LONGEST_PATH or max(map(len, names)) > LONGEST_NAME:
        raise UsageError(f"the path {path[:60]!r}... is too long")
    _require_text(path, f"the name {path!a}")


def check_link(path: str, target: str, entries: dict[str, Entry]) -> None:
    """Raise UsageError for a link that leads out. It is followed as the kernel would, through others."""
    _require_text(target, f"the target of the link {path!r}")
    if not target or "\0" in target or len(target) > LONGEST_PATH:
        raise UsageError(f"the link {path!r} has no usable target")
    here = path.split("/")[:-1]
    ahead = target.split("/")[::-1]
    hops = 0
    while ahead:
        name = ahead.pop()
        if (name == ".." and not here) or target.startswith("/"):
            raise UsageError(f"the link {path!r} leaves the tree: it points to {target!r}")
        if name == "..":
            here.pop()
            continue
        if name in ("", "."):
            continue
        entry = entries.get("/".join((*here, name)))
        if not isinstance(entry, TreeLink):
            here.append(name)
            continue
        hops += 1
        if hops > MOST_HOPS or len(here) > LONGEST_PATH:
            raise UsageError(f"the link {path!r} leads in a circle")
        # An absolute link is refused when it is checked itself.
        ahead += entry.target.split("/")[::-1]


def _require_text(text: str, what: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{what} is not UTF-8") from None


def _parents(paths: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for path in paths:
        end = path.rfind("/")
        while end > 0 and path[:end] not in found:
            found.add(path[:end])
            end = path.rfind("/", 0, end)
    return found


# ---- on disk -------------------------------------------------------------------------------------


def read_listing(folder: Path) -> Listing:
    """The listing of a folder, by content. Raises UsageError for what a tree cannot contain."""
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


def assemble(folder: Path, listing: Listing, put: Callable[[Digest, Path, int], None]) -> None:
    """Make a folder, new, from its listing; ``put`` makes a file of a content, at a path, in a mode."""
    folder.mkdir()
    for path in listing.folders():
        (folder / path).mkdir()
    for path, entry in listing.with_links_last():
        if isinstance(entry, TreeLink):
            (folder / path).symlink_to(entry.target)
        elif isinstance(entry, TreeFile):
            put(entry.digest, folder / path, 0o755 if entry.is_executable else 0o644)


def check_folder(folder: Path) -> int:
    """The bytes of all files of a folder. Raises UsageError, in one line, for what a tree cannot contain."""
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
    """``size`` plus that of a file. Raises UsageError if the sum is too much to be read."""
    if status.st_size > SPARSE_BYTES and status.st_blocks * 512 * SPARSE_SHARE < status.st_size:
        raise UsageError(f"{path!r} has {status.st_size:,} bytes, nearly all of them holes")
    if size + status.st_size > MOST_BYTES:
        raise UsageError(f"with {path!r} there are more than {MOST_BYTES >> 30} GiB")
    return size + status.st_size


def walk(folder: Path, below: str = "") -> Iterator[tuple[str, os.stat_result]]:
    """All of a folder, parents first, by path. Raises UsageError for what no tree may contain."""
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
        raise unreadable(folder / below, error) from error


def compare(folder: Path, listing: Listing) -> dict[str, Stamp]:
    """The stamps of all entries. Raises UsageError if names, kinds or sizes differ."""
    stamps = {"": stamp_of(folder.lstat())}
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
        stamps[path] = stamp_of(status)
    missing = expected - stamps.keys()
    if missing:
        raise UsageError(f"{min(missing)!r} is gone")
    return stamps


def compare_part(folder: Path, part: Listing) -> dict[str, Stamp]:
    """As ``compare``, for the entries of a part of a folder; other entries are ignored."""
    stamps = {}
    for path, entry in part.entries.items():
        try:
            status = (folder / path).lstat()
        except FileNotFoundError:
            folder.lstat()
            raise UsageError(f"{path!r} is gone") from None
        if isinstance(entry, TreeLink):
            is_same = stat.S_ISLNK(status.st_mode) and read_link(folder / path) == entry.target
        elif isinstance(entry, TreeFile):
            is_same = _has_form(status, entry)
        else:
            is_same = stat.S_ISDIR(status.st_mode)
        if not is_same:
            raise UsageError(f"{path!r} was changed")
        stamps[path] = stamp_of(status)
    return stamps


def is_unchanged(folder: Path, stamps: Mapping[str, Stamp]) -> bool:
    """Whether a folder still has ``compare``'s stamps, of directories too. Raises FileNotFoundError."""
    root = str(folder.absolute())
    try:
        return all(stamp_of(os.lstat(f"{root}/{path}")) == stamp for path, stamp in stamps.items())
    except FileNotFoundError:
        folder.lstat()
        return False


def _has_form(status: os.stat_result, entry: TreeFile) -> bool:
    owners = (PROGRAM_MODE if entry.is_executable else FILE_MODE) & stat.S_IRWXU
    is_plain = stat.S_ISREG(status.st_mode) and status.st_mode & _OWNERS_OR_WRITABLE == owners
    return is_plain and status.st_size == entry.size


def compare_contents(folder: Path, listing: Listing) -> None:
    """Raise UsageError if a file's content differs, or cannot be read."""
    for path, entry in listing.entries.items():
        if isinstance(entry, TreeFile) and digest_file(folder / path) != entry.digest:
            raise UsageError(f"{path!r} was changed")


def digest_file(path: Path) -> Digest:
    """The digest of a plain file. Raises UsageError if it is not one, or cannot be read."""
    with os.fdopen(open_plain(path), "rb") as file:
        return digest_chunks(chunks_of(file))


def freeze(folder: Path, most: int) -> None:
    """Remove the right to write, lest anybody change a tree by accident, and rights that ``most`` lacks."""
    for path, status in list(walk(folder)):
        if stat.S_ISREG(status.st_mode):
            mode = PROGRAM_MODE if status.st_mode & stat.S_IXUSR else FILE_MODE
            (folder / path).chmod(mode & most)
        elif stat.S_ISDIR(status.st_mode):
            (folder / path).chmod(PROGRAM_MODE & most)


def read_link(path: Path) -> str:
    """A link's target as it is written. Raises UsageError."""
    try:
        return os.readlink(path)  # noqa: PTH115 - a Path would drop a trailing slash or dot
    except OSError as error:
        raise unreadable(path, error) from error


def stamp_of(status: os.stat_result) -> Stamp:
    """The stamp of an entry with this status."""
    return status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode


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
