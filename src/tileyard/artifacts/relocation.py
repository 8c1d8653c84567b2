"""Old absolute places in the files of a folder: found, and in text files made replaceable.

A built folder knows where it was installed: shebangs, CMake and pkg-config files, wrapper scripts.
In text the old place becomes ``PLACEHOLDER``, so that a folder built at two places is one content, and
at the new place the placeholder becomes that. Binaries are never changed, only listed.
"""

import mmap
import os
import re
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from tileyard.artifacts.copying import copy_file
from tileyard.artifacts.folders import check_folder, read_link, walk
from tileyard.model import Record

PLACEHOLDER = b"@@tileyard:place@@"
_BIGGEST_TEXT = 16 << 20
_SKIPPED = "__pycache__"
_EVERYWHERE = frozenset({"/bin/sh", "/bin/bash", "/usr/bin/env", "/usr/bin/sh", "/usr/bin/bash"})


class Staged(Record):
    """A folder as it was copied. All are paths below it.

    ``texts`` hold the placeholder now, ``stale`` are binaries that hold the old place still.
    ``interpreters`` are scripts whose program lies elsewhere, as ``path: program``.
    """

    texts: tuple[str, ...]
    stale: tuple[str, ...]
    interpreters: tuple[str, ...]


def stage(folder: Path, target: Path, prefixes: Sequence[str]) -> Staged:
    """Copy a folder into ``target``, which is empty, with ``prefixes`` replaced in text files.

    Links to absolute places within the folder become relative. Compiled Python is left out: it is
    bound to times. Raises UsageError for what cannot be read or kept in a tree, OSError.
    """
    pattern = _places(prefixes)
    texts: list[str] = []
    stale: list[str] = []
    interpreters: list[str] = []
    for path, status in walk(folder):
        if _SKIPPED in path.split("/"):
            continue
        source, copy = folder / path, target / path
        if stat.S_ISDIR(status.st_mode):
            copy.mkdir()
        elif stat.S_ISLNK(status.st_mode):
            copy.symlink_to(_inside(read_link(source), path, prefixes))
        else:
            copy_file(source, copy, 0o755 if status.st_mode & stat.S_IXUSR else 0o644)
            if _holds(copy, pattern):
                (texts if _replace(copy, pattern, PLACEHOLDER) else stale).append(path)
            program = _find_interpreter(copy)
            if program:
                interpreters.append(f"{path}: {program}")
    check_folder(target)  # by itself: where it will lie, there is more around it
    return Staged(texts=tuple(texts), stale=tuple(stale), interpreters=tuple(interpreters))


def settle(folder: Path, texts: Iterable[str], place: str) -> None:
    """Put the new place where the placeholder stands. Raises OSError."""
    pattern = re.compile(re.escape(PLACEHOLDER))
    for path in texts:
        _replace(folder / path, pattern, os.fsencode(place))


def _places(prefixes: Sequence[str]) -> re.Pattern[bytes]:
    """The old places, the longest first, and nothing that merely begins like one."""
    ordered = sorted(map(os.fsencode, prefixes), key=len, reverse=True)
    return re.compile(b"(?:" + b"|".join(map(re.escape, ordered)) + rb")(?![A-Za-z0-9._+-])")


def _inside(link: str, path: str, prefixes: Sequence[str]) -> str:
    for prefix in prefixes:
        if link.startswith(f"{prefix}/"):
            return os.path.relpath(link[len(prefix) + 1 :], str(Path(path).parent))
    return link


def _holds(path: Path, pattern: re.Pattern[bytes]) -> bool:
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return False
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return pattern.search(content) is not None


def _replace(path: Path, pattern: re.Pattern[bytes], by: bytes) -> bool:
    """Replace in a text file; False for what is none."""
    if path.stat().st_size > _BIGGEST_TEXT:
        return False
    content = path.read_bytes()
    if b"\0" in content:
        return False
    path.write_bytes(pattern.sub(lambda _: by, content))
    return True


def _find_interpreter(path: Path) -> str:
    """The absolute program of a script's first line, unless it lies in the folder or everywhere."""
    with path.open("rb") as file:
        line = file.readline(512)
    if not line.startswith(b"#!"):
        return ""
    words = line[2:].split()
    program = words[0].decode(errors="replace") if words else ""
    is_own = program.encode().startswith(PLACEHOLDER)
    return "" if is_own or program in _EVERYWHERE else program
