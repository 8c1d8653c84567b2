"""What a record names: blobs and trees, by their digests, in whatever format it is written."""

import re
from collections.abc import Iterable, Iterator

from tileyard.artifacts.objects import ObjectStore
from tileyard.artifacts.trees import Trees
from tileyard.errors import UsageError
from tileyard.model import Digest, Record

FOLLOWED = ("build", "golden")
"""Kinds of records that other records and case lists name by their keys."""

_DIGEST = re.compile(rb"(?<![0-9a-f])[0-9a-f]{40}(?![0-9a-f])")


class Reference(Record):
    """A record by its kind and key."""

    kind: str
    key: str


class Closure(Record):
    """The records, blobs and trees that belong together, sorted."""

    records: tuple[Reference, ...]
    blobs: tuple[Digest, ...]
    trees: tuple[Digest, ...]


def find_digests(data: bytes) -> Iterator[Digest]:
    """Everything in a record that looks like a digest. JSON and msgpack both hold it as text."""
    for match in _DIGEST.finditer(data):
        yield Digest(match[0].decode())


def follow(records: Iterable[Reference], texts: Iterable[bytes], objects: ObjectStore) -> Closure:
    """Everything that records and texts name, and the records named that way, and so on.

    What looks like a digest and is neither a blob, a tree nor the key of a record names nothing.
    Raises UsageError where one of ``records`` is not there.
    """
    trees = Trees(objects)
    found = set(records)
    waiting = [*texts, *(read_record(objects, reference) for reference in found)]
    named: set[Digest] = set()
    while waiting:
        for digest in {*find_digests(waiting.pop())} - named:
            named.add(digest)
            for kind in FOLLOWED:
                data = objects.get_record(kind, digest)
                if data is not None:
                    found.add(Reference(kind=kind, key=digest))
                    waiting.append(data)
    those = {digest for digest in named if trees.has(digest)}
    return Closure(
        records=tuple(sorted(found, key=lambda one: (one.kind, one.key))),
        blobs=tuple(sorted(digest for digest in named - those if objects.has(digest))),
        trees=tuple(sorted(those)),
    )


def read_record(objects: ObjectStore, reference: Reference) -> bytes:
    """A record's data. Raises UsageError where it is not there."""
    data = objects.get_record(reference.kind, reference.key)
    if data is None:
        raise UsageError(
            f"there is no {reference.kind} {reference.key} to be packed",
            "run what is to be packed first",
        )
    return data
