"""Bundles: what one machine built, in one file that another one can run.

A bundle holds blobs, trees and records of an object store, and a case list. Opening one checks that
it is what was asked for and fits this host, unpacks it into a private folder, verifies every digest,
and only then publishes, records last. A bundle is trusted as much as whoever made it: digests
protect from damage, not from a maker who means harm and whose programs are then run.
"""

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tileyard.artifacts.bundle_file import (
    BIGGEST_MANIFEST,
    MANIFEST,
    BundleReader,
    BundleWriter,
    member_name,
    verify_foot,
    written,
)
from tileyard.artifacts.bundle_manifest import (
    BundleManifest,
    Expected,
    Kind,
    PackedRecord,
    decode_manifest,
    encode_manifest,
    find_mismatches,
)
from tileyard.artifacts.bundle_sources import Sources, derive_requirements
from tileyard.artifacts.compat import Host, Requirements, find_refusals, read_host, require_fit
from tileyard.artifacts.objects import ObjectStore
from tileyard.artifacts.references import Reference, follow, read_record
from tileyard.artifacts.unpacking import Unpacking, private_folder
from tileyard.errors import BundleError, UsageError
from tileyard.model import Digest, Record

_ANYTHING = Expected()
Accept = Callable[[BundleManifest, Callable[[Digest], bytes]], None]
"""Looks at a manifest and at the contents that it names by digest, and raises where these are of no use."""


def _accept_all(manifest: BundleManifest, read: Callable[[Digest], bytes]) -> None:
    """Nothing more is asked."""


class Packing(Record):
    """What goes into a bundle.

    What ``records`` and the case list name by digest is packed with them: a case's artifact with its
    files, its golden result with its arrays or tree. ``blobs`` and ``trees`` are packed besides.
    ``requires`` states what cannot be read off the packed files (driver, Python, further CPU
    features); what can be is added, unless ``is_complete``.
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
    """An opened bundle, whose content lies in the object store now."""

    manifest: BundleManifest
    cases: bytes


def write_bundle(
    packing: Packing, objects: ObjectStore, output: Path, cases: bytes = b""
) -> BundleManifest:
    """Pack parts of a store into the file ``output``, which appears when it is complete.

    Raises UsageError where a record is not there, DamagedError where content is missing or
    damaged, BundleError where ``output`` cannot be written.
    """
    sources = Sources(objects)
    named = follow(packing.records, [cases], objects)
    data = [read_record(objects, reference) for reference in named.records]
    blobs = sorted({*packing.blobs, *named.blobs})
    trees = sorted({*packing.trees, *named.trees})
    for blob in blobs:
        sources.add_blob(blob)
    for tree in trees:
        sources.add_tree(tree)
    records = tuple(
        PackedRecord(kind=reference.kind, key=reference.key, data=sources.add_bytes(one))
        for reference, one in zip(named.records, data, strict=True)
    )
    requires = packing.requires
    if not packing.is_complete:
        requires = derive_requirements(requires, sources.files.values(), data)
    case_list = sources.add_bytes(cases) if cases else ""
    manifest = BundleManifest(
        kind=packing.kind,
        commit=packing.commit,
        toolchain=packing.toolchain,
        target=packing.target,
        requires=requires,
        contents=sources.contents(),
        blobs=tuple(blobs),
        trees=tuple(trees),
        records=records,
        cases=case_list,
        details=packing.details,
    )
    with written(output) as file:
        writer = BundleWriter(file)
        head = encode_manifest(manifest)
        if len(head) > BIGGEST_MANIFEST:
            raise UsageError(f"{output.name} would have too many entries", "pack less into it")
        writer.add(MANIFEST, len(head), (head,))
        for content in manifest.contents:
            writer.add(member_name(content.digest), content.size, sources.read(content.digest))
        writer.finish()
    return manifest


def read_manifest(path: Path) -> BundleManifest:
    """What a bundle says of itself, its content unread. Raises BundleError."""
    with _opened(path) as file:
        reader = BundleReader(file, path.name)
        return decode_manifest(reader.read_manifest(), path.name, reader.size)


def check_bundle(
    path: Path, expected: Expected = _ANYTHING, host: Host | None = None
) -> BundleManifest:
    """Make sure, without unpacking it, that a bundle is whole, the one asked for, and fits here.

    Raises IncompatibleError with one line for each requirement that is not met, or BundleError.
    ``host`` is this one where it is None.
    """
    manifest = read_manifest(path)
    with _opened(path) as file:
        verify_foot(file, path.name)
    _require_fit(path.name, manifest, expected, host)
    return manifest


def open_bundle(
    path: Path,
    objects: ObjectStore,
    expected: Expected = _ANYTHING,
    host: Host | None = None,
    accept: Accept = _accept_all,
) -> Bundle:
    """Check a bundle, verify all of it and put its blobs, trees and records into a store.

    A record that the store has already stays as it is while all that it names is there. ``accept`` is
    called before anything is published; what it raises refuses the bundle. Raises
    IncompatibleError, BundleError or HomeError; then nothing was published.
    """

    def check(manifest: BundleManifest) -> None:
        _require_fit(path.name, manifest, expected, host)

    return _open(path, objects, check, accept)


def look_into_bundle(path: Path, objects: ObjectStore) -> Bundle:
    """As ``open_bundle``, for whoever only looks at what is in it: it need not fit this host."""
    return _open(path, objects, lambda manifest: None, _accept_all)


def _open(
    path: Path, objects: ObjectStore, check: Callable[[BundleManifest], None], accept: Accept
) -> Bundle:
    with _opened(path) as file:
        reader = BundleReader(file, path.name)
        manifest = decode_manifest(reader.read_manifest(), path.name, reader.size)
        check(manifest)
        with private_folder(objects.root) as folder:
            unpacking = Unpacking(path.name, manifest, folder)
            unpacking.unpack(reader)
            accept(manifest, unpacking.read)
            unpacking.assemble_trees()
            cases = unpacking.read(Digest(manifest.cases)) if manifest.cases else b""
            unpacking.publish(objects)
    return Bundle(manifest=manifest, cases=cases)


def _require_fit(
    name: str, manifest: BundleManifest, expected: Expected, host: Host | None
) -> None:
    """Raise IncompatibleError where a bundle is another one or does not fit the host."""
    mismatches = find_mismatches(manifest, expected)
    require_fit(name, mismatches)
    here = host or read_host(manifest.requires.libraries)
    require_fit(name, find_refusals(manifest.requires, here))


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        # Not to wait for whoever might write into a pipe of this name.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise BundleError(f"cannot read the bundle {path}: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise BundleError(f"the bundle {path} is not a plain file")
    with os.fdopen(descriptor, "rb") as file:
        yield file
