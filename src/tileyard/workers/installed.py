"""Computes digests of the content of folders with installed Python packages, equal wherever they
are. A package's ``RECORD`` is trusted, but for files changed after it. A home keeps a folder's
digest by the paths, sizes, inodes and change times of its files.
"""

import base64
import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from tileyard.artifacts.keys import digest_parts
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.errors import HomeError

KIND = "installed"
RECIPE = "1"
"""The version of how digests are made; a change to this module that changes them raises it."""
SETTLED_S = 2.0
"""Seconds after a change within which a file may change again without a new change time."""
CHUNK = 1 << 20
_STARTED = ("sitecustomize.py", "usercustomize.py")


class InstalledPackages:
    """Digests of such folders, each computed once; usable from any thread."""

    def __init__(self, objects: ObjectStore, settled_s: float = SETTLED_S) -> None:
        """``objects`` has earlier runs' digests; those unchanged for ``settled_s`` seconds are stored."""
        self._objects = objects
        self._settled_ns = int(settled_s * 1e9)
        self._known: dict[tuple[str, ...], str] = {}
        self._lock = threading.Lock()

    def digest(self, folders: Sequence[str]) -> str:
        """The digest of everything that is installed in these folders. Raises OSError."""
        key = tuple(dict.fromkeys(map(os.path.realpath, folders)))
        with self._lock:
            if key not in self._known:
                self._known[key] = digest_parts(*map(self._digest, key))
            return self._known[key]

    def _digest(self, folder: str) -> str:
        began_ns = time.time_ns()
        stamps, changed_ns = _stamp(folder)
        known = self._objects.get_record(KIND, stamps)
        if known is not None:
            return known.decode()
        digest = digest_parts("installed", *_list(folder, "", _read_records(Path(folder))))
        if changed_ns <= began_ns - self._settled_ns:
            with contextlib.suppress(HomeError):  # what cannot be stored is read by the next run
                self._objects.put_record(KIND, stamps, digest.encode())
        return digest


def digest_started(folders: Sequence[str]) -> str:
    """The digest of the code in these folders that an interpreter runs at each start. Raises OSError."""
    parts: list[str] = []
    for folder in dict.fromkeys(map(Path, folders)):
        files = [*sorted(folder.glob("*.pth")), *(folder / name for name in _STARTED)]
        parts += [text for file in files if file.is_file() for text in (file.name, _hash(file))]
    return digest_parts("started", *parts)


def _stamp(folder: str) -> tuple[str, int]:
    """The digest of the metadata of a folder's files, and when the last one of them was changed."""
    stamps: list[str] = []
    changed_ns = 0
    for below, names, files in os.walk(folder, followlinks=True):
        names[:] = sorted(name for name in names if name != "__pycache__")
        for name in sorted(files):
            path = f"{below}{os.sep}{name}"
            with contextlib.suppress(FileNotFoundError):  # a link that leads nowhere has no content
                status = os.stat(path)  # noqa: PTH116 - tens of thousands of files
                changed_ns = max(changed_ns, status.st_ctime_ns)
                stamps += (path, f"{status.st_ctime_ns} {status.st_size} {status.st_ino}")
    return digest_parts("stamps", RECIPE, *stamps), changed_ns


def _list(folder: str, shown: str, recorded: dict[str, tuple[str, int]]) -> list[str]:
    """Names and contents of a folder's files, sorted; ``shown`` is the prefix of the names."""
    parts: list[str] = []
    if not os.path.isdir(folder):  # noqa: PTH112 - a Path costs more than all else
        return parts
    is_about = shown.endswith(".dist-info/")  # which also records when and how it was installed
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        name = f"{shown}{entry.name}"
        if entry.is_dir():
            if entry.name != "__pycache__":
                parts += _list(entry.path, f"{name}/", recorded)
        elif not is_about or entry.name == "METADATA":
            known, since_ns = recorded.get(name, ("", 0))
            # A changed file has a later change time, whatever modification time it is given.
            if known and entry.stat().st_ctime_ns < since_ns:
                parts += (name, known)
            elif entry.is_file():
                parts += (name, _hash(Path(entry.path)))
    return parts


def _read_records(folder: Path) -> dict[str, tuple[str, int]]:
    """For each installed file, its recorded SHA-256 and when the record was written."""
    found: dict[str, tuple[str, int]] = {}
    for record in folder.glob("*.dist-info/RECORD"):
        since_ns = record.stat().st_ctime_ns
        for line in record.read_text(encoding="utf-8").splitlines():
            name, _, rest = line.rpartition(",")[0].rpartition(",sha256=")
            if rest and not name.startswith(('"', "..")):
                found[name] = (rest, since_ns)
    return found


def _hash(path: Path) -> str:
    state = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(CHUNK):
            state.update(data)
    return base64.urlsafe_b64encode(state.digest()).decode().rstrip("=")
