"""What the answers of a process depend on: code that it ran, files that it read, modules that it sought.

The interpreter's audit events record it in the process that runs a user's code; while a footprint is
current, the same questions get the same answers anywhere. Installed packages count by what is installed,
other files by content, also those sought in vain. Not seen is what causes no audit event: files opened by C
code, other processes, listed folders, clocks, random numbers, the network.
"""

import hashlib
import importlib.machinery
import os
import stat
import sys
import sysconfig
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tileyard.base.model import Record
from tileyard.base.ownership import find_stranger

SITE_FOLDERS = frozenset({"site-packages", "dist-packages"})
"""Names of folders that hold installed packages."""

_ROOTS = tuple(
    f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "platstdlib", "purelib", "platlib")
)
_MARKS = tuple(f"{os.sep}{folder}{os.sep}" for folder in SITE_FOLDERS)


def is_installed(path: str) -> bool:
    """Whether a path is in the standard library or among installed packages; a cheap check."""
    return path.startswith(_ROOTS) or any(mark in path for mark in _MARKS)


HEARD_VARIABLES = ("TILELANG_", "TVM_", "TL_", "TORCH_", "PYTORCH_", "CUDA_", "NVIDIA_", "PYTHON")
"""Prefixes of the variables that the libraries below user code read."""

_UNHEARD_VARIABLES = frozenset({"_", "TILEYARD_LEASE", "TILEYARD_CHANNEL"})
"""Variables that differ from process to process and that user code does not need."""

_INSTALLED = (".dist-info", ".egg-info", ".egg-link", ".pth")
_LIVE_FOLDERS = ("/proc/", "/sys/", "/dev/")
OWN = f"{Path(__file__).resolve().parents[1]}{os.sep}"
_SUFFIXES = frozenset({"", *importlib.machinery.all_suffixes()})


class Search(Record):
    """A search for modules by ``names``; ``found`` has the matching entries of each folder."""

    names: tuple[str, ...]
    found: dict[str, tuple[str, ...]]


class Footprint(Record):
    """The dependences of a process up to some moment. ``files`` has the digest of each file's content, empty
    for a missing file; ``variables`` are environment variables that the user's code names. It is not
    ``is_settled`` if files changed while in use: it is unknown which content was seen.
    """

    files: dict[str, str]
    searches: tuple[Search, ...]
    variables: dict[str, str]
    is_settled: bool


def is_current(footprint: Footprint, environ: Mapping[str, str]) -> bool:
    """Whether a process with this environment would find everything unchanged."""
    searches = ((frozenset(search.names), search.found) for search in footprint.searches)
    return (
        footprint.is_settled
        and all(identify_file(path) == digest for path, digest in footprint.files.items())
        and all(
            _named(names, _list_entries(folder)) == entries
            for names, found in searches
            for folder, entries in found.items()
        )
        and variables_named_in(footprint.files, environ) == footprint.variables
    )


def describe_surroundings(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The interpreter, packages and host of all code that a process like this one runs. Packages
    have their versions, as the folders of ``sys.path`` list them.
    """
    host, folders = os.uname(), (*find_working_folder(environ), *sys.path)
    heard = sorted(name for name in environ if name.startswith(HEARD_VARIABLES))
    installed = [
        name
        for folder in folders
        for name in sorted(_list_names(folder))
        if name.endswith(_INSTALLED)
    ]
    return (
        sys.version,
        host.nodename,
        host.machine,
        str(Path.cwd()),
        *folders,
        "installed",
        *installed,
        "variables",
        *(f"{name}={environ[name]}" for name in heard),
    )


def find_working_folder(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The working directory if a user's code is to import from it, as with ``python -m``; else
    nothing, also if others may write there or PYTHONSAFEPATH excludes it.
    """
    folder = Path.cwd()
    is_safe = not environ.get("PYTHONSAFEPATH") and not find_stranger(folder)
    return (str(folder),) if is_safe else ()


def identify_file(path: str) -> str:
    """The digest of a file's content; empty if there is no regular file that can be read."""
    try:
        # Checked first: opening a pipe would wait for its writer.
        if not stat.S_ISREG(Path(path).stat().st_mode):
            return ""
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, ValueError):
        return ""


class Recorder:
    """Records the footprint of this process from now on, to the end of its life."""

    def __init__(self, environ: Mapping[str, str], apart: Iterable[Path] = ()) -> None:
        """``environ`` is the environment of user code; files in the folders ``apart`` are not noted."""
        self._environ = dict(environ)
        self._apart = tuple(f"{folder.absolute()}{os.sep}" for folder in apart)
        self._began_ns = time.time_ns()
        self._files: dict[str, str] = {}
        self._late: set[str] = set()
        self._top: set[str] = set()
        self._roots: dict[str, None] = {}
        self._inside: dict[str, set[str]] = {}
        self._entries: dict[str, frozenset[str]] = {}
        self._thread = threading.local()
        self._told: tuple[object, ...] = ()

    def begin(self) -> None:
        """Note what is already loaded, and listen. An audit hook cannot be removed."""
        for name, module in list(sys.modules.items()):
            self._top.add(name.partition(".")[0])
            self._note(getattr(module, "__file__", None))
        self._roots.update(dict.fromkeys(self._list(sys.path)))
        sys.meta_path.insert(0, self)
        sys.addaudithook(self._hear)

    def news(self) -> Footprint | None:
        """The footprint, if it has changed since the last call."""
        noted, inside = dict(self._files), dict(self._inside)
        changed = {path for path in noted if _modified_ns(path) > self._began_ns}
        # A file made and removed again since then belonged only to this process.
        gone = {path for path in self._late if not Path(path).exists()}
        seen: tuple[object, ...] = (len(noted), gone, changed, len(self._roots))
        seen += (len(self._top), *(len(names) for names in inside.values()))
        if seen == self._told:
            return None
        self._told = seen
        files = {path: digest for path, digest in noted.items() if path not in gone}
        below = (self._search(frozenset(names), (folder,)) for folder, names in inside.items())
        return Footprint(
            files=files,
            searches=(self._search(frozenset(self._top), tuple(self._roots)), *below),
            variables=variables_named_in(files, self._environ),
            is_settled=not changed,
        )

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, _target: object = None
    ) -> None:
        """Note that a module is looked for, and leave finding it to others."""
        last = name.rpartition(".")[2]
        if path is None:
            self._top.add(name)
            self._roots.update(dict.fromkeys(self._list(sys.path)))
        else:
            for folder in self._list(path):
                self._inside.setdefault(folder, set()).add(last)

    # ---- inside -----------------------------------------------------------------------------

    def _hear(self, event: str, arguments: tuple[object, ...]) -> None:
        self._note(find_read(event, arguments))

    def _note(self, given: object) -> None:
        """Record a file as it is now, if it counts and was not seen before."""
        if not isinstance(given, (str, bytes, os.PathLike)) or getattr(self._thread, "busy", False):
            return
        name = os.fsdecode(given)
        if name.startswith("<") or name in self._files or not self._counts(name):
            return
        path = str(Path(name).absolute())
        if path in self._files:
            return
        self._thread.busy = True
        try:
            self._files[path] = identify_file(path)
            if _modified_ns(path) > self._began_ns:
                self._late.add(path)
        finally:
            self._thread.busy = False

    def _counts(self, path: str) -> bool:
        return not path.startswith(self._apart) and counts(path)

    def _list(self, folders: Iterable[str]) -> list[str]:
        """The folders that count; their entries are recorded before anything is looked for."""
        counted = [folder for folder in folders if not is_installed(f"{folder}{os.sep}")]
        self._entries |= {
            folder: frozenset(_list_entries(folder))
            for folder in counted
            if folder not in self._entries
        }
        return counted

    def _search(self, names: frozenset[str], folders: Iterable[str]) -> Search:
        found = {folder: _named(names, self._entries[folder]) for folder in folders}
        return Search(names=tuple(sorted(names)), found=found)


def find_read(event: str, arguments: tuple[object, ...]) -> object:
    """The file that an audit event says is run or opened to read, if any."""
    match event:
        case "exec":
            return getattr(arguments[0], "co_filename", None)
        case "open" if _is_read(arguments[1], arguments[2]):
            return arguments[0]
        case "import":
            return arguments[1]
        case "ctypes.dlopen" if os.sep in str(arguments[0]):
            return arguments[0]
        case _:
            return None


def counts(path: str) -> bool:
    """Whether a file counts by its content."""
    is_cache = path.endswith(".pyc") and "__pycache__" in path
    return not (is_cache or path.startswith(_LIVE_FOLDERS) or is_installed(path))


def _is_read(mode: object, flags: object) -> bool:
    if isinstance(mode, str):
        return "r" in mode or ("a" in mode and "+" in mode)
    return isinstance(flags, int) and flags & os.O_ACCMODE != os.O_WRONLY


def _modified_ns(path: str) -> int:
    try:
        return Path(path).stat().st_mtime_ns
    except OSError:
        return 0


def _list_names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - names are all that is wanted
    except OSError:
        return []


def _list_entries(folder: str) -> Iterable[str]:
    for name in _list_names(folder):
        stem, dot, suffix = name.partition(".")
        if stem and f"{dot}{suffix}" in _SUFFIXES:
            yield name


def _named(names: frozenset[str], entries: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(entry for entry in entries if entry.partition(".")[0] in names))


def variables_named_in(files: Iterable[str], environ: Mapping[str, str]) -> dict[str, str]:
    """The variables whose names occur in Python files that are not Tileyard's own."""
    texts = [_text(path) for path in files if path.endswith(".py") and not path.startswith(OWN)]
    return {
        name: value
        for name, value in sorted(environ.items())
        if name not in _UNHEARD_VARIABLES and any(name.encode() in text for text in texts)
    }


def _text(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""
