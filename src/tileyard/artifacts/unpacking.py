"""A bundle's content, unpacked and verified in a private folder before any of it is published."""

import contextlib
import hashlib
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tileyard.artifacts.bundle_file import BundleReader, member_name
from tileyard.artifacts.bundle_manifest import BundleManifest
from tileyard.artifacts.copying import copy_file, scratch_folder, writing_to
from tileyard.artifacts.listing import Listing, TreeFile, TreeLink, decode_listing
from tileyard.artifacts.objects import ObjectStore
from tileyard.artifacts.references import find_digests
from tileyard.artifacts.trees import Trees
from tileyard.errors import BundleError, DamagedError
from tileyard.model import Digest
from tileyard.modes import make_folder

MOST_ENTRIES = 2_000_000
_SPARE_BYTES = 64 << 20
"""What is left on the disk for everybody else."""


class Unpacking:
    """One bundle on its way into a store. Its folder is private, and on the store's file system.

    Every method raises BundleError where the bundle is not sound, and OSError where the folder
    cannot be written.
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
        """Write every content under its digest, and make sure that it has it."""
        for content in self._manifest.contents:
            state = hashlib.sha256()
            with (self._contents / content.digest).open("xb") as file:
                for piece in reader.read(member_name(content.digest), content.size):
                    state.update(piece)
                    file.write(piece)
            if state.hexdigest()[:40] != content.digest:
                raise self._refuse(f"the content {content.digest} is not what its name promises")
        reader.finish()

    def read(self, digest: Digest) -> bytes:
        """A content as bytes."""
        return (self._contents / digest).read_bytes()

    def assemble_trees(self) -> None:
        """Put each tree together from its listing. Contents that are needed once are moved."""
        sizes = {content.digest: content.size for content in self._manifest.contents}
        listings = {tree: self._read_listing(tree, sizes) for tree in self._manifest.trees}
        self._check_contents(listings)
        uses = Counter(self._published())
        for listing in listings.values():
            uses.update(_files(listing))
        self._require_room(
            sum(sizes[digest] * (count - 1) for digest, count in uses.items() if count > 1)
        )
        for tree, listing in listings.items():
            self._assemble(self._trees / tree, listing, uses)

    def publish(self, objects: ObjectStore) -> None:
        """Move everything into the store, what others name first. Raises HomeError."""
        trees = Trees(objects)
        for digest in self._manifest.blobs:
            objects.adopt(self._contents / digest, digest)
        for digest in self._manifest.trees:
            if trees.adopt(self._trees / digest) != digest:
                raise self._refuse(f"the tree {digest} is not what its name promises")
        for record in self._manifest.records:
            data = self.read(record.data)
            if not _is_served(objects, record.kind, record.key, data):
                objects.put_record(record.kind, record.key, data)

    # ---- inside -----------------------------------------------------------------------------

    def _published(self) -> list[Digest]:
        """Contents that are needed as they are, in whatever tree they may be besides."""
        manifest = self._manifest
        names = [*manifest.blobs, *manifest.trees, *(record.data for record in manifest.records)]
        return [*names, Digest(manifest.cases)] if manifest.cases else names

    def _read_listing(self, tree: Digest, sizes: dict[Digest, int]) -> Listing:
        try:
            listing = decode_listing(self.read(tree))
        except DamagedError as error:
            raise self._refuse(error.message) from None
        for path, entry in listing.entries.items():
            if isinstance(entry, TreeFile) and sizes.get(entry.digest) != entry.size:
                raise self._refuse(f"{path!r} of a tree is not in it, or has another size")
        return listing

    def _check_contents(self, listings: dict[Digest, Listing]) -> None:
        if sum(len(listing.entries) for listing in listings.values()) > MOST_ENTRIES:
            raise self._refuse(f"its trees have more than {MOST_ENTRIES} entries")
        named = set(self._published())
        for listing in listings.values():
            named.update(_files(listing))
        for content in self._manifest.contents:
            if content.digest not in named:
                raise self._refuse(f"nothing names its entry {content.digest}")

    def _assemble(self, folder: Path, listing: Listing, uses: Counter[Digest]) -> None:
        folder.mkdir()
        for path in listing.folders():
            (folder / path).mkdir()
        for path, entry in listing.with_links_last():
            if isinstance(entry, TreeLink):
                (folder / path).symlink_to(entry.target)
            elif isinstance(entry, TreeFile):
                content = self._contents / entry.digest
                mode = 0o755 if entry.is_executable else 0o644
                uses[entry.digest] -= 1
                if uses[entry.digest]:
                    copy_file(content, folder / path, mode)
                else:
                    content.rename(folder / path)
                    (folder / path).chmod(mode)

    def _require_room(self, size: int) -> None:
        if size + _SPARE_BYTES > shutil.disk_usage(self._contents.parent).free:
            raise self._refuse(f"it needs {size} bytes, which this disk does not have")

    def _refuse(self, reason: str) -> BundleError:
        return BundleError(f"{self._name} is no sound bundle: {reason}")


@contextlib.contextmanager
def private_folder(root: Path) -> Iterator[Path]:
    """A folder below a store's ``tmp``, which is gone afterwards with all that was made for it.

    Raises HomeError where it, or what is put into it, cannot be written.
    """
    parent = root / "tmp"
    made = [folder for folder in (parent, root, *root.parents) if not folder.exists()]
    try:
        with writing_to(root, "free some space"):
            make_folder(parent)
            with scratch_folder(parent, "bundle.") as folder:
                yield folder
    finally:
        # Only those that are empty go, hence none that anything was published in.
        for folder in made:
            with contextlib.suppress(OSError):
                folder.rmdir()


def _files(listing: Listing) -> Iterator[Digest]:
    return (entry.digest for entry in listing.entries.values() if isinstance(entry, TreeFile))


def _is_served(objects: ObjectStore, kind: str, key: str, data: bytes) -> bool:
    """Whether the store has a record for this key already, and all that the record names."""
    known = objects.get_record(kind, key)
    if known is None:
        return False
    # What both name are keys, or came with the bundle.
    return all(map(objects.has, {*find_digests(known)} - {*find_digests(data)}))
