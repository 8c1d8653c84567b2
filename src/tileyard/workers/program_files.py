"""Identifies programs by content: the file that would run, what the dynamic loader adds, and doubts."""

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from tileyard.artifacts.elf_links import read_links
from tileyard.artifacts.keys import digest_parts
from tileyard.artifacts.libraries import (
    DEFAULT_FOLDERS,
    LibraryFinder,
    is_elf,
    variable_folders,
)
from tileyard.base.model import Record
from tileyard.workers.file_digests import FileDigests

PYTHON = re.compile(r"python[\d.]*")
STARTING = re.compile(r"f?execve|exec[lv]p?e?|execveat|posix_spawnp?|system|popen")
"""Functions of the C library that start other programs."""
LOADING = re.compile(r"dlm?open")
"""Functions that load libraries which are not named before."""
PRELOADED = Path("/etc/ld.so.preload")
LONGEST_LINE = 512


class Program(Record):
    """Digests of a program's ``parts``, and ``doubts`` that these are all; ``interpreter``: a script's."""

    path: Path
    parts: dict[str, str]
    doubts: tuple[str, ...] = ()
    interpreter: tuple[str, ...] = ()

    @property
    def is_python(self) -> bool:
        """Whether it is a Python interpreter, and not a script that chooses one."""
        return not self.interpreter and PYTHON.fullmatch(self.path.name) is not None


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
        self._finders: dict[tuple[Path, ...], LibraryFinder] = {}
        self._known: dict[tuple[Path, str, tuple[Path, ...]], Program] = {}

    def look_at(self, path: Path, env: Mapping[str, str], name: str = "") -> Program:
        """The program in a file, as it would run with these variables. Raises OSError."""
        name = name or path.name
        key = (path, name, variable_folders(env))
        if key not in self._known:
            self._known[key] = self._look_at(path, env, name)
        return self._known[key]

    def _look_at(self, path: Path, env: Mapping[str, str], name: str) -> Program:
        parts = {f"program {name}": self._digests.digest_file(path)}
        if not is_elf(path):
            return self._look_at_script(path, name, parts)
        libraries, doubts = self.find_libraries(path, env)
        parts.update(libraries)
        links = read_links(path)
        if links is None or links.imports is None:
            doubts = (f"{name} is linked statically, so it cannot be seen what it starts", *doubts)
        else:
            doubts = (*_doubt(name, links.imports), *doubts)
        return Program(path=path, parts=parts, doubts=doubts)

    def find_libraries(
        self, path: Path, env: Mapping[str, str]
    ) -> tuple[dict[str, str], tuple[str, ...]]:
        """Digests of libraries that an ELF file loads, and doubts about other places. Raises OSError."""
        finder = self._find_finder(env)
        parts: dict[str, str] = {}
        doubts: list[str] = []
        left, seen = [path], {path}
        if PRELOADED.is_file():
            parts[str(PRELOADED)] = self._digests.digest_file(PRELOADED)
        while left:
            user = left.pop()
            links = read_links(user)
            if links is None:
                continue
            imports = links.imports
            if user != path and imports and not _is_default(user):
                doubts += _doubt(user.name, imports)
            for soname in links.needs.libraries:
                found = finder.find(soname, links.needs, user)
                if found is None:
                    parts.setdefault(f"library {soname}", "")
                    continue
                library = found.resolve()
                if library in seen:
                    continue
                seen.add(library)
                left.append(library)
                digest, known = self._digests.digest_file(library), parts.get(f"library {soname}")
                parts[f"library {soname}"] = digest_parts(known, digest) if known else digest
        return parts, tuple(doubts)

    def _look_at_script(self, path: Path, name: str, parts: dict[str, str]) -> Program:
        with path.open("rb") as file:
            line = file.readline(LONGEST_LINE).decode(errors="replace")
        if not line.startswith("#!"):
            doubt = f"{name} is neither a program in ELF nor a script that names its interpreter"
            return Program(path=path, parts=parts, doubts=(doubt,))
        words = line[2:].strip().split(None, 1)
        if words and Path(words[0]).name == "env":
            words = words[1].split() if len(words) > 1 else []
        if not words or words[0].startswith("-") or "=" in words[0]:
            doubt = f"the first line of {name} names no interpreter that can be looked at"
            return Program(path=path, parts=parts, doubts=(doubt,))
        return Program(path=path, parts=parts, interpreter=tuple(words))

    def _find_finder(self, env: Mapping[str, str]) -> LibraryFinder:
        folders = variable_folders(env)
        if folders not in self._finders:
            self._finders[folders] = LibraryFinder(folders)
        return self._finders[folders]


def _is_default(path: Path) -> bool:
    """Whether a library is the system's own: it starts or loads only what its users pass to it by name."""
    return any(path.is_relative_to(folder.resolve()) for folder in DEFAULT_FOLDERS)


def _doubt(name: str, imports: frozenset[str]) -> list[str]:
    doubts = []
    if found := sorted(filter(STARTING.fullmatch, imports)):
        doubts.append(f"{name} can start other programs ({found[0]})")
    if found := sorted(filter(LOADING.fullmatch, imports)):
        doubts.append(f"{name} can load further libraries ({found[0]})")
    return doubts
