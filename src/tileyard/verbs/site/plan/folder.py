"""A site's folder: its manifest, the data of each case, and pages. Only what changed is written."""

import contextlib
import fcntl
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from tileyard.artifacts.objects import digest_bytes
from tileyard.base.decoding import decode_json, draft_of
from tileyard.base.errors import UsageError
from tileyard.verbs.site.result import NAME_LENGTH, Manifest, Recorded, Subject

T = TypeVar("T", Manifest, Recorded)
MANIFEST: Final = "tileyard-site.json"
DATA, PAGES = "data", "cases"
"""Folders with a file per case."""
INDEX: Final = "index.html"
_NAME: Final = re.compile(rf"[0-9a-f]{{{NAME_LENGTH}}}")


class SiteFolder:
    """An opened site, held by one command at a time. Names of files are digests, so nothing leaves it."""

    def __init__(self, root: Path, manifest: Manifest) -> None:
        self.root = root
        self.manifest = manifest
        self.written: dict[str, None] = {}
        """The names of the files that were written, in their order."""

    @classmethod
    @contextlib.contextmanager
    def open(cls, root: Path) -> Iterator["SiteFolder"]:
        """Open a site, or begin one in an empty or missing folder. Raises UsageError for a folder of others,
        for a damaged or newer site, and if another command holds it.
        """
        try:
            root.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise UsageError(f"cannot write to {root}: {error.strerror}") from None
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UsageError(f"another command is writing the site {root}") from None
            yield cls(root, _read_manifest(root))
        finally:
            os.close(descriptor)

    def read_all(self) -> dict[Subject, Recorded]:
        """What the site remembers of each case. Raises UsageError for a damaged file."""
        found = {}
        for path in sorted((self.root / DATA).glob("*.json")):
            if not _NAME.fullmatch(path.stem):
                continue
            recorded = _decode(path, Recorded)
            if recorded.subject.file != path.stem:
                continue
            if recorded.group:
                subject = msgspec.structs.replace(recorded.subject, suite=recorded.group)
                recorded = msgspec.structs.replace(recorded, subject=subject, group="")
                self.write_data(recorded)
                path.unlink()
                (self.root / PAGES / f"{path.stem}.html").unlink(missing_ok=True)
            found[recorded.subject] = recorded
        return found

    def write_data(self, recorded: Recorded) -> None:
        """Remember a case."""
        self._write(f"{DATA}/{recorded.subject.file}.json", _encode(recorded))

    def write_page(self, subject: Subject, page: str) -> None:
        """Write the page of a case."""
        self._write(f"{PAGES}/{subject.file}.html", page.encode())

    def has_page(self, subject: Subject) -> bool:
        """Whether the page of a case exists."""
        return (self.root / PAGES / f"{subject.file}.html").is_file()

    def write_index(self, page: str, manifest: Manifest) -> None:
        """Write the first page, and then, last of all, what everything was made from."""
        self._write(INDEX, page.encode())
        self._write(MANIFEST, _encode(manifest))
        self.manifest = manifest

    def _write(self, name: str, content: bytes) -> None:
        """Write a file, all of it or nothing, if that changes it. Raises UsageError."""
        path = self.root / name
        if name != MANIFEST and not (self.root / MANIFEST).exists():
            # If this is ended half-way, the folder is a site for the next command.
            self._write(MANIFEST, _encode(Manifest()))
        try:
            if path.parent.is_symlink() or path.is_symlink():
                raise UsageError(f"{path} is a link: a site has none")
            path.parent.mkdir(exist_ok=True)
            if path.is_file() and path.read_bytes() == content:
                return
            with draft_of(path) as draft:
                draft.write(content)
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}") from None
        self.written[name] = None


def _read_manifest(root: Path) -> Manifest:
    path = root / MANIFEST
    if path.is_symlink() or any((root / name).is_symlink() for name in (DATA, PAGES)):
        raise UsageError(f"{root} contains links: a site has none")
    if not path.exists():
        # Git's own folder and settings of the publisher do not make it a folder of others.
        others = [one.name for one in root.iterdir() if not one.name.startswith(".")]
        if others:
            raise UsageError(
                f"{root} is not a site of Tileyard, and not empty", "name a new or an empty folder"
            )
        return Manifest()
    return _decode(path, Manifest)


def _decode(path: Path, kind: type[T]) -> T:
    try:
        return decode_json(path.read_bytes(), kind)
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(
            f"{path} cannot be read: {error}",
            "it is damaged, or of another version: restore it, or begin a site in a new folder",
        ) from None


def _encode(value: Manifest | Recorded) -> bytes:
    return msgspec.json.encode(value, order="sorted") + b"\n"


def digest_files(files: Iterable[Path]) -> str:
    """A digest of the content of files."""
    return digest_bytes(b"".join(digest_bytes(one.read_bytes()).encode() for one in files))
