"""Built folders packed as toolchains: what they hold, what they need, and what comes along."""

import platform
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path

import msgspec

from tileyard.artifacts.bundle_manifest import BundleManifest
from tileyard.artifacts.bundles import Packing, write_bundle
from tileyard.artifacts.compat import Requirements, higher_level, python_tag, sum_needs
from tileyard.artifacts.copying import copy_file, remove_folder
from tileyard.artifacts.gathering import Gathered, gather
from tileyard.artifacts.libraries import LibraryFinder
from tileyard.artifacts.objects import ObjectStore
from tileyard.artifacts.relocation import stage
from tileyard.artifacts.toolchains import CONTENT, CXX, LIBRARIES, Layout
from tileyard.artifacts.trees import Trees
from tileyard.errors import BundleError, UsageError
from tileyard.model import Record

_TAG = re.compile(r"\.(cpython|pypy)-?(\d+)[^.]*\.so$")


class ToolchainSource(Record):
    """What is to be packed: a folder and the commit that it was built from.

    ``prefixes`` are further places that its files may name as their own. ``programs`` and ``python``
    are directories of it for PATH and PYTHONPATH, besides those that are found. ``search`` is the
    LD_LIBRARY_PATH under which it works. ``cpu_level`` and ``driver`` are what it needs besides what
    can be read off its files.
    """

    folder: Path
    commit: str
    prefixes: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    python: tuple[str, ...] = ()
    search: tuple[Path, ...] = ()
    cpu_level: str = ""
    driver: str = ""


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
                requires=_state_needs(source, folder, gathered),
                is_complete=True,
                details=msgspec.json.encode(layout, order="sorted").decode(),
            )
            manifest = write_bundle(packing, objects, output)
            remove_folder(objects.root)  # a read-only tree is in the way of others
    except OSError as error:
        raise BundleError(f"cannot write {output}: {error.strerror or error}") from error
    return manifest


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
