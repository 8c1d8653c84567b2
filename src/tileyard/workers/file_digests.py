"""Computes one digest over the content of the files on which a step's result depends."""

import os
import re
import stat
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from tileyard.artifacts.copying import unreadable
from tileyard.artifacts.folders import add_size
from tileyard.artifacts.keys import digest_chunks, digest_parts
from tileyard.base.errors import UsageError
from tileyard.base.model import Step

CHUNK = 1 << 20
LONGEST = 1000
"""Most characters of a path: longer arguments are not paths."""
IGNORED = frozenset({".git", "__pycache__", ".tileyard"})
"""Folders whose content is always ignored."""

MOST_FILES = 1_000_000
"""Most files that the patterns of one step may name."""
NO_CONTENT = ("/proc", "/sys", "/dev")
"""Folders without stored content: their files are devices, processes and settings."""

_SIGN = re.compile(r"[*?[]")
_Stamp = tuple[int, int, int, int]


class FileDigests:
    """Reads each file once while it does not change; usable from any thread."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[_Stamp, str]] = {}
        self._lock = threading.Lock()

    def digest(self, folder: Path, patterns: Sequence[str]) -> str:
        """The digest of relative names and contents of all files that match, if any. A pattern is a
        path or glob below ``folder``, or absolute; a directory selects all files in it. Raises
        UsageError for an unreadable file or too many.
        """
        parts: list[str] = []
        size = 0
        for pattern in patterns:
            files = sorted(set(find_files(folder, pattern)))
            if len(parts) + len(files) > MOST_FILES:
                raise UsageError(f"inputs {pattern!r}: these are more than {MOST_FILES:,} files")
            for path in files:
                name = os.path.relpath(path, folder) if path.is_relative_to(folder) else path.name
                try:
                    size = add_size(size, str(path), path.stat())
                    parts += [name, self.digest_file(path)]
                except OSError as error:
                    raise unreadable(path, error, f"inputs {pattern!r}: ") from error
        return digest_parts("files", *parts)

    def digest_file(self, path: Path) -> str:
        """A digest of a file's content and of whether its owner may run it. Raises OSError."""
        status = path.stat()
        # A file can be changed and given its old modification time again; then its change time is different.
        stamp = (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)
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
    """The files that a pattern matches, with the rules of ``FileDigests.digest``. Raises UsageError."""
    path = folder / pattern
    if path.is_file():
        yield path
        return
    if problem := find_problem(path):
        raise UsageError(f"inputs {pattern!r}: {problem}")
    try:
        if path.is_dir():
            yield from _walk(path)
        elif _SIGN.search(pattern):
            if path.name == "**":  # before Python 3.13 it selects only folders
                path /= "*"
            base = Path(path.anchor)
            for found in base.glob(str(path.relative_to(base))):
                if found.is_file() and IGNORED.isdisjoint(found.parts):
                    yield found
    except RecursionError:
        raise UsageError(f"inputs {pattern!r}: its folders are nested too deeply") from None
    except OSError as error:
        where = str(error.filename)[:LONGEST]
        raise unreadable(where, error, f"inputs {pattern!r}: ") from error


def find_problem(pattern: Path) -> str:
    """Why an absolute path or glob cannot name inputs, empty if it can."""
    parts = pattern.parts
    signs = [number for number, part in enumerate(parts) if _SIGN.search(part)]
    fixed = os.path.normpath(Path(*parts[: signs[0]] if signs else parts))
    if any("**" in part and part != "**" for part in parts):
        return "** matches folders, and must be a part of its own"
    if signs and ".." in parts[signs[0] :]:
        return "there must be no .. behind a *, ? or ["
    if fixed == "/":
        return "it covers the whole file system: name a folder"
    top = "/".join(fixed.split("/")[:2])
    if top in NO_CONTENT and (signs or fixed == top):
        return f"nothing is stored in {top}"
    return ""


def _walk(top: Path) -> Iterator[Path]:
    for folder, names, files in os.walk(top, onerror=_fail):
        names[:] = [name for name in names if name not in IGNORED]
        for file in files:
            path = Path(folder, file)
            if path.is_file():
                yield path


def _fail(error: OSError) -> NoReturn:
    raise error


def is_file(folder: Path, text: str) -> bool:
    """Whether an argument names a file, as seen from ``folder``."""
    return 0 < len(text) < LONGEST and "\0" not in text and (folder / text).is_file()


def find_arguments(step: Step, folder: Path) -> list[str]:
    """The arguments that are files relative to the suite's folder: the step's result depends on them."""
    return [text for text in step.argv if "{" not in text and is_file(folder, text)]
