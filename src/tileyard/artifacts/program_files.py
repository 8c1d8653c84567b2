"""Identifies programs by content: the file that would run, what the loader adds, and what cannot be seen."""

import functools
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from tileyard.artifacts.digests import FileDigests
from tileyard.artifacts.elf_links import read_links
from tileyard.artifacts.footprint import Footprint
from tileyard.artifacts.libraries import (
    DEFAULT_FOLDERS,
    LibraryFinder,
    is_elf,
    variable_folders,
)

PYTHON = re.compile(r"python[\d.]*")
STARTING = re.compile(r"f?execve|exec[lv]p?e?|execveat|posix_spawnp?|system|popen")
"""Functions of the C library that start other programs."""
LOADING = re.compile(r"dlm?open")
"""Functions that load libraries which are not named before."""
PRELOADED = Path("/etc/ld.so.preload")
LONGEST_LINE = 512

Program = tuple[Footprint, tuple[str, ...]]
"""What a program depends on, and for a script the interpreter in its first line, else nothing."""


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
