"""Packs built folders as toolchains: their content, their needs, and the libraries that come along."""

import platform
import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from tileyard.artifacts.bundle_manifest import BundleManifest
from tileyard.artifacts.bundles import Packing, write_bundle
from tileyard.artifacts.compat import Requirements, higher_level, python_tag, sum_needs
from tileyard.artifacts.copying import copy_file, scratch_folder
from tileyard.artifacts.keys import canonical_json
from tileyard.artifacts.libraries import (
    CXX_RUNTIME,
    DRIVER,
    LibraryFinder,
    Needs,
    expand_search,
    is_base,
    read_needs,
)
from tileyard.artifacts.objects import ObjectStore
from tileyard.artifacts.prerequisites import Prerequisites
from tileyard.artifacts.toolchains import CONTENT, CXX, LIBRARIES, Layout, stage
from tileyard.artifacts.trees import Trees
from tileyard.base.errors import BundleError, UsageError
from tileyard.base.model import Record

_TAG = re.compile(r"\.(cpython|pypy)-?(\d+)[^.]*\.so$")


class ToolchainSource(Record):
    """A toolchain's folder and commit. Files may also name ``prefixes`` as their place;
    ``programs`` and ``python`` add to PATH and PYTHONPATH, ``search`` is its LD_LIBRARY_PATH.
    ``cpu_level``, ``driver`` and ``prerequisites``: needs that files do not show.
    """

    folder: Path
    commit: str
    prefixes: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    python: tuple[str, ...] = ()
    search: tuple[Path, ...] = ()
    cpu_level: str = ""
    driver: str = ""
    prerequisites: Prerequisites = Prerequisites()


def pack_toolchain(source: ToolchainSource, output: Path) -> BundleManifest:
    """Pack a built folder with the libraries it needs into ``output``. Raises UsageError for a bad folder."""
    folder = source.folder.resolve()
    if not folder.is_dir() or not any(folder.iterdir()):
        raise UsageError(f"{str(source.folder)!r} is not a directory with something in it")
    gathered = gather(folder, platform.machine(), LibraryFinder(source.search))
    try:
        # Beside the result: there must be room for it there.
        with scratch_folder(output.absolute().parent, ".pack.") as scratch:
            made = scratch / "tree"
            layout = _lay_out(source, folder, gathered, made)
            objects = ObjectStore(scratch / "objects")
            tree = Trees(objects).adopt(made)
            packing = Packing(
                kind="toolchain",
                commit=source.commit,
                toolchain=tree,
                trees=(tree,),
                requires=_state_needs(source, folder, gathered),
                is_complete=True,
                details=canonical_json(layout),
            )
            manifest = write_bundle(packing, objects, output)
    except OSError as error:
        raise BundleError(f"cannot write {output}: {error.strerror or error}") from error
    return manifest


@dataclass(kw_only=True)
class Gathered:
    """The libraries found, by soname: outside the folder, and ``cxx`` of the C++ runtime.
    ``folders``: those whose libraries their users' search path lacks; ``base``: driver libraries of
    this host; ``missing``: not found. ``needs`` are of all files for this machine.
    """

    libraries: dict[str, Path] = field(default_factory=dict)
    cxx: dict[str, Path] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    base: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    needs: list[Needs] = field(default_factory=list)


def gather(folder: Path, machine: str, finder: LibraryFinder) -> Gathered:
    """Follow what a folder's files ask of the dynamic loader, but those for other machines."""
    found = Gathered()
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()]
    libraries = sorted(folder.rglob("*.so*"), reverse=True)
    own = {path.name: path for path in libraries if path.is_file()}  # the first one of each name
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
    """Record the source of one library; return its path if it is new and has needs of its own."""
    user, needs = asking
    own, finder = where
    if is_base(soname):
        if DRIVER.fullmatch(soname) and finder.find(soname, needs, user):
            found.base.add(soname)
        return None
    if "/" in soname:  # the loader takes it literally, so it is not found anywhere else
        found.missing.add(soname)
        return None
    relative = [path for path in needs.search if path.startswith(("$ORIGIN", "${ORIGIN}"))]
    if any(_lies_in(place / soname, folder) for place in expand_search(relative, user)):
        return None  # it comes along, and is found wherever the folder is
    path = finder.find(soname, needs, user)
    place = found.cxx if CXX_RUNTIME.fullmatch(soname) else found.libraries
    if path is not None and _lies_in(path, folder):
        found.folders.add(str(path.parent.resolve().relative_to(folder.resolve())))
    elif soname in own:
        found.folders.add(str(own[soname].parent.relative_to(folder)))
    elif path is None:
        found.missing.add(soname)
    elif soname not in place:
        place[soname] = path.resolve()
        return place[soname]
    return None


def _read(files: Iterable[Path], machine: str) -> list[tuple[Path, Needs]]:
    pairs = ((path, read_needs(path)) for path in files)
    return [(path, needs) for path, needs in pairs if needs and needs.machine == machine]


def _lies_in(path: Path, folder: Path) -> bool:
    return path.is_file() and path.resolve().is_relative_to(folder.resolve())


def _lay_out(source: ToolchainSource, folder: Path, gathered: Gathered, made: Path) -> Layout:
    made.mkdir()
    (made / CONTENT).mkdir()
    old = dict.fromkeys([str(folder), str(source.folder.absolute()), *source.prefixes])
    staged = stage(folder, made / CONTENT, [place.rstrip("/") for place in old])
    for name, libraries in ((LIBRARIES, gathered.libraries), (CXX, gathered.cxx)):
        if libraries:
            (made / name).mkdir()
        for soname, path in libraries.items():
            copy_file(path, made / name / soname, 0o755)
    programs = [*source.programs, *(["bin"] if (folder / "bin").is_dir() else [])]
    python = [*source.python, *_find_python(folder)]
    own = [f"{CONTENT}/{name}" for name in sorted(gathered.folders)]
    return msgspec.structs.replace(
        staged,
        programs=_below(made, programs),
        python=_below(made, python),
        libraries=tuple([*own, LIBRARIES] if gathered.libraries else own),
        missing=tuple(sorted(gathered.missing)),
    )


def _state_needs(source: ToolchainSource, folder: Path, gathered: Gathered) -> Requirements:
    packed = {*gathered.libraries, *gathered.cxx}
    summed = sum_needs(gathered.needs, packed)
    return msgspec.structs.replace(
        summed,
        cpu_level=higher_level(source.cpu_level, summed.cpu_level),
        driver=source.driver,
        libraries=tuple(sorted(gathered.base)),
        python=_find_tag(folder),
        has_cxx=bool(gathered.cxx),
        prerequisites=source.prerequisites,
    )


def _find_python(folder: Path) -> list[str]:
    """The directories of packages: an installation's site-packages, or a directory ``python``."""
    found = [
        path.relative_to(folder).as_posix()
        for name in ("site-packages", "dist-packages")
        for path in sorted(folder.rglob(name))
        if path.is_dir() and not path.is_symlink()
    ]
    if not found and (folder / "python").is_dir():
        found.append("python")
    return found


def _find_tag(folder: Path) -> str:
    """The tag of the Python for which a folder has extension modules; empty if it has none."""
    names = (_TAG.search(path.name) for path in folder.rglob("*.so"))
    tags = {f"{'cp' if match[1] == 'cpython' else 'pp'}{match[2]}" for match in names if match}
    own = python_tag()
    return own if own in tags else min(tags, default="")


def _below(made: Path, names: Iterable[str]) -> tuple[str, ...]:
    for name in dict.fromkeys(names):
        if Path(name).is_absolute() or not (made / CONTENT / name).is_dir():
            raise UsageError(f"{name!r} is not a directory of the folder that is packed")
    return tuple(f"{CONTENT}/{name}" for name in dict.fromkeys(names))
