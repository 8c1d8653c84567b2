"""Defines the manifest of a bundle, and the rules that limit what a hostile one can claim. Pure."""

import re
from collections.abc import Iterator
from typing import Literal

import msgspec

from tileyard.artifacts.compat import Requirements, unmet
from tileyard.base.decoding import decode_json
from tileyard.base.errors import BundleError
from tileyard.base.model import Digest, Record

BUNDLE_VERSION = 1
MOST_CONTENTS = 1_000_000
MOST_BYTES = 256 << 30
LONGEST_TEXT = 1000
FREE_BYTES, EXPANSION = 4 << 30, 1000
"""A bundle may declare the larger of this many bytes and this many times its own size."""

_DIGEST = re.compile(r"[0-9a-f]{40}")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")

Kind = Literal["toolchain", "selection", "winners"]


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
