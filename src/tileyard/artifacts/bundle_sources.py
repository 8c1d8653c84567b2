"""Where the contents of a bundle come from, and what they need of a host."""

import platform
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from tileyard.artifacts.bundle_manifest import Content
from tileyard.artifacts.compat import FIRST_DRIVERS, Requirements, higher_level, sum_needs
from tileyard.artifacts.keys import digest_bytes
from tileyard.artifacts.libraries import is_newer, read_needs
from tileyard.artifacts.listing import TreeFile
from tileyard.artifacts.objects import ObjectStore
from tileyard.artifacts.trees import Trees
from tileyard.decoding import decode_json
from tileyard.model import Digest, Record

_CHUNK = 1 << 20


class Sources:
    """Contents by digest: files of a store, each verified when it is added, and bytes."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._trees = Trees(objects)
        self._bytes: dict[Digest, bytes] = {}
        self.files: dict[Digest, Path] = {}

    def add_bytes(self, data: bytes) -> Digest:
        """Add bytes, and say what they are called."""
        digest = digest_bytes(data)
        self._bytes[digest] = data
        return digest

    def add_blob(self, digest: Digest) -> None:
        """Add a blob. Raises DamagedError."""
        self.files[digest] = self._objects.path(digest)

    def add_tree(self, digest: Digest) -> None:
        """Add a tree: its listing and the content of every file in it. Raises DamagedError."""
        folder = self._trees.path(digest)
        self.add_blob(digest)
        for path, entry in self._trees.listing(digest).entries.items():
            if isinstance(entry, TreeFile):
                self.files[entry.digest] = folder / path

    def contents(self) -> tuple[Content, ...]:
        """Everything that was added, sorted by digest."""
        sizes = {digest: path.stat().st_size for digest, path in self.files.items()}
        sizes |= {digest: len(data) for digest, data in self._bytes.items()}
        return tuple(Content(digest=digest, size=sizes[digest]) for digest in sorted(sizes))

    def read(self, digest: Digest) -> Iterator[bytes]:
        """A content, in pieces."""
        if digest in self._bytes:
            yield self._bytes[digest]
            return
        with self.files[digest].open("rb") as file:
            while chunk := file.read(_CHUNK):
                yield chunk


class _Manifest(Record):
    """The part of an artifact's manifest that says what it needs."""

    details: str


class _Details(Record):
    """The part of a target's own manifest that says what runs its code.

    ``features`` are a CPU's; ``cuda`` is the release of CUDA that compiled it, if one did.
    """

    features: tuple[str, ...] = ()
    cuda: tuple[int, int] | None = None


def derive_requirements(
    stated: Requirements, files: Iterable[Path], records: Iterable[bytes]
) -> Requirements:
    """What is stated, and what the packed files and the manifests among the records need."""
    here = platform.machine()
    found = [needs for needs in map(read_needs, files) if needs is not None]
    of_here = [needs for needs in found if needs.machine == here]
    scanned = sum_needs(of_here or found, (needs.soname for needs in found))
    details = [*map(_read_details, records)]
    features = {*stated.cpu_features, *(name for one in details for name in one.features)}
    return Requirements(
        machine=stated.machine or scanned.machine or (here if features else ""),
        cpu_level=higher_level(stated.cpu_level, scanned.cpu_level),
        cpu_features=tuple(sorted(features)),
        glibc=_higher(stated.glibc, scanned.glibc),
        glibcxx=_higher(stated.glibcxx, scanned.glibcxx),
        cxxabi=_higher(stated.cxxabi, scanned.cxxabi),
        python=stated.python,
        libraries=tuple(sorted({*stated.libraries, *scanned.libraries})),
        driver=_join(stated.driver, _driver_range(details)),
        has_cxx=stated.has_cxx,
    )


def _higher(one: str, other: str) -> str:
    return one if is_newer(one, other) else other


def _join(*ranges: str) -> str:
    return ",".join(one for one in ranges if one)


def _driver_range(details: Iterable[_Details]) -> str:
    """The drivers that load everything; empty where nothing is for them."""
    majors = {one.cuda[0] for one in details if one.cuda is not None}
    first = max((FIRST_DRIVERS.get(major, 0) for major in majors), default=0)
    return f">={first}" if first else ""


def _read_details(record: bytes) -> _Details:
    """What a record says runs it: nothing for one that is no artifact's manifest."""
    try:
        details = decode_json(record, _Manifest).details
        return decode_json(details, _Details)
    except msgspec.DecodeError:
        return _Details()
