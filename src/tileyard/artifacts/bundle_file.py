"""Writes and reads bundle files (``.tyb``), in a form that is checked rather than parsed.
One is a tar archive in one zstd frame, ``manifest.json`` and then ``contents/<digest>`` in the
manifest's order, then the SHA-256 of everything before in a frame that zstd skips. Headers follow
from the manifest, so the reader compares bytes, and nothing can name a place to write to. Contents
are verified in a private folder before they are published.
"""

import contextlib
import hashlib
import os
import re
import shutil
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Literal

import msgspec
import zstandard

from tileyard.artifacts.compat import Requirements, unmet
from tileyard.artifacts.copying import copy_file, scratch_folder, writing_to
from tileyard.artifacts.folders import Listing, TreeFile, assemble, decode_listing
from tileyard.artifacts.objects import ObjectStore, find_digests
from tileyard.artifacts.trees import Trees
from tileyard.base.decoding import decode_json
from tileyard.base.errors import BundleError, DamagedError
from tileyard.base.model import Digest, Record
from tileyard.base.modes import make_folder

BUNDLE_VERSION = 1
MOST_CONTENTS = 1_000_000
MOST_BYTES = 256 << 30
LONGEST_TEXT = 1000
_DIGEST = re.compile(r"[0-9a-f]{40}")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
Kind = Literal["toolchain", "selection", "winners"]
MANIFEST = "manifest.json"
BIGGEST_MANIFEST = 64 << 20
_LEVEL = 6
_WINDOW = 1 << 26
"""More than the compressor ever asks for, so that no file can make its reader reserve gigabytes."""
_BLOCK = tarfile.BLOCKSIZE
_END = b"\0" * (2 * _BLOCK)
_FEED = 4096
"""Compressed bytes per step: even in a file with extreme expansion they yield at most 130 MB at once."""
_PIECE = 1 << 20
MOST_ENTRIES = 2_000_000
_ATTEMPTS = 100
"""Attempts to make a folder in one that other processes remove when it is empty."""
_SPARE_BYTES = 64 << 20
"""Bytes that stay free on the disk for other users."""
_FOOT = b"\x5e\x2a\x4d\x18" + (32).to_bytes(4, "little")
_FOOT_SIZE = len(_FOOT) + 32


FREE_BYTES, EXPANSION = 4 << 30, 1000
"""A bundle may declare the larger of this many bytes and this many times its own size."""


class Content(Record):
    """A piece of content: its digest and its size in bytes."""

    digest: Digest
    size: int


class Reference(Record):
    """The kind and key of a record."""

    kind: str
    key: str


class PackedRecord(Reference):
    """A record of the store whose data is a content."""

    data: Digest


class BundleManifest(Record):
    """Everything in a bundle: ``contents``, sorted by digest. ``blobs``, ``trees`` (by their
    listings) and ``records`` go into the store; ``cases`` is the case list, empty for none.
    ``commit`` and ``toolchain``: its origin; ``details``: the maker's part as JSON text.
    """

    kind: Kind
    commit: str
    toolchain: str
    target: str
    requires: Requirements
    contents: tuple[Content, ...]
    blobs: tuple[Digest, ...] = ()
    trees: tuple[Digest, ...] = ()
    records: tuple[PackedRecord, ...] = ()
    cases: str = ""
    details: str = ""
    version: int = BUNDLE_VERSION

    @property
    def size(self) -> int:
        """The size of all contents together, in bytes."""
        return sum(content.size for content in self.contents)


class Expected(Record):
    """The requirements on a bundle. Empty fields require nothing. A commit may be abbreviated."""

    kind: Literal["", "toolchain", "selection", "winners"] = ""
    commit: str = ""
    target: str = ""


class _Versioned(Record):
    """The only field that every version has."""

    version: int


def unsound(name: str, reason: str) -> BundleError:
    """The error for a bundle that cannot be trusted."""
    return BundleError(f"{name} is not a sound bundle: {reason}")


def decode_manifest(data: bytes, name: str, file_size: int) -> BundleManifest:
    """A manifest that follows all rules, from the bundle ``name`` of this size. Raises BundleError."""
    try:
        version = decode_json(data, _Versioned).version
        if version != BUNDLE_VERSION:
            age = "newer" if version > BUNDLE_VERSION else "older"
            raise BundleError(
                f"{name} cannot be used here: bundle format: {BUNDLE_VERSION} is what this tileyard"
                f" reads, found {version}, which is {age}",
                "use the tileyard that made it, or make it again",
            )
        manifest = decode_json(data, BundleManifest)
    except msgspec.DecodeError as error:
        raise unsound(name, f"its manifest is not right ({error})") from None
    reason = _find_fault(manifest, max(FREE_BYTES, EXPANSION * file_size))
    if reason:
        raise unsound(name, reason)
    return manifest


def find_mismatches(manifest: BundleManifest, expected: Expected) -> tuple[str, ...]:
    """The differences between a bundle and the expected one."""
    pairs = [("kind", expected.kind, manifest.kind), ("target", expected.target, manifest.target)]
    found = [
        unmet(f"bundle's {what}", needed, has)
        for what, needed, has in pairs
        if needed and needed != has
    ]
    if expected.commit and not is_same_commit(expected.commit, manifest.commit):
        found.append(unmet("commit", expected.commit, manifest.commit))
    return tuple(found)


def is_same_commit(one: str, other: str) -> bool:
    """Whether two names of commits are equal, or one abbreviates the other to at least 7 digits."""
    short, long = sorted((one.lower(), other.lower()), key=len)
    return short == long or (len(short) >= 7 and long.startswith(short))


def _find_fault(manifest: BundleManifest, limit: int) -> str:
    sizes = {content.digest: content.size for content in manifest.contents}
    digests = [content.digest for content in manifest.contents]
    named = {record.data for record in manifest.records} | {*manifest.blobs, *manifest.trees}
    if manifest.cases:
        named.add(Digest(manifest.cases))
    if len(digests) > MOST_CONTENTS:
        return f"it has more than {MOST_CONTENTS} entries"
    if any(not _DIGEST.fullmatch(digest) for digest in digests):
        return "an entry's name is not a digest"
    if digests != sorted(sizes):
        return "its entries are not sorted, or not different"
    if not all(0 <= size <= MOST_BYTES for size in sizes.values()):
        return "an entry's size is below zero, or more than it can be trusted with"
    if manifest.size > min(limit, MOST_BYTES):
        return f"it declares {manifest.size} bytes, which is more than it can be trusted with"
    if not named <= sizes.keys():
        return f"it names {min(named - sizes.keys())!r}, which is not in it"
    if not all(text.isprintable() and len(text) <= LONGEST_TEXT for text in _texts(manifest)):
        return "a text of its manifest is too long, or not one line"
    if not all(_NAME.fullmatch(r.kind) and _NAME.fullmatch(r.key) for r in manifest.records):
        return "a record's name is not one"
    return ""


def _texts(manifest: BundleManifest) -> Iterator[str]:
    """The texts that are shown to people, or compared with what they asked for."""
    yield from (manifest.commit, manifest.toolchain, manifest.target)
    for value in msgspec.structs.astuple(manifest.requires):
        if isinstance(value, str):
            yield value
        elif isinstance(value, tuple):
            yield from value
    yield from manifest.requires.prerequisites.texts()


class BundleWriter:
    """Writes a bundle into an open file, front to back."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._sum = hashlib.sha256()
        self._compressor = zstandard.ZstdCompressor(
            level=_LEVEL, write_checksum=True, write_content_size=False
        ).compressobj()

    def add(self, name: str, size: int, pieces: Iterable[bytes]) -> None:
        """Append a member; ``pieces`` make ``size`` bytes."""
        self._put(member_header(name, size))
        left = size
        for piece in pieces:
            left -= len(piece)
            self._put(piece)
        if left:
            raise BundleError(f"{name} changed while it was packed")
        self._put(bytes(-size % _BLOCK))

    def finish(self) -> None:
        """Write the end of the archive and the digest of all of it."""
        self._put(_END)
        self._write(self._compressor.flush())
        self._file.write(_FOOT + self._sum.digest())

    def _put(self, data: bytes) -> None:
        self._write(self._compressor.compress(data))

    def _write(self, data: bytes) -> None:
        self._sum.update(data)
        self._file.write(data)


class BundleReader:
    """Reads a bundle front to back. Every method raises BundleError if the file is wrong."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name
        self._sum = hashlib.sha256()
        self._pending = bytearray()
        self._at = 0
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW).decompressobj()
        with self._reading():
            self._size = os.fstat(file.fileno()).st_size
            self._left = self._size - _FOOT_SIZE
            if self._left < _BLOCK // 16:
                raise unsound(self._name, "it is too short")

    def read_manifest(self) -> BundleManifest:
        """The first member, checked against all rules."""
        header = self._take(_BLOCK)
        try:
            size = int(header[124:135], 8)
        except ValueError:
            raise unsound(self._name, "it does not begin with a manifest") from None
        if header != member_header(MANIFEST, size):
            raise unsound(self._name, "it does not begin with a manifest")
        if size > BIGGEST_MANIFEST:
            raise unsound(self._name, f"its manifest of {size} bytes is too large")
        return decode_manifest(b"".join(self._content(size)), self._name, self._size)

    def read(self, name: str, size: int) -> Iterator[bytes]:
        """The next member, which must have this name and size."""
        expected = member_header(name, size)
        if self._take(len(expected)) != expected:
            raise unsound(self._name, f"{name} is not at the place that the manifest gives")
        yield from self._content(size)

    def finish(self) -> None:
        """Check that nothing follows, and that the file is what was written."""
        if self._take(len(_END)) != _END:
            raise unsound(self._name, "it contains more than its manifest lists")
        while not self._decompressor.eof and self._feed():
            pass
        if self._at < len(self._pending) or self._left or not self._decompressor.eof:
            raise unsound(self._name, "it contains more than its manifest lists")
        self._check_foot()

    def verify(self) -> None:
        """Check that the file is what was written, without decompressing the rest of it."""
        with self._reading():
            while piece := self._file.read(min(self._left, _PIECE)):
                self._left -= len(piece)
                self._sum.update(piece)
        self._check_foot()

    def _check_foot(self) -> None:
        with self._reading():
            foot = self._file.read(_FOOT_SIZE + 1)
        if foot != _FOOT + self._sum.digest():
            raise unsound(self._name, "its bytes are not those that were written")

    def _content(self, size: int) -> Iterator[bytes]:
        left = size
        while left:
            piece = self._take(min(left, _PIECE))
            left -= len(piece)
            yield piece
        padding = bytes(-size % _BLOCK)
        if self._take(len(padding)) != padding:
            raise unsound(self._name, "its padding is not empty")

    def _take(self, size: int) -> bytes:
        """Exactly ``size`` bytes of the archive."""
        while len(self._pending) - self._at < size:
            del self._pending[: self._at]
            self._at = 0
            if not self._feed():
                raise unsound(self._name, "it is cut off")
        with memoryview(self._pending) as pending:
            data = bytes(pending[self._at : self._at + size])
        self._at += size
        return data

    def _feed(self) -> bool:
        """Decompress a little more; False at the end."""
        with self._reading():
            data = self._file.read(min(_FEED, self._left))
        if not data or self._decompressor.eof:
            return False
        self._left -= len(data)
        self._sum.update(data)
        try:
            self._pending += self._decompressor.decompress(data)
        except zstandard.ZstdError as error:
            raise unsound(self._name, f"it cannot be decompressed ({error})") from None
        if self._decompressor.unused_data:
            raise unsound(self._name, "it contains more than its manifest lists")
        return True

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise unsound(self._name, f"it cannot be read ({error.strerror})") from error


def member_name(digest: str) -> str:
    """The name of the member with this content."""
    return f"contents/{digest}"


def member_header(name: str, size: int) -> bytes:
    """The only possible header of a member with this name and size: no owner, no time, no link."""
    info = tarfile.TarInfo(name)
    info.size = size
    return info.tobuf(format=tarfile.GNU_FORMAT)


# ---- unpacking ----------------------------------------------------------------------------------


class Unpacking:
    """Unpacks one bundle into a store, in a private folder on its file system. Methods raise
    BundleError if it is not sound, and OSError if the folder cannot be written.
    """

    def __init__(self, name: str, manifest: BundleManifest, folder: Path) -> None:
        self._name = name
        self._manifest = manifest
        self._contents = folder / "contents"
        self._trees = folder / "trees"
        self._require_room(manifest.size)
        self._contents.mkdir()
        self._trees.mkdir()

    def unpack(self, reader: BundleReader) -> None:
        """Write every content under its digest, and check the digest."""
        for content in self._manifest.contents:
            state = hashlib.sha256()
            with (self._contents / content.digest).open("xb") as file:
                for piece in reader.read(member_name(content.digest), content.size):
                    state.update(piece)
                    file.write(piece)
            if state.hexdigest()[:40] != content.digest:
                raise unsound(
                    self._name, f"the content {content.digest} is not what its name promises"
                )
        reader.finish()

    def read(self, digest: Digest) -> bytes:
        """The bytes of a content."""
        return (self._contents / digest).read_bytes()

    def assemble_trees(self) -> None:
        """Assemble each tree from its listing. Contents that are needed once are moved."""
        sizes = {content.digest: content.size for content in self._manifest.contents}
        listings = {tree: self._read_listing(tree, sizes) for tree in self._manifest.trees}
        if sum(len(listing.entries) for listing in listings.values()) > MOST_ENTRIES:
            raise unsound(self._name, f"its trees have more than {MOST_ENTRIES} entries")
        uses = Counter(self._published())
        for listing in listings.values():
            uses.update(_files(listing))
        for digest in sizes:
            if digest not in uses:
                raise unsound(self._name, f"nothing names its entry {digest}")
        self._require_room(
            sum(sizes[digest] * (count - 1) for digest, count in uses.items() if count > 1)
        )
        for tree, listing in listings.items():
            self._assemble(self._trees / tree, listing, uses)

    def publish(self, objects: ObjectStore) -> None:
        """Move everything into the store: first what others name. Raises HomeError."""
        trees = Trees(objects)
        for digest in self._manifest.blobs:
            objects.adopt(self._contents / digest, digest)
        for digest in self._manifest.trees:
            if trees.adopt(self._trees / digest) != digest:
                raise unsound(self._name, f"the tree {digest} is not what its name promises")
        for record in self._manifest.records:
            data = self.read(record.data)
            if not _is_served(objects, record.kind, record.key, data):
                objects.put_record(record.kind, record.key, data)

    # ---- inside -----------------------------------------------------------------------------

    def _published(self) -> list[Digest]:
        """Contents that are published themselves, even if they are also in a tree."""
        manifest = self._manifest
        names = [*manifest.blobs, *manifest.trees, *(record.data for record in manifest.records)]
        return [*names, Digest(manifest.cases)] if manifest.cases else names

    def _read_listing(self, tree: Digest, sizes: dict[Digest, int]) -> Listing:
        try:
            listing = decode_listing(self.read(tree))
        except DamagedError as error:
            raise unsound(self._name, error.message) from None
        for path, entry in listing.entries.items():
            if isinstance(entry, TreeFile) and sizes.get(entry.digest) != entry.size:
                raise unsound(self._name, f"{path!r} of a tree is not in it, or has another size")
        return listing

    def _assemble(self, folder: Path, listing: Listing, uses: Counter[Digest]) -> None:
        def put(digest: Digest, path: Path, mode: int) -> None:
            content = self._contents / digest
            uses[digest] -= 1
            if uses[digest]:
                copy_file(content, path, mode)
            else:
                content.rename(path)
                path.chmod(mode)

        assemble(folder, listing, put)

    def _require_room(self, size: int) -> None:
        if size + _SPARE_BYTES > shutil.disk_usage(self._contents.parent).free:
            raise unsound(self._name, f"it needs {size} bytes, which this disk does not have")


@contextlib.contextmanager
def private_folder(root: Path) -> Iterator[Path]:
    """A folder below a store's ``tmp``, removed afterwards. Raises HomeError if it cannot be written."""
    parent = root / "tmp"
    made = [folder for folder in (parent, root, *root.parents) if not folder.exists()]
    try:
        with writing_to(root, "free some space"), contextlib.ExitStack() as stack:
            for left in reversed(range(_ATTEMPTS)):
                try:
                    make_folder(parent)
                    folder = stack.enter_context(scratch_folder(parent, "bundle."))
                    break
                except (FileNotFoundError, FileExistsError):  # others removed the empty parent
                    if not left:
                        raise
            yield folder
    finally:
        # A store in which anything was published keeps its tmp: other processes may be about to use it.
        with contextlib.suppress(OSError):
            if {*root.iterdir()} <= {parent}:
                for folder in made:
                    folder.rmdir()


def _files(listing: Listing) -> Iterator[Digest]:
    return (entry.digest for entry in listing.entries.values() if isinstance(entry, TreeFile))


def _is_served(objects: ObjectStore, kind: str, key: str, data: bytes) -> bool:
    """Whether the store already has a record for this key, and everything that the record names."""
    known = objects.get_record(kind, key)
    if known is None:
        return False
    # Names in both records are keys, or came with the bundle.
    return all(map(objects.has, {*find_digests(known)} - {*find_digests(data)}))
