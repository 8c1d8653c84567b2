"""What a record names: blobs and trees, by their digests, in whatever format it is written."""

import re
from collections.abc import Iterable, Iterator

from tileyard.artifacts.objects import ObjectStore
from tileyard.artifacts.trees import Trees
from tileyard.model import Digest, Record

_DIGEST = re.compile(rb"(?<![0-9a-f])[0-9a-f]{40}(?![0-9a-f])")


class Reference(Record):
    """A record by its kind and key."""

    kind: str
    key: str


class Closure(Record):
    """The blobs and trees that records name, sorted."""

    blobs: tuple[Digest, ...]
    trees: tuple[Digest, ...]


def find_digests(data: bytes) -> Iterator[Digest]:
    """Everything in a record that looks like a digest. JSON and msgpack both hold it as text."""
    for match in _DIGEST.finditer(data):
        yield Digest(match[0].decode())


def follow(records: Iterable[bytes], objects: ObjectStore) -> Closure:
    """What the records name and the store has; keys look like digests, too, and name nothing."""
    trees = Trees(objects)
    named = {digest for data in records for digest in find_digests(data)}
    found = {digest for digest in named if trees.has(digest)}
    return Closure(
        blobs=tuple(sorted(digest for digest in named - found if objects.has(digest))),
        trees=tuple(sorted(found)),
    )
