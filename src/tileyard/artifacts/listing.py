"""What a tree consists of, and which names and links may be in one. Pure: touches no file system."""

from collections.abc import Iterable

import msgspec

from tileyard.artifacts.keys import canonical_json
from tileyard.decoding import decode_json
from tileyard.errors import DamagedError, UsageError
from tileyard.model import Digest, Record

LISTING_VERSION = 1
LONGEST_NAME, LONGEST_PATH, MOST_NAMES = 255, 1024, 64
MOST_HOPS = 40
"""How many links the kernel follows before it calls them a circle."""


class TreeFile(Record, tag="file"):
    """A file by its content; of its mode only whether it can be run is kept."""

    digest: Digest
    size: int
    is_executable: bool = False


class TreeLink(Record, tag="link"):
    """A symbolic link whose target, relative to the link's own folder, lies in the tree."""

    target: str


class TreeFolder(Record, tag="folder"):
    """An empty directory. Others follow from what lies in them."""


Entry = TreeFile | TreeLink | TreeFolder


class Listing(Record):
    """A tree's entries by path, relative and with ``/`` between names."""

    entries: dict[str, Entry]
    version: int = LISTING_VERSION

    @property
    def size(self) -> int:
        """The size of all files together, in bytes."""
        return sum(entry.size for entry in self.entries.values() if isinstance(entry, TreeFile))

    def with_links_last(self) -> list[tuple[str, Entry]]:
        """All entries in the order in which they are made: nothing is ever written through a link."""
        return sorted(self.entries.items(), key=lambda item: isinstance(item[1], TreeLink))

    def folders(self) -> list[str]:
        """Every directory of the tree but its root, parents before what lies in them."""
        found = {path for path, entry in self.entries.items() if isinstance(entry, TreeFolder)}
        return sorted(found | _parents(self.entries))


def encode_listing(listing: Listing) -> bytes:
    """The bytes whose digest names the tree: equal trees have equal ones."""
    return canonical_json(listing).encode()


def decode_listing(data: bytes) -> Listing:
    """A listing that keeps all rules. Raises DamagedError, in one line, where it does not."""
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
    """Raise UsageError, in one line, for a name or link that no tree may have."""
    entries = listing.entries
    for path in entries:
        _check_path(path)
    parents = _parents(entries)
    for path, entry in entries.items():
        if path in parents:
            raise UsageError(f"{path!r} is an entry and holds others")
        if isinstance(entry, TreeFile) and entry.size < 0:
            raise UsageError(f"{path!r} has a size below zero")
        if isinstance(entry, TreeLink):
            _check_link(path, entry.target, entries)


def _check_path(path: str) -> None:
    names = path.split("/")
    if any(name in ("", ".", "..") or "\0" in name for name in names):
        raise UsageError(f"{path!r} is not a plain path below the tree's root")
    if len(names) > MOST_NAMES or len(path) > LONGEST_PATH or max(map(len, names)) > LONGEST_NAME:
        raise UsageError(f"the path {path[:60]!r}... is too long")
    _require_text(path, f"the name {path!a}")


def _check_link(path: str, target: str, entries: dict[str, Entry]) -> None:
    """Follow a link as the kernel would, for what it names may be reached through other links."""
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
        # One that is absolute is refused when it is looked at itself.
        ahead += entry.target.split("/")[::-1]


def _require_text(text: str, what: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{what} is not UTF-8") from None


def _parents(paths: Iterable[str]) -> set[str]:
    """Every directory that the paths lie in, but the root."""
    found: set[str] = set()
    for path in paths:
        end = path.rfind("/")
        while end > 0 and path[:end] not in found:
            found.add(path[:end])
            end = path.rfind("/", 0, end)
    return found
