"""Identifies programs by content: the file that would run, what the loader adds, and what cannot be seen."""

import functools
import mmap
import os
import re
import shutil
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

from tileyard.artifacts.digests import FileDigests
from tileyard.artifacts.footprint import Footprint
from tileyard.artifacts.libraries import (
    DEFAULT_FOLDERS,
    NUMBERS,
    LibraryFinder,
    Needs,
    is_elf,
    variable_folders,
)
from tileyard.base.model import Record

_MACHINES = {number: name for name, number in NUMBERS.items()}
_HEAD = struct.Struct("<4sBB10xHHIQQQIHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_ENTRY = struct.Struct("<qQ")
_SYMBOL = struct.Struct("<IBBHQQ")
PYTHON = re.compile(r"python[\d.]*")
STARTING = re.compile(r"f?execve|exec[lv]p?e?|execveat|posix_spawnp?|system|popen")
"""Functions of the C library that start other programs."""
LOADING = re.compile(r"dlm?open")
"""Functions that load libraries which are not named before."""
PRELOADED = Path("/etc/ld.so.preload")
LONGEST_LINE = 512
Program = tuple[Footprint, tuple[str, ...]]
"""What a program depends on, and for a script the interpreter in its first line, else nothing."""


_WIDE, _LITTLE = 2, 1
_PROGRAM, _SHARED = 2, 3
_LOADED, _DYNAMIC = 1, 2
_END, _NEEDED, _STRINGS, _SYMBOLS, _RPATH, _RUNPATH = 0, 1, 5, 6, 15, 29


class Links(Record):
    """Libraries that a file asks for, and names that it takes; None if it is not dynamically linked."""

    needs: Needs
    imports: frozenset[str] | None = None


def read_links(path: Path) -> Links | None:
    """The links of a program or library; None for any other file, including a damaged one. Raises OSError."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size < _HEAD.size:
            return None
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                return _read(data)
            except (struct.error, ValueError, IndexError):
                return None


def _read(data: mmap.mmap) -> Links | None:
    head = _HEAD.unpack_from(data)
    magic, width, order, kind, machine = head[:5]
    if (magic, width, order) != (b"\x7fELF", _WIDE, _LITTLE) or kind not in (_PROGRAM, _SHARED):
        return None
    first, size, count = head[7], head[11], head[12]
    segments = [_SEGMENT.unpack_from(data, first + number * size) for number in range(count)]
    needs = Needs(machine=_MACHINES.get(machine, str(machine)))
    dynamic = next((one for one in segments if one[0] == _DYNAMIC), None)
    if dynamic is None:
        return Links(needs=needs)
    tags = list(_read_tags(data, dynamic[2], dynamic[5]))
    places = dict(tags)

    def find(address: int) -> int:
        for one in segments:
            if one[0] == _LOADED and one[3] <= address < one[3] + one[5]:
                return int(address - one[3] + one[2])
        raise ValueError(address)

    strings = find(places[_STRINGS]) if _STRINGS in places else 0

    def text(offset: int) -> str:
        end = data.find(b"\0", strings + offset)
        if end < 0:
            raise ValueError(offset)
        return data[strings + offset : end].decode(errors="replace")

    needed = tuple(text(value) for tag, value in tags if tag == _NEEDED)
    search = places.get(_RUNPATH, places.get(_RPATH))
    imports = None
    if needed and _SYMBOLS in places:
        start = find(places[_SYMBOLS])
        if strings <= start:  # no linker does that
            raise ValueError(strings)
        table = data[start : start + (strings - start) // _SYMBOL.size * _SYMBOL.size]
        offsets = {one[0] for one in _SYMBOL.iter_unpack(table) if one[3] == 0 and one[0]}
        # After the symbols there may be another table, whose entries could look like names.
        imports = frozenset(text(one) for one in offsets if strings + one < len(data))
    return Links(
        needs=Needs(
            machine=needs.machine,
            libraries=needed,
            search=() if search is None else tuple(filter(None, text(search).split(":"))),
            is_rpath=_RPATH in places and _RUNPATH not in places,
        ),
        imports=imports,
    )


def _read_tags(data: mmap.mmap, start: int, size: int) -> Iterator[tuple[int, int]]:
    for offset in range(start, start + size, _ENTRY.size):
        tag, value = _ENTRY.unpack_from(data, offset)
        if tag == _END:
            return
        yield tag, value


def find_by_name(name: str, env: Mapping[str, str], cwd: str) -> Path | None:
    """The file that a step would run; None if there is none."""
    if os.sep in name:
        path = Path(cwd, name)
        return path if path.is_file() and os.access(path, os.X_OK) else None
    folders = env.get("PATH", os.defpath).split(os.pathsep)
    search = os.pathsep.join(str(Path(cwd, folder)) for folder in folders)
    found = shutil.which(name, path=search)
    return Path(found) if found else None


class ProgramFiles:
    """Looks at programs, once at each."""

    def __init__(self, digests: FileDigests) -> None:
        self._digests = digests
        self._find_finder = functools.cache(LibraryFinder)
        self._known: dict[tuple[Path, str, tuple[Path, ...]], Program] = {}

    def look_at(self, path: Path, env: Mapping[str, str], name: str = "") -> Program:
        """The program in a file, as it would run with these variables. Raises OSError."""
        name = name or path.name
        key = (path, name, variable_folders(env))
        if key not in self._known:
            self._known[key] = self._look_at(path, env, name)
        return self._known[key]

    def _look_at(self, path: Path, env: Mapping[str, str], name: str) -> Program:
        footprint = Footprint(parts={f"program {name}": self._digests.digest_file(path)})
        if not is_elf(path):
            return footprint, _find_interpreter(path, name, footprint)
        links = read_links(path)
        if links is None or links.imports is None:
            footprint.doubt(f"{name} is linked statically, so it cannot be seen what it starts")
        else:
            _doubt(name, links.imports, footprint)
        self.add_libraries(path, env, footprint)
        return footprint, ()

    def add_libraries(self, path: Path, env: Mapping[str, str], footprint: Footprint) -> None:
        """Add an ELF file's libraries, and doubts about those of other places. Raises OSError."""
        finder = self._find_finder(variable_folders(env))
        left, seen = [path], {path}
        if PRELOADED.is_file():
            footprint.put(str(PRELOADED), self._digests.digest_file(PRELOADED))
        while left:
            user = left.pop()
            links = read_links(user)
            if links is None:
                continue
            imports = links.imports
            if user != path and imports and not _is_default(user):
                _doubt(user.name, imports, footprint)
            for soname in links.needs.libraries:
                found = finder.find(soname, links.needs, user)
                if found is None:
                    footprint.put(f"library {soname}", "")
                    continue
                library = found.resolve()
                if library in seen:
                    continue
                seen.add(library)
                left.append(library)
                footprint.put(f"library {soname}", self._digests.digest_file(library))


def _is_default(path: Path) -> bool:
    """Whether a library is the system's own: it starts or loads only what its users pass to it by name."""
    return any(path.is_relative_to(folder.resolve()) for folder in DEFAULT_FOLDERS)


def _doubt(name: str, imports: frozenset[str], footprint: Footprint) -> None:
    if found := sorted(filter(STARTING.fullmatch, imports)):
        footprint.doubt(f"{name} can start other programs ({found[0]})")
    if found := sorted(filter(LOADING.fullmatch, imports)):
        footprint.doubt(f"{name} can load further libraries ({found[0]})")


def _find_interpreter(path: Path, name: str, footprint: Footprint) -> tuple[str, ...]:
    """The interpreter in a script's first line; what cannot be understood there is a doubt."""
    with path.open("rb") as file:
        line = file.readline(LONGEST_LINE).decode(errors="replace")
    if not line.startswith("#!"):
        footprint.doubt(
            f"{name} is neither a program in ELF nor a script that names its interpreter"
        )
        return ()
    words = line[2:].strip().split(None, 1)
    if words and Path(words[0]).name == "env":
        words = words[1].split() if len(words) > 1 else []
    if not words or words[0].startswith("-") or "=" in words[0]:
        footprint.doubt(f"the first line of {name} names no interpreter that can be looked at")
        return ()
    return tuple(words)
