"""Folders of cases of programs on another host: what programs leave there comes back by its content."""

import contextlib
import itertools
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import msgspec

from tileyard.artifacts.copying import copy_file, remove_folder, scratch_folder
from tileyard.artifacts.folders import (
    Entry,
    Listing,
    Stamp,
    TreeFile,
    TreeFolder,
    TreeLink,
    assemble,
    check_link,
    check_path,
    decode_listing,
    digest_file,
    encode_listing,
    read_link,
    stamp_of,
)
from tileyard.artifacts.objects import ObjectStore, digest_bytes
from tileyard.artifacts.trees import Trees
from tileyard.base.errors import DamagedError, TileyardError, UsageError
from tileyard.base.model import Digest
from tileyard.base.modes import make_folder, mode_in
from tileyard.targets.command.given import StepSite
from tileyard.workers.command_runs import DATA
from tileyard.workers.protocol import CommandRun, RunEntry

SMALL_BYTES = 64 << 10
"""So much of what a program left is sent together with its end."""
START_LIMIT_S = 20.0
"""Seconds in which an interpreter says its version."""


def identify_python(path: str) -> str:
    """The Python at a path, empty for this process's, by its version and the content of its interpreter."""
    path = path or sys.executable
    try:
        digest = digest_file(Path(path).resolve())
        said = subprocess.run(
            [path, "-V"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            text=True,
            timeout=START_LIMIT_S,
        )
    except (TileyardError, OSError, subprocess.SubprocessError):
        return "none"
    return f"{said.stdout.strip()} ({digest[:12]})"


def list_work(
    work: Path, golden: Listing, linked: Path | None = None
) -> tuple[Listing, tuple[str, ...]]:
    """The listing of a folder that began as a copy of ``golden``, or as links to it in ``linked``; and a line
    for each entry that no tree can hold, such as a socket, which is left out. Raises HomeError.
    """
    entries: dict[str, Entry] = {}
    refused: list[str] = []
    waiting = [""]
    while waiting:
        below = waiting.pop()
        try:
            check_path(below or ".work")
            found = list(os.scandir(work / below))
        except (OSError, UsageError) as error:
            refused.append(str(error))
            continue
        if below and not found:
            entries[below] = TreeFolder()
        for one in found:
            path = f"{below}/{one.name}" if below else one.name
            if one.is_dir(follow_symlinks=False):
                waiting.append(path)
                continue
            try:
                check_path(path)
                entries[path] = _read(work / path, path, golden, linked)
            except UsageError as error:
                refused.append(error.message)
    for path, entry in tuple(entries.items()):
        if isinstance(entry, TreeLink):
            try:
                check_link(path, entry.target, entries)
            except UsageError as error:
                refused.append(error.message)
                del entries[path]
    return Listing(entries=entries), tuple(refused)


def _read(file: Path, path: str, golden: Listing, linked: Path | None) -> Entry:
    if not (file.is_symlink() or file.is_file()):
        raise UsageError(f"{path!r} is neither a file, a directory nor a link")
    if file.is_symlink():
        target = read_link(file)
        is_golden = linked is not None and target == str(linked / path)
        return golden.entries[path] if is_golden else TreeLink(target=target)
    digest, status = digest_file(file), file.stat()
    return TreeFile(digest=digest, size=status.st_size, is_executable=bool(status.st_mode & 0o100))


def find_changed(work: Listing, golden: Listing) -> dict[Digest, str]:
    """The files that are not as in ``golden``, by digest, each with a path where it is."""
    return {
        entry.digest: path
        for path, entry in work.entries.items()
        if isinstance(entry, TreeFile) and golden.entries.get(path) != entry
    }


def keep_work(work: Listing, golden: Listing, folder: Path, objects: ObjectStore) -> Digest:
    """Keep the changed files of a case's folder, and its listing. Raises HomeError and OSError."""
    for path in find_changed(work, golden).values():
        objects.put_file(folder / path)
    return objects.put_bytes(encode_listing(work))


def apply_work(work: Listing, golden: Listing, folder: Path, objects: ObjectStore) -> None:
    """Give a folder, which is as in ``golden``, the content of ``work``. Raises DamagedError and OSError."""
    same = {path for path, entry in work.entries.items() if golden.entries.get(path) == entry}
    folders = {*work.folders()}
    for path in golden.entries.keys() - same:
        (folder / path).rmdir() if _is_folder(golden, path) else (folder / path).unlink()
    for path in reversed(golden.folders()):
        if path not in folders and (folder / path).is_dir():
            (folder / path).rmdir()
    for path in work.folders():
        make_folder(folder / path)
    most = mode_in(folder, 0o777)
    for path, entry in work.with_links_last():
        if path in same:
            continue
        if isinstance(entry, TreeLink):
            (folder / path).symlink_to(entry.target)
        elif isinstance(entry, TreeFile):
            mode = 0o777 if entry.is_executable else 0o666
            copy_file(objects.path(entry.digest), folder / path, mode & most)


def _is_folder(listing: Listing, path: str) -> bool:
    return isinstance(listing.entries[path], TreeFolder)


class ArrivedTrees:
    """The trees of a session at its agent. Their files arrive in ``files``; a suite's tree has a writable
    copy below ``place``, which is the suite's folder for all cases of the session that name the same files.
    A file that others name too is the same one in all these folders, as in the suite's own.
    """

    def __init__(self, place: Path, objects: ObjectStore) -> None:
        self.files = ObjectStore(place / "files")
        self.trees = Trees(objects)
        self.toolchains: dict[str, StepSite] = {}
        """By tree: those that only some steps use."""
        self._objects = objects
        self._place = place
        self._suites: dict[Digest, Path] = {}
        self._copied: dict[tuple[str, Digest, int], tuple[Path, Stamp]] = {}
        self._alone = threading.Lock()

    def assemble(self, data: bytes) -> tuple[Digest, ...]:
        """Have the tree of this listing in the store; or the files that are still needed for it. Raises
        DamagedError, HomeError and OSError.
        """
        listing, digest = decode_listing(data), digest_bytes(data)
        with self._alone:
            with contextlib.suppress(DamagedError):
                self.trees.path(digest)
                return ()
            found = {one.digest for one in listing.entries.values() if isinstance(one, TreeFile)}
            lacking = tuple(sorted(one for one in found if not self.files.has(one)))
            if lacking:
                return lacking
            make_folder(self._objects.root / "tmp")
            with scratch_folder(self._objects.root / "tmp") as scratch:
                assemble(scratch / "tree", listing, self._put)
                self.trees.adopt(scratch / "tree")
        return ()

    def _put(self, digest: Digest, path: Path, mode: int) -> None:
        copy_file(self.files.path(digest), path, mode)

    def open_suite(self, tree: Digest) -> Path:
        """The folder of a suite with these files. Raises DamagedError, HomeError and OSError."""
        with self._alone:
            if tree not in self._suites:
                make_folder(self._place)
                # A short name: messages of programs have it.
                folder = Path(tempfile.mkdtemp(prefix="suite-", dir=self._place))
                self.trees.copy(tree, folder, put=partial(self._share, tree, folder))
                self._suites[tree] = folder
            return self._suites[tree]

    def _share(self, tree: Digest, folder: Path, source: Path, target: Path, mode: int) -> None:
        """Make a file of a suite, which is another folder's unless a program has changed that since."""
        path = str(target.relative_to(folder))
        entry = self.trees.listing(tree).entries[path]
        if not isinstance(entry, TreeFile):
            raise AssertionError(f"{path} is no file")
        key = path, entry.digest, mode
        first, stamp = self._copied.get(key, (None, None))
        if first is not None:
            with contextlib.suppress(OSError):
                if stamp_of(first.lstat()) == stamp:
                    target.hardlink_to(first)
                    return
        copy_file(source, target, mode)
        self._copied[key] = target, stamp_of(target.lstat())

    def settle(self, command: CommandRun) -> CommandRun:
        """A command with its toolchain here, and with variables that list folders of this host. Raises
        DamagedError, HomeError and UsageError.
        """
        here = {path: str(self.trees.path(tree)) for path, tree in command.folders.items()}
        env = {name: _replace_entries(text, here) for name, text in command.env.items()}
        if here:  # trees are read-only, and Python would write beside the modules that it imports
            env.setdefault("PYTHONPYCACHEPREFIX", str(self._place / "pycache"))
        if not command.toolchain:
            return msgspec.structs.replace(command, env=env)
        site = self.toolchains.get(command.toolchain)
        if site is None:
            raise UsageError(f"toolchain {command.toolchain} was not opened here")
        return msgspec.structs.replace(command, toolchain=site.toolchain, env={**site.env, **env})


def _replace_entries(text: str, places: Mapping[str, str]) -> str:
    return os.pathsep.join(places.get(entry, entry) for entry in text.split(os.pathsep))


class CaseFolders:
    """The folders of cases that run on one device of an agent, below ``place``, until its next batch."""

    def __init__(self, place: Path, arrived: ArrivedTrees) -> None:
        self.kept = ObjectStore(place / "kept")
        self._place = place
        self._arrived = arrived
        self._numbers = itertools.count(1)

    @property
    def are_there(self) -> bool:
        """Whether any is there."""
        return self._place.exists()

    def clear(self) -> None:
        """Remove them, and what is kept of them. Raises OSError."""
        remove_folder(self._place)

    def settle_log(self, entry: RunEntry) -> RunEntry:
        """An entry of a kernel with a log of this host, which is gone with the session at the latest."""
        return msgspec.structs.replace(entry, log=f"{self._place}-{next(self._numbers)}.log")

    def settle(self, entry: RunEntry) -> RunEntry:
        """An entry with folders and a log of this host. Raises DamagedError, HomeError and OSError."""
        command = entry.command
        if command is None:
            raise AssertionError(f"case {entry.case} is not a case of programs")
        folder = self._place / str(next(self._numbers))
        suite = self._arrived.open_suite(Digest(command.suite))
        command = msgspec.structs.replace(
            self._arrived.settle(command), folder=str(folder), suite=str(suite)
        )
        return msgspec.structs.replace(entry, command=command, log=f"{folder}.log")

    def keep(self, entry: RunEntry) -> tuple[Digest, tuple[str, ...]]:
        """The listing of what a case's program left, an object in ``kept`` as what it names, and a line for
        each entry that is left out. Raises HomeError and OSError.
        """
        if entry.command is None:
            raise AssertionError(f"case {entry.case} is not a case of programs")
        work, tree, part = Path(entry.command.folder, DATA), entry.golden.tree, entry.golden.part
        if not work.is_dir():  # it ended before that
            return Digest(""), ()
        golden = self._arrived.trees.listing(tree) if tree else Listing(entries={})
        linked = self._arrived.trees.path(tree, part.path) if part.is_linked else None
        listing, refused = list_work(work, golden, linked)
        return keep_work(listing, golden, work, self.kept), refused

    def read_small(self, work: Digest) -> tuple[bytes, ...]:
        """What is kept of a case with this listing, if it is not more than SMALL_BYTES: the listing, then
        files. Raises DamagedError.
        """
        listing = self.kept.get_bytes(work) if work else b""
        if not 0 < len(listing) <= SMALL_BYTES:
            return ()
        sizes = {
            entry.digest: entry.size
            for entry in decode_listing(listing).entries.values()
            if isinstance(entry, TreeFile) and self.kept.has(entry.digest)
        }
        if len(listing) + sum(sizes.values()) > SMALL_BYTES:
            return ()
        return (listing, *map(self.kept.get_bytes, sizes))
