"""Packs what one machine built into a bundle, one file of blobs, trees, records and a case list for
others. It is checked, unpacked privately and verified before it is published. Trust it as its
author: its programs are run.
"""

import contextlib
import os
import platform
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from tileyard.artifacts.bundle_file import (
    BIGGEST_MANIFEST,
    MANIFEST,
    BundleManifest,
    BundleReader,
    BundleWriter,
    Content,
    Expected,
    Kind,
    PackedRecord,
    Reference,
    Unpacking,
    find_mismatches,
    member_name,
    private_folder,
)
from tileyard.artifacts.compat import (
    FIRST_DRIVERS,
    Host,
    Requirements,
    find_refusals,
    higher_level,
    read_host,
    require_fit,
    sum_needs,
)
from tileyard.artifacts.folders import TreeFile
from tileyard.artifacts.libraries import is_newer, read_needs
from tileyard.artifacts.objects import (
    ObjectStore,
    canonical_json,
    chunks_of,
    digest_bytes,
    find_digests,
)
from tileyard.artifacts.trees import Trees
from tileyard.base.decoding import decode_json, draft_of
from tileyard.base.errors import BundleError, UsageError
from tileyard.base.model import Digest, Record

FOLLOWED = ("build", "golden")
"""Kinds of records that other records and case lists name by their keys."""
_ANYTHING = Expected()
Accept = Callable[[BundleManifest, Callable[[Digest], bytes]], None]
"""Receives a manifest and a function that reads its contents by digest, and raises if they are of no use."""


class Packing(Record):
    """The content of a new bundle. What ``records`` and cases name by digest is packed with them,
    ``blobs`` and ``trees`` in addition. ``requires`` states what files do not show; the rest is
    added unless ``is_complete``.
    """

    kind: Kind = "selection"
    commit: str = ""
    toolchain: str = ""
    target: str = ""
    records: tuple[Reference, ...] = ()
    blobs: tuple[Digest, ...] = ()
    trees: tuple[Digest, ...] = ()
    requires: Requirements = Requirements()
    is_complete: bool = False
    details: str = ""


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """An opened bundle, whose content is now in the object store."""

    manifest: BundleManifest
    cases: bytes


def write_bundle(
    packing: Packing, objects: ObjectStore, output: Path, cases: bytes = b""
) -> BundleManifest:
    """Pack parts of a store into ``output``, which appears when complete. Raises UsageError for a
    missing record, DamagedError for content, BundleError if it cannot be written.
    """
    data, named = _follow(packing.records, [cases], objects)
    trees = Trees(objects)
    those = {digest for digest in named if trees.has(digest)}
    packed_trees = sorted({*packing.trees, *those})
    blobs = sorted({*packing.blobs, *(one for one in named - those if objects.has(one))})
    files = {digest: objects.path(digest) for digest in (*blobs, *packed_trees)}
    for tree in packed_trees:
        folder = trees.path(tree)
        for path, entry in trees.listing(tree).entries.items():
            if isinstance(entry, TreeFile):
                files[entry.digest] = folder / path
    records = tuple(
        PackedRecord(kind=one.kind, key=one.key, data=digest_bytes(data[one]))
        for one in sorted(data, key=lambda one: (one.kind, one.key))
    )
    texts = {digest_bytes(one): one for one in (*data.values(), *([cases] if cases else []))}
    sizes = {digest: path.stat().st_size for digest, path in files.items()}
    sizes |= {digest: len(one) for digest, one in texts.items()}
    requires = packing.requires
    if not packing.is_complete:
        requires = _derive_requirements(requires, files.values(), data.values())
    manifest = BundleManifest(
        kind=packing.kind,
        commit=packing.commit,
        toolchain=packing.toolchain,
        target=packing.target,
        requires=requires,
        contents=tuple(Content(digest=digest, size=sizes[digest]) for digest in sorted(sizes)),
        blobs=tuple(blobs),
        trees=tuple(packed_trees),
        records=records,
        cases=digest_bytes(cases) if cases else "",
        details=packing.details,
    )
    head = canonical_json(manifest).encode()
    if len(head) > BIGGEST_MANIFEST:
        raise UsageError(f"{output.name} would have too many entries", "pack less into it")
    try:
        with draft_of(output) as file:
            writer = BundleWriter(file)
            writer.add(MANIFEST, len(head), (head,))
            for content in manifest.contents:
                text = texts.get(content.digest)
                pieces = _read_pieces(files[content.digest]) if text is None else (text,)
                writer.add(member_name(content.digest), content.size, pieces)
            writer.finish()
    except OSError as error:
        raise BundleError(f"cannot write {output}: {error.strerror or error}") from error
    return manifest


def _read_pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from chunks_of(file)


def _follow(
    records: Iterable[Reference], texts: Iterable[bytes], objects: ObjectStore
) -> tuple[dict[Reference, bytes], set[Digest]]:
    """The records, those that they and the texts name by key, and so on; and all digests in them. Text that
    looks like one and names nothing is ignored. Raises UsageError if one of ``records`` is missing.
    """
    found = {reference: _read_record(objects, reference) for reference in records}
    waiting = [*texts, *found.values()]
    named: set[Digest] = set()
    while waiting:
        for digest in {*find_digests(waiting.pop())} - named:
            named.add(digest)
            for kind in FOLLOWED:
                data = objects.get_record(kind, digest)
                if data is not None:
                    found[Reference(kind=kind, key=digest)] = data
                    waiting.append(data)
    return found, named


def _read_record(objects: ObjectStore, reference: Reference) -> bytes:
    """A record's data. Raises UsageError if it is missing."""
    data = objects.get_record(reference.kind, reference.key)
    if data is None:
        raise UsageError(
            f"there is no {reference.kind} {reference.key} to pack",
            "run what is to be packed first",
        )
    return data


class _Manifest(Record):
    """The part of an artifact's manifest that states its needs."""

    details: str


class _Details(Record):
    """What runs a target's code: CPU ``features``, the release of ``cuda`` that compiled it."""

    features: tuple[str, ...] = ()
    cuda: tuple[int, int] | None = None


def _derive_requirements(
    stated: Requirements, files: Iterable[Path], records: Iterable[bytes]
) -> Requirements:
    """The stated requirements, and those of the packed files and of the manifests among the records."""
    here = platform.machine()
    found = [needs for needs in map(read_needs, files) if needs is not None]
    of_here = [needs for needs in found if needs.machine == here]
    scanned = sum_needs(of_here or found, (needs.soname for needs in found))
    details = [*map(_read_details, records)]
    majors = {one.cuda[0] for one in details if one.cuda is not None}
    first = max((FIRST_DRIVERS.get(major, 0) for major in majors), default=0)
    drivers = (stated.driver, f">={first}" if first else "")
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
        driver=",".join(one for one in drivers if one),
        has_cxx=stated.has_cxx,
        prerequisites=stated.prerequisites,
    )


def _higher(one: str, other: str) -> str:
    return one if is_newer(one, other) else other


def _read_details(record: bytes) -> _Details:
    """The details in a record: nothing if it is not an artifact's manifest."""
    try:
        details = decode_json(record, _Manifest).details
        return decode_json(details, _Details)
    except msgspec.DecodeError:
        return _Details()


def read_manifest(path: Path) -> BundleManifest:
    """The manifest of a bundle; its content is not read. Raises BundleError."""
    with _opened(path) as file:
        return BundleReader(file, path.name).read_manifest()


def check_bundle(
    path: Path, expected: Expected = _ANYTHING, host: Host | None = None
) -> BundleManifest:
    """Check, unopened, that a bundle is whole, the requested one, and fits ``host`` (None: this
    one). Raises IncompatibleError with a line per unmet requirement, or BundleError.
    """
    with _opened(path) as file:
        reader = BundleReader(file, path.name)
        manifest = reader.read_manifest()
        reader.verify()
    _require_fit(path.name, expected, host, manifest)
    return manifest


def open_bundle(
    path: Path,
    objects: ObjectStore,
    expected: Expected | None = _ANYTHING,
    host: Host | None = None,
    accept: Accept | None = None,
) -> Bundle:
    """Verify a bundle and put its content into a store; with ``expected`` None it need not fit this
    host. Complete records stay unchanged. An exception of ``accept`` refuses it before anything is
    published, as do IncompatibleError, BundleError and HomeError.
    """
    with _opened(path) as file:
        reader = BundleReader(file, path.name)
        manifest = reader.read_manifest()
        if expected is not None:
            _require_fit(path.name, expected, host, manifest)
        with private_folder(objects.root) as folder:
            unpacking = Unpacking(path.name, manifest, folder)
            unpacking.unpack(reader)
            if accept is not None:
                accept(manifest, unpacking.read)
            unpacking.assemble_trees()
            cases = unpacking.read(Digest(manifest.cases)) if manifest.cases else b""
            unpacking.publish(objects)
    return Bundle(manifest=manifest, cases=cases)


def _require_fit(
    name: str, expected: Expected, host: Host | None, manifest: BundleManifest
) -> None:
    """Raise IncompatibleError if a bundle is another one or does not fit the host."""
    require_fit(name, find_mismatches(manifest, expected))
    here = host or read_host(manifest.requires.libraries)
    require_fit(name, find_refusals(manifest.requires, here))


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        # Do not wait for a writer if this name is a pipe.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise BundleError(f"cannot read the bundle {path}: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise BundleError(f"the bundle {path} is not a plain file")
    with os.fdopen(descriptor, "rb") as file:
        yield file
