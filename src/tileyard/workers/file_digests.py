"""The content of the files that a step's result depends on, as one digest."""

import os
import stat
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from tileyard.artifacts.keys import digest_chunks, digest_parts

CHUNK = 1 << 20
LONGEST = 1000
"""Longer arguments are no paths."""
IGNORED = frozenset({".git", "__pycache__", ".tileyard"})
"""Folders whose content never counts."""

_Stamp = tuple[int, int, int]


class FileDigests:
    """Reads each file once for as long as it does not change; usable from any thread."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[_Stamp, str]] = {}
        self._lock = threading.Lock()

    def digest(self, folder: Path, patterns: Sequence[str]) -> tuple[str, tuple[str, ...]]:
        """The digest of names and contents of all files that fit, and the patterns that fit none.

        A pattern is a path or a glob below ``folder``, or absolute; a directory stands for all files in
        it. Names count as they are found from ``folder``, so that the same tree elsewhere is the same.
        """
        parts: list[str] = []
        missing: list[str] = []
        for pattern in patterns:
            files = sorted(set(find_files(folder, pattern)))
            if not files:
                missing.append(pattern)
            for path in files:
                name = os.path.relpath(path, folder) if path.is_relative_to(folder) else path.name
                parts += [name, self._digest_file(path)]
        return digest_parts("files", *parts), tuple(missing)

    def _digest_file(self, path: Path) -> str:
        status = path.stat()
        stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        with self._lock:
            known = self._known.get(str(path))
        if known is not None and known[0] == stamp:
            return known[1]
        with path.open("rb") as file:
            digest = digest_chunks(iter(lambda: file.read(CHUNK), b""))
        mark = "x" if status.st_mode & stat.S_IXUSR else "-"
        with self._lock:
            self._known[str(path)] = (stamp, mark + digest)
        return mark + digest


def find_files(folder: Path, pattern: str) -> Iterator[Path]:
    """The files that a pattern names, as ``FileDigests.digest`` reads it."""
    path = folder / pattern
    if path.is_file():
        yield path
    elif path.is_dir():
        yield from _walk(path)
    elif any(sign in pattern for sign in "*?["):
        base = Path(path.anchor)
        for found in base.glob(str(path.relative_to(base))):
            if found.is_file() and IGNORED.isdisjoint(found.parts):
                yield found


def _walk(top: Path) -> Iterator[Path]:
    for folder, names, files in os.walk(top):
        names[:] = [name for name in names if name not in IGNORED]
        for file in files:
            path = Path(folder, file)
            if path.is_file():
                yield path


def is_file(folder: Path, text: str) -> bool:
    """Whether an argument names a file, as seen from ``folder``."""
    return 0 < len(text) < LONGEST and "\0" not in text and (folder / text).is_file()
