"""Built toolchains as bundles: packed with the libraries they need, used at any other place.

What a base system lacks comes along in ``lib``: every shared library that is needed and belongs
neither to the glibc family nor to a device's driver. The C++ runtime lies apart, in ``cxx``, for hosts
whose own is older. No binary is changed: the loader finds the libraries by LD_LIBRARY_PATH, which
the opened toolchain states together with PATH and PYTHONPATH.
"""

import contextlib
import os
import posixpath
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from tileyard.artifacts.bundle_manifest import BundleManifest, Expected
from tileyard.artifacts.bundles import check_bundle, open_bundle
from tileyard.artifacts.compat import Host, Requirements, read_host
from tileyard.artifacts.copying import scratch_folder, writing_to
from tileyard.artifacts.libraries import is_newer
from tileyard.artifacts.listing import Listing, TreeFile, decode_listing
from tileyard.artifacts.objects import ObjectStore
from tileyard.artifacts.relocation import settle
from tileyard.artifacts.trees import Trees
from tileyard.decoding import decode_json
from tileyard.errors import BundleError, DamagedError
from tileyard.model import Digest, Record
from tileyard.modes import make_folder

CONTENT, LIBRARIES, CXX = "content", "lib", "cxx"
"""The directories of a toolchain's tree: what was built, and what it needs besides."""


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


def open_toolchain(path: Path, commit: str, home: Path, host: Host | None = None) -> Toolchain:
    """Unpack a toolchain's bundle into the home's store, unless it is there, and put it in its place.

    Nothing of it is run. ``commit`` is the one that it must have been built from, empty for any.
    Raises IncompatibleError, BundleError, DamagedError or HomeError.
    """
    objects = ObjectStore(home / "objects")
    expected = Expected(kind="toolchain", commit=commit)
    manifest = check_bundle(path, expected, host)
    layout, tree = _read_layout(manifest, path.name)

    def accept(_: BundleManifest, read: Callable[[Digest], bytes]) -> None:
        try:
            _require_parts(layout, decode_listing(read(tree)), path.name)
        except DamagedError as error:
            raise BundleError(f"{path.name} is no sound bundle: {error.message}") from None

    trees = Trees(objects)
    try:
        trees.path(tree)
    except DamagedError:  # it was not unpacked before, or is not as it was
        open_bundle(path, objects, expected, host, accept)
    root = trees.path(tree)
    _require_parts(layout, trees.listing(tree), path.name)
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


def _read_layout(manifest: BundleManifest, name: str) -> tuple[Layout, Digest]:
    """What the maker says of the one tree, none of it leading out. Raises BundleError."""
    try:
        layout = decode_json(manifest.details, Layout)
        (tree,) = manifest.trees
    except (msgspec.DecodeError, ValueError):
        raise BundleError(f"{name} is no sound toolchain: it does not say what it is") from None
    for path in (*layout.programs, *layout.python, *layout.libraries, *layout.relocated):
        if path != posixpath.normpath(path) or path.startswith(("/", "..")) or "\0" in path:
            raise BundleError(f"{name} is no sound toolchain: {path!r} is no path within it")
    return layout, tree


def _require_parts(layout: Layout, listing: Listing, name: str) -> None:
    """Raise BundleError where a toolchain lacks what its maker says of it."""
    folders = {*listing.folders()}
    for path in (*layout.programs, *layout.python, *layout.libraries):
        if path not in folders and path != ".":
            raise BundleError(f"{name} is no sound toolchain: it has no directory {path!r}")
    for path in layout.relocated:
        if not isinstance(listing.entries.get(f"{CONTENT}/{path}"), TreeFile):
            raise BundleError(f"{name} is no sound toolchain: it has no file {path!r}")


def _is_older(here: Host, needed: Requirements) -> bool:
    """Whether the host's C++ runtime will not do."""
    pairs = ((needed.glibcxx, here.glibcxx), (needed.cxxabi, here.cxxabi))
    return not here.glibcxx or any(is_newer(version, found) for version, found in pairs)


def _relocate(trees: Trees, tree: Digest, layout: Layout, home: Path) -> Path:
    """A tree whose texts name the place where it lies: a link, whose name follows from the bundle.

    They cannot name the tree itself, whose own name follows from what they say.
    """
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
