"""Built toolchains as bundles: packed with the libraries they need, used at any other place.

What a base system lacks comes along in ``lib``: every shared library that is needed and belongs
neither to the glibc family nor to a device's driver. The C++ runtime lies apart, in ``cxx``, for hosts
whose own is older. No binary is changed: the loader finds the libraries by LD_LIBRARY_PATH, which
the opened toolchain states together with PATH and PYTHONPATH.
"""

import contextlib
import os
import platform
import re
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from tileyard.artifacts.bundle_manifest import BundleManifest, Expected
from tileyard.artifacts.bundles import Packing, check_bundle, open_bundle, write_bundle
from tileyard.artifacts.compat import Host, Requirements, sum_needs
from tileyard.artifacts.copying import copy_file, remove_folder
from tileyard.artifacts.elf import is_newer
from tileyard.artifacts.gathering import Gathered, gather
from tileyard.artifacts.host import python_tag, read_host
from tileyard.artifacts.libraries import LibraryFinder
from tileyard.artifacts.objects import ObjectStore
from tileyard.artifacts.relocation import settle, stage
from tileyard.artifacts.trees import Trees
from tileyard.errors import BundleError, DamagedError, HomeError, UsageError
from tileyard.model import Digest, Record

CONTENT, LIBRARIES, CXX = "content", "lib", "cxx"
"""The directories of a toolchain's tree: what was built, and what it needs besides."""
_TAG = re.compile(r"\.(cpython|pypy)-?(\d+)[^.]*\.so$")


class ToolchainSource(Record):
    """What is to be packed: a folder and the commit that it was built from.

    ``prefixes`` are further places that its files may name as their own. ``programs`` and ``python``
    are directories of it for PATH and PYTHONPATH, besides those that are found. ``search`` is the
    LD_LIBRARY_PATH under which it works.
    """

    folder: Path
    commit: str
    prefixes: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    python: tuple[str, ...] = ()
    search: tuple[Path, ...] = ()


class Layout(Record):
    """What a toolchain's manifest says besides. Directories are relative to the tree.

    ``relocated`` are text files that name the place where they lie, ``stale`` binaries that name the
    place where they were built. ``interpreters`` are scripts whose program is not packed. ``missing``
    are libraries that were not there when it was packed either.
    """

    programs: tuple[str, ...]
    python: tuple[str, ...]
    libraries: tuple[str, ...]
    relocated: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    interpreters: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


class Toolchain(Record):
    """A toolchain that is ready for use. ``folder`` is what was built, read-only.

    ``paths`` are put in front of the variables of these names, ``variables`` are set.
    """

    folder: Path
    commit: str
    tree: Digest
    paths: dict[str, tuple[str, ...]]
    variables: dict[str, str]
    layout: Layout

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """``base`` with what the toolchain's programs need."""
        merged = {**base, **self.variables}
        for name, folders in self.paths.items():
            if folders:
                rest = [base[name]] if base.get(name) else []
                merged[name] = os.pathsep.join([*folders, *rest])
        return merged


def pack_toolchain(source: ToolchainSource, output: Path) -> BundleManifest:
    """Pack a built folder with the shared libraries that it needs into the bundle ``output``.

    Raises UsageError where the folder is empty or holds what no tree can hold.
    """
    folder = source.folder.resolve()
    if not folder.is_dir() or not any(folder.iterdir()):
        raise UsageError(f"{str(source.folder)!r} is not a directory with something in it")
    gathered = gather(folder, platform.machine(), LibraryFinder(source.search))
    try:
        # Beside the result: that is where there must be room for it.
        with tempfile.TemporaryDirectory(dir=output.absolute().parent, prefix=".pack.") as scratch:
            made = Path(scratch) / "tree"
            layout = _lay_out(source, folder, gathered, made)
            objects = ObjectStore(Path(scratch) / "objects")
            tree = Trees(objects).adopt(made)
            packing = Packing(
                kind="toolchain",
                commit=source.commit,
                toolchain=tree,
                trees=(tree,),
                requires=_state_needs(gathered, folder),
                is_complete=True,
                details=msgspec.json.encode(layout, order="sorted").decode(),
            )
            manifest = write_bundle(packing, objects, output)
            remove_folder(objects.root)  # a read-only tree is in the way of others
    except OSError as error:
        raise BundleError(f"cannot write {output}: {error.strerror or error}") from error
    return manifest


def open_toolchain(path: Path, commit: str, home: Path, host: Host | None = None) -> Toolchain:
    """Unpack a toolchain's bundle into the home's store, unless it is there, and put it in its place.

    Nothing of it is run. ``commit`` is the one that it must have been built from, empty for any.
    Raises IncompatibleError, BundleError, DamagedError or HomeError.
    """
    objects = ObjectStore(home / "objects")
    expected = Expected(kind="toolchain", commit=commit)
    manifest = check_bundle(path, expected, host)
    if not _is_there(manifest, objects):
        manifest = open_bundle(path, objects, expected, host).manifest
    try:
        layout = msgspec.json.decode(manifest.details, type=Layout)
        (tree,) = manifest.trees
    except (msgspec.DecodeError, ValueError) as error:
        raise BundleError(f"{path.name} is no sound toolchain: {error}") from None
    trees = Trees(objects)
    root = trees.path(tree)
    if layout.relocated:
        root = _relocate(trees, tree, layout, home)
    here = host or read_host()
    folders = [root / name for name in layout.libraries]
    if manifest.requires.has_cxx and _is_older(here, manifest.requires):
        folders.append(root / CXX)
    return Toolchain(
        folder=root / CONTENT,
        commit=manifest.commit,
        tree=tree,
        paths={
            "PATH": tuple(str(root / name) for name in layout.programs),
            "LD_LIBRARY_PATH": tuple(map(str, folders)),
            "PYTHONPATH": tuple(str(root / name) for name in layout.python),
        },
        # A tree is read-only, and Python would write beside what it imports wherever it can.
        variables={"PYTHONPYCACHEPREFIX": str(home / "toolchains" / "pycache")},
        layout=layout,
    )


# ---- packing ------------------------------------------------------------------------------------


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
    programs = [*source.programs, *_find_programs(folder)]
    python = [*source.python, *_find_python(folder)]
    own = [f"{CONTENT}/{name}" for name in sorted(gathered.folders)]
    return Layout(
        programs=_below(made, programs),
        python=_below(made, python),
        libraries=tuple([*own, LIBRARIES] if gathered.libraries else own),
        relocated=staged.texts,
        stale=staged.stale,
        interpreters=staged.interpreters,
        missing=tuple(sorted(gathered.missing)),
    )


def _state_needs(gathered: Gathered, folder: Path) -> Requirements:
    packed = {*gathered.libraries, *gathered.cxx}
    summed = sum_needs(gathered.needs, packed)
    return msgspec.structs.replace(
        summed,
        libraries=tuple(sorted(gathered.base)),
        python=_find_tag(folder),
        has_cxx=bool(gathered.cxx),
    )


def _find_programs(folder: Path) -> list[str]:
    return [name for name in ("bin",) if (folder / name).is_dir()]


def _find_python(folder: Path) -> list[str]:
    """Where packages lie: what an installation calls site-packages, or a directory ``python``."""
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
    """The tag of the Python whose extension modules a folder has; empty where it has none."""
    names = (_TAG.search(path.name) for path in folder.rglob("*.so"))
    tags = {f"{'cp' if match[1] == 'cpython' else 'pp'}{match[2]}" for match in names if match}
    own = python_tag()
    return own if own in tags else min(tags, default="")


def _below(made: Path, names: Iterable[str]) -> tuple[str, ...]:
    for name in dict.fromkeys(names):
        if Path(name).is_absolute() or not (made / CONTENT / name).is_dir():
            raise UsageError(f"{name!r} is not a directory of the folder that is packed")
    return tuple(f"{CONTENT}/{name}" for name in dict.fromkeys(names))


# ---- opening ------------------------------------------------------------------------------------


def _is_there(manifest: BundleManifest, objects: ObjectStore) -> bool:
    """Whether all of a toolchain was unpacked before, and is as it was."""
    try:
        for tree in manifest.trees:
            Trees(objects).path(tree)
    except DamagedError:
        return False
    return True


def _is_older(here: Host, needed: Requirements) -> bool:
    """Whether the host's C++ runtime will not do."""
    pairs = ((needed.glibcxx, here.glibcxx), (needed.cxxabi, here.cxxabi))
    return not here.glibcxx or any(is_newer(version, found) for version, found in pairs)


def _relocate(trees: Trees, tree: Digest, layout: Layout, home: Path) -> Path:
    """A tree whose texts name the place where it lies: a link, whose name follows from the bundle.

    They cannot name the tree itself, whose own name follows from what they say.
    """
    place = home / "toolchains" / tree
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(DamagedError):
            if place.is_symlink():
                trees.path(Digest(place.readlink().name))
                return place
        scratch = Path(tempfile.mkdtemp(dir=place.parent, prefix=".relocate."))
        try:
            copy = scratch / "tree"
            copy.mkdir()
            trees.copy(tree, copy)
            settle(copy / CONTENT, layout.relocated, str(place / CONTENT))
            settled = trees.adopt(copy)
            (scratch / "link").symlink_to(trees.path(settled))
            (scratch / "link").rename(place)
        finally:
            remove_folder(scratch)
    except OSError as error:
        raise HomeError(f"cannot write to {place.parent}: {error.strerror or error}") from error
    return place
