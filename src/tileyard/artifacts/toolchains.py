"""Opens built toolchains from bundles: packed with the libraries they need, used at any other place.
``lib`` has needed libraries but glibc's and drivers', ``cxx`` the C++ runtime for older hosts. They are found
by LD_LIBRARY_PATH, stated with PATH and PYTHONPATH. Text files name their place as ``PLACEHOLDER``, replaced
by the new place: one content for all. Binaries that name theirs are listed, never changed.
"""

import contextlib
import mmap
import os
import platform
import posixpath
import re
import stat
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from tileyard.artifacts.bundle_file import BundleManifest, Expected, unsound
from tileyard.artifacts.bundles import Packing, check_bundle, open_bundle, write_bundle
from tileyard.artifacts.compat import (
    Host,
    Prerequisites,
    Requirements,
    higher_level,
    python_tag,
    read_host,
    sum_needs,
)
from tileyard.artifacts.copying import copy_file, scratch_folder, writing_to
from tileyard.artifacts.folders import (
    Listing,
    TreeFile,
    check_folder,
    decode_listing,
    read_link,
    walk,
)
from tileyard.artifacts.libraries import (
    CXX_RUNTIME,
    DRIVER,
    LibraryFinder,
    Needs,
    expand_search,
    is_base,
    is_newer,
    read_needs,
)
from tileyard.artifacts.objects import ObjectStore, canonical_json
from tileyard.artifacts.trees import Trees
from tileyard.base.decoding import decode_json
from tileyard.base.errors import BundleError, DamagedError, UsageError
from tileyard.base.model import Digest, Record
from tileyard.base.modes import make_folder

PLACEHOLDER = b"@@tileyard:place@@"
_BIGGEST_TEXT = 16 << 20
_SKIPPED = "__pycache__"
_EVERYWHERE = frozenset({"/bin/sh", "/bin/bash", "/usr/bin/env", "/usr/bin/sh", "/usr/bin/bash"})
_TAG = re.compile(r"\.(cpython|pypy)-?(\d+)[^.]*\.so$")


CONTENT, LIBRARIES, CXX = "content", "lib", "cxx"
"""The directories of a toolchain's tree: what was built, and the libraries that it needs."""


class Layout(Record):
    """A toolchain's part of the manifest, directories relative to the tree. ``relocated``: texts
    that name their place; ``stale``: binaries that do; ``interpreters``: scripts whose program is
    not packed; ``missing``: libraries missing when packed.
    """

    programs: tuple[str, ...]
    python: tuple[str, ...]
    libraries: tuple[str, ...]
    relocated: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    interpreters: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


class Toolchain(Record):
    """A toolchain ready for use in the read-only ``folder``; ``paths`` precede variables, others are set."""

    folder: Path
    tree: Digest
    paths: dict[str, tuple[str, ...]]
    variables: dict[str, str]
    layout: Layout

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """``base`` plus the variables that the toolchain's programs need."""
        merged = {**base, **self.variables}
        for name, folders in self.paths.items():
            if folders:
                rest = [base[name]] if base.get(name) else []
                merged[name] = os.pathsep.join([*folders, *rest])
        return merged


def open_toolchain(path: Path, commit: str, home: Path) -> Toolchain:
    """Unpack a toolchain's bundle into the home's store, if needed, and relocate it; run nothing. ``commit``
    is required, empty for any. Raises IncompatibleError, BundleError, DamagedError or HomeError.
    """
    objects = ObjectStore(home / "objects")
    expected = Expected(kind="toolchain", commit=commit)
    manifest = check_bundle(path, expected)
    layout, tree = _read_layout(manifest, path.name)

    def accept(_: BundleManifest, read: Callable[[Digest], bytes]) -> None:
        try:
            _require_parts(layout, decode_listing(read(tree)), path.name)
        except DamagedError as error:
            raise unsound(path.name, error.message) from None

    trees = Trees(objects)
    try:
        trees.path(tree)
    except DamagedError:  # it was not unpacked before, or is damaged
        open_bundle(path, objects, expected, accept=accept)
    root = trees.path(tree)
    _require_parts(layout, trees.listing(tree), path.name)
    if layout.relocated:
        root = _relocate(trees, tree, layout, home)
    folders = [root / name for name in layout.libraries]
    if manifest.requires.has_cxx and _is_older(read_host(), manifest.requires):
        folders.append(root / CXX)
    return Toolchain(
        folder=root / CONTENT,
        tree=tree,
        paths={
            "PATH": tuple(str(root / name) for name in layout.programs),
            "LD_LIBRARY_PATH": tuple(map(str, folders)),
            "PYTHONPATH": tuple(str(root / name) for name in layout.python),
        },
        # A tree is read-only, and Python would write beside the modules that it imports if it can.
        variables={"PYTHONPYCACHEPREFIX": str(home / "toolchains" / "pycache")},
        layout=layout,
    )


def _read_layout(manifest: BundleManifest, name: str) -> tuple[Layout, Digest]:
    """The layout and the one tree of a toolchain; no path in it leads out. Raises BundleError."""
    try:
        layout = decode_json(manifest.details, Layout)
        (tree,) = manifest.trees
    except (msgspec.DecodeError, ValueError):
        raise BundleError(f"{name} is not a sound toolchain: its manifest is invalid") from None
    for path in (*layout.programs, *layout.python, *layout.libraries, *layout.relocated):
        if path != posixpath.normpath(path) or path.startswith(("/", "..")) or "\0" in path:
            raise BundleError(f"{name} is not a sound toolchain: {path!r} is not a path within it")
    return layout, tree


def _require_parts(layout: Layout, listing: Listing, name: str) -> None:
    """Raise BundleError if a toolchain lacks a part that its layout names."""
    folders = {*listing.folders()}
    for path in (*layout.programs, *layout.python, *layout.libraries):
        if path not in folders and path != ".":
            raise BundleError(f"{name} is not a sound toolchain: it has no directory {path!r}")
    for path in layout.relocated:
        if not isinstance(listing.entries.get(f"{CONTENT}/{path}"), TreeFile):
            raise BundleError(f"{name} is not a sound toolchain: it has no file {path!r}")


def _is_older(here: Host, needed: Requirements) -> bool:
    pairs = ((needed.glibcxx, here.glibcxx), (needed.cxxabi, here.cxxabi))
    return not here.glibcxx or any(is_newer(version, found) for version, found in pairs)


def _relocate(trees: Trees, tree: Digest, layout: Layout, home: Path) -> Path:
    """A tree whose texts name the place where it is: a link, named after the bundle."""
    place = home / "toolchains" / tree
    with writing_to(place.parent):
        make_folder(place.parent)
        with contextlib.suppress(DamagedError):
            if place.is_symlink():
                trees.path(Digest(place.readlink().name))
                return place
        with scratch_folder(place.parent, ".relocate.") as scratch:
            copy = scratch / "tree"
            copy.mkdir()
            trees.copy(tree, copy)
            settle(copy / CONTENT, layout.relocated, str(place / CONTENT))
            settled = trees.adopt(copy)
            (scratch / "link").symlink_to(trees.path(settled))
            (scratch / "link").rename(place)
    return place


# ---- old places and new ones -------------------------------------------------------------------


def stage(folder: Path, target: Path, prefixes: Sequence[str]) -> Layout:
    """Copy a folder into the empty ``target``, with ``prefixes`` replaced in texts, absolute links
    within made relative, and no compiled Python; return its layout. Raises UsageError for what
    cannot be read or kept, OSError.
    """
    # The longest first, and nothing that only begins like one.
    old = sorted(map(os.fsencode, prefixes), key=len, reverse=True)
    pattern = re.compile(b"(?:" + b"|".join(map(re.escape, old)) + rb")(?![A-Za-z0-9._+-])")
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
    check_folder(target)  # checked alone: in its final place there is more around it
    return Layout(
        programs=(),
        python=(),
        libraries=(),
        relocated=tuple(texts),
        stale=tuple(stale),
        interpreters=tuple(interpreters),
    )


def settle(folder: Path, texts: Iterable[str], place: str) -> None:
    """Replace the placeholder with the new place. Raises OSError."""
    pattern = re.compile(re.escape(PLACEHOLDER))
    for path in texts:
        _replace(folder / path, pattern, os.fsencode(place))


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
    """Replace in a text file; False if it is not one."""
    if path.stat().st_size > _BIGGEST_TEXT:
        return False
    content = path.read_bytes()
    if b"\0" in content:
        return False
    path.write_bytes(pattern.sub(lambda _: by, content))
    return True


def _find_interpreter(path: Path) -> str:
    """The absolute program in a script's first line, unless it is in the folder or exists everywhere."""
    with path.open("rb") as file:
        line = file.readline(512)
    if not line.startswith(b"#!"):
        return ""
    words = line[2:].split()
    program = words[0].decode(errors="replace") if words else ""
    is_own = program.encode().startswith(PLACEHOLDER)
    return "" if is_own or program in _EVERYWHERE else program


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
