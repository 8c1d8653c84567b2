"""Stores whole directories by their content, read-only, beside the blobs of an object store.
A tree, below ``<root>/trees``, is named by the digest of its listing, a blob. It is published by
one rename, not synced, and compared with its listing before it is handed out; a damaged one is
moved aside and made again. Who writes takes a copy.
"""

import contextlib
import errno
import fcntl
import shutil
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

from tileyard.artifacts.copying import (
    copy_file,
    exchange,
    remove_folder,
    scratch_folder,
    writing_to,
)
from tileyard.artifacts.folders import (
    FILE_MODE,
    PROGRAM_MODE,
    Listing,
    Stamp,
    TreeFile,
    TreeFolder,
    TreeLink,
    check_folder,
    check_listing,
    compare,
    compare_contents,
    compare_part,
    decode_listing,
    encode_listing,
    freeze,
    is_unchanged,
    read_link,
    read_listing,
    walk,
)
from tileyard.artifacts.objects import ObjectStore, digest_bytes
from tileyard.artifacts.pins import gate
from tileyard.base.errors import DamagedError, HomeError, UsageError
from tileyard.base.model import Digest
from tileyard.base.modes import make_folder, mode_in

FOLDER = "trees"
PutFile = Callable[[Path, Path, int], None]
_UNKNOWN: dict[str, Stamp] = {"": (0, 0, 0, 0)}


class Trees:
    """Directories by content below ``<root>/trees/<2 hex>/<digest>``, safe between processes."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._root = objects.root / FOLDER
        self._listings: dict[Digest, Listing] = {}
        self._verified: dict[tuple[Digest, str], dict[str, Stamp]] = {}

    def put(self, folder: Path) -> Digest:
        """Publish a copy of a folder: files, empty directories, links that stay inside. Raises UsageError, in
        one line, for anything else or an unreadable file, HomeError if the store cannot be written.
        """
        size = check_folder(folder)
        with self._writing():
            make_folder(self._root)
            free = shutil.disk_usage(self._root).free
            if size > free:
                raise HomeError(
                    f"{folder} holds {size:,} bytes, and {free:,} are free in {self._root}",
                    "free some space",
                )
            make_folder(self._root / "tmp")
            with scratch_folder(self._root / "tmp") as scratch:
                staged = scratch / "tree"
                staged.mkdir()
                for path, status in walk(folder):
                    if stat.S_ISDIR(status.st_mode):
                        (staged / path).mkdir()
                    elif stat.S_ISLNK(status.st_mode):
                        (staged / path).symlink_to(read_link(folder / path))
                    else:
                        mode = PROGRAM_MODE if status.st_mode & stat.S_IXUSR else FILE_MODE
                        copy_file(folder / path, staged / path, mode)
                return self._publish(staged)

    def adopt(self, folder: Path) -> Digest:
        """Like ``put``, but moves the folder itself, which must be on the store's file system."""
        check_folder(folder)
        with self._writing():
            digest = self._publish(folder)
            if folder.is_dir():  # the tree already existed
                remove_folder(folder)
        return digest

    def path(self, digest: Digest, part: str = "") -> Path:
        """The directory's path, or only ``part``'s, compared with its listing once per process and
        after any change of time, size or mode. Raises DamagedError if missing or different; a
        damaged part leaves it in place.
        """
        self.listing(digest)
        folder = self._folder(digest)
        try:
            if not is_unchanged(folder, self._verified.get((digest, part), _UNKNOWN)):
                self._verify(digest, part)
        except FileNotFoundError:
            self._forget(digest)
            raise DamagedError(
                f"tree {digest} is missing from {self._objects.root}",
                hint="run again to rebuild it",
            ) from None
        except (OSError, UsageError) as error:
            reason = error.message if isinstance(error, UsageError) else error.strerror
            raise self._reject(digest, part, str(reason)) from None
        return folder

    def has(self, digest: Digest) -> bool:
        """Whether there is a tree with this digest; it is verified when its path is asked for."""
        return self._objects.has(digest) and self._folder(digest).is_dir()

    def listing(self, digest: Digest) -> Listing:
        """The entries of the tree. Raises DamagedError if the listing is missing or damaged."""
        if digest not in self._listings:
            self._listings[digest] = decode_listing(self._objects.path(digest).read_bytes())
        return self._listings[digest]

    def is_as_verified(self, digest: Digest, part: str) -> bool:
        """Whether a part is unchanged since ``path`` was asked for it, or the tree was moved aside since."""
        with contextlib.suppress(FileNotFoundError):
            is_same = is_unchanged(self._folder(digest), self._verified.get((digest, part), {}))
            return is_same or self._is_sound(digest, part)  # it may have been made again
        return True

    def link(self, digest: Digest, into: Path, part: str = "") -> None:
        """Link the tree's files, in new folders, into a folder that has none of them. Do not write
        through a link: it damages the tree. Raises as ``copy``.
        """
        source = self.path(digest, part)
        listing = self._part(digest, part)
        with writing_to(into):
            for path in listing.folders():
                make_folder(into / path)
            for path, entry in listing.entries.items():
                if not isinstance(entry, TreeFolder):
                    (into / path).symlink_to((source / path).absolute())

    def copy(self, digest: Digest, into: Path, part: str = "", put: PutFile = copy_file) -> None:
        """Put a writable copy of the tree into a folder without its files; directories may exist.
        ``put`` makes a file like another, in a mode. Raises UsageError if ``part`` has no file,
        DamagedError, HomeError if ``into`` cannot be written or has one.
        """
        source = self.path(digest, part)
        listing = self._part(digest, part)
        path = ""
        try:
            most = mode_in(into, 0o777)
            for path in listing.folders():
                make_folder(into / path)
            for path, entry in listing.with_links_last():
                if isinstance(entry, TreeLink):
                    (into / path).symlink_to(entry.target)
                elif isinstance(entry, TreeFile):
                    mode = 0o777 if entry.is_executable else 0o666
                    put(source / path, into / path, mode & most)
        except OSError as error:
            raise HomeError(f"cannot write {str(into / path)!r}: {error.strerror}") from error

    # ---- inside -----------------------------------------------------------------------------

    def _part(self, digest: Digest, part: str) -> Listing:
        listing = self.listing(digest)
        narrowed = listing.narrowed(part)
        if part and not narrowed.has_files:
            tops = sorted({path.partition("/")[0] for path in listing.entries})
            shown = ", ".join(map(repr, tops[:5])) + (", ..." if len(tops) > 5 else "")
            raise UsageError(f"there is no file in {part!r}, only in {shown}")
        return narrowed

    def _folder(self, digest: Digest) -> Path:
        return self._root / digest[:2] / digest

    def _publish(self, staged: Path) -> Digest:
        """Name a directory by its present content, freeze it and move it into its place."""
        listing = read_listing(staged)
        check_listing(listing)
        data = encode_listing(listing)
        digest = digest_bytes(data)
        self._listings[digest] = listing
        if self._objects.has(digest) and self._is_sound(digest):
            return digest
        make_folder(self._root)
        freeze(staged, mode_in(self._root, PROGRAM_MODE))
        with gate(
            self._objects.root, fcntl.LOCK_SH
        ):  # a directory that is there is not being removed
            # Another process may have been faster, or have left it without its listing.
            if not self._move_in(digest, staged) and not self._is_sound(digest):
                self._replace(digest, staged)
            # The listing comes last: if it exists, so does the directory.
            self._objects.put_bytes(data)
        return digest

    def _verify(self, digest: Digest, part: str = "") -> None:
        """Compare a tree, or a part, with its listing. Raises OSError, and UsageError for a difference."""
        folder, listing = self._folder(digest), self.listing(digest).narrowed(part)
        stamps = (compare_part if part else compare)(folder, listing)
        compare_contents(folder, listing)
        self._verified[digest, part] = stamps

    def _is_sound(self, digest: Digest, part: str = "") -> bool:
        with contextlib.suppress(OSError, UsageError):
            self._verify(digest, part)
            return True
        return False

    def _move_in(self, digest: Digest, staged: Path) -> bool:
        """Move a frozen directory into its place; False if there already is one."""
        place = self._folder(digest)
        make_folder(place.parent)
        staged.chmod(0o700)  # a directory that changes its parent must be writable
        try:
            staged.rename(place)
        except OSError as error:
            if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
                return False
            raise
        place.chmod(mode_in(place.parent, PROGRAM_MODE))
        self._verified[digest, ""] = compare(place, self._listings[digest])
        return True

    def _replace(self, digest: Digest, staged: Path) -> None:
        """Replace a damaged directory with a frozen one: users of its other files find one or the other."""
        place = self._folder(digest)
        if exchange(staged, place):
            place.chmod(mode_in(place.parent, PROGRAM_MODE))
            self._verified[digest, ""] = compare(place, self._listings[digest])
            self._set_aside(digest, staged)
        else:
            self._set_aside(digest, place)
            self._move_in(digest, staged)

    def _writing(self) -> contextlib.AbstractContextManager[None]:
        return writing_to(self._root, "set TILEYARD_HOME elsewhere or free some space")

    def _forget(self, digest: Digest) -> None:
        """Make an artifact whose tree is gone read as absent, so that it is made again."""
        self._verified = {key: one for key, one in self._verified.items() if key[0] != digest}
        with contextlib.suppress(OSError, DamagedError):
            self._objects.path(digest).unlink(missing_ok=True)

    def _reject(self, digest: Digest, part: str, reason: str) -> DamagedError:
        """Have a damaged tree made again; it is moved aside at once unless only a part is damaged."""
        said = f"tree {digest} in {self._objects.root} is not what its name promises: {reason}"
        if part:
            self._forget(digest)
            return DamagedError(said, hint="run again to rebuild it")
        self._set_aside(digest, self._folder(digest))
        self._forget(digest)
        return DamagedError(said, hint="it was moved aside; run again to rebuild it")

    def _set_aside(self, digest: Digest, folder: Path) -> None:
        """Move a damaged tree aside, for processes that use it; in a store without write access it stays."""
        aside = self._root / "damaged"
        with contextlib.suppress(OSError):
            make_folder(aside)
            folder.chmod(0o700)
            folder.rename(Path(tempfile.mkdtemp(dir=aside, prefix=f"{digest}.")) / "tree")
