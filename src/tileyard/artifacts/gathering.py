"""The shared libraries that a folder's programs need and a base system does not have."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tileyard.artifacts.libraries import (
    CXX_RUNTIME,
    DRIVER,
    LibraryFinder,
    Needs,
    expand_search,
    is_base,
    read_needs,
)


@dataclass(kw_only=True)
class Gathered:
    """What was found, by soname.

    ``libraries`` lie outside the folder, ``cxx`` are those of the C++ runtime. ``folders`` are the
    directories of the folder whose libraries are not found by their users' own, relative search
    path. ``base`` are driver libraries that this host has, ``missing`` what nobody has.
    ``needs`` are those of all files that run on this kind of machine.
    """

    libraries: dict[str, Path] = field(default_factory=dict)
    cxx: dict[str, Path] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    base: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    needs: list[Needs] = field(default_factory=list)


def gather(folder: Path, machine: str, finder: LibraryFinder) -> Gathered:
    """Follow what every program and library of a folder asks the dynamic loader for.

    Files for other machines (device code, a cross compiler's libraries) are left alone.
    """
    found = Gathered()
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()]
    own = _index(path for path in sorted(folder.rglob("*.so*")) if path.is_file())
    waiting = deque(_read(files, machine))
    while waiting:
        user, needs = waiting.popleft()
        found.needs.append(needs)
        for soname in needs.libraries:
            library = _resolve(soname, (user, needs), folder, (own, finder), found)
            if library is not None:
                waiting.extend(_read([library], machine))
    return found


def _resolve(
    soname: str,
    asking: tuple[Path, Needs],
    folder: Path,
    where: tuple[dict[str, Path], LibraryFinder],
    found: Gathered,
) -> Path | None:
    """Note where one library comes from; a path where it is new and has needs of its own."""
    user, needs = asking
    own, finder = where
    if is_base(soname):
        if DRIVER.fullmatch(soname) and finder.find(soname, needs, user):
            found.base.add(soname)
        return None
    if "/" in soname:  # the loader takes it as it stands, so it is not found anywhere else
        found.missing.add(soname)
        return None
    relative = [path for path in needs.search if path.startswith(("$ORIGIN", "${ORIGIN}"))]
    if any(_lies_in(place / soname, folder) for place in expand_search(relative, user)):
        return None  # it comes along, and is found wherever the folder lies
    path = finder.find(soname, needs, user)
    if path is not None and _lies_in(path, folder):
        found.folders.add(str(path.parent.resolve().relative_to(folder.resolve())))
        return None
    if soname in own:
        found.folders.add(str(own[soname].parent.relative_to(folder)))
        return None
    if path is None:
        found.missing.add(soname)
        return None
    place = found.cxx if CXX_RUNTIME.fullmatch(soname) else found.libraries
    if soname in place:
        return None
    place[soname] = path.resolve()
    return place[soname]


def _index(files: Iterable[Path]) -> dict[str, Path]:
    """Libraries by their file names; of several the first."""
    own: dict[str, Path] = {}
    for path in files:
        own.setdefault(path.name, path)
    return own


def _read(files: Iterable[Path], machine: str) -> list[tuple[Path, Needs]]:
    pairs = ((path, read_needs(path)) for path in files)
    return [(path, needs) for path, needs in pairs if needs and needs.machine == machine]


def _lies_in(path: Path, folder: Path) -> bool:
    return path.is_file() and path.resolve().is_relative_to(folder.resolve())
