"""What this process reads: code that it runs, files that it opens, modules that it looks for.

Heard by the interpreter's own audit events in the process that runs a user's code, and checked in any
other: as long as all of that is current, the same questions would get the same answers. Installed packages
and the standard library count by what is installed; every other file counts by content, and so does a file
that was looked for in vain. What causes no audit event is not seen: files opened by C code, other
processes, folders that are listed, clocks, random numbers, the network.

The parts of such a footprint are called ``file PATH``, ``module FOLDER/NAME`` (the entries of a folder
where a module of this name was looked for) and ``variable NAME``.
"""

import importlib.machinery
import os
import sys
import sysconfig
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tileyard.artifacts.digests import digest_if_there, find_heard_variables, find_named_variables
from tileyard.artifacts.footprint import Footprint
from tileyard.base.modes import find_stranger

_ROOTS = tuple(
    f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "platstdlib", "purelib", "platlib")
)
_MARKS = tuple(f"{os.sep}{folder}{os.sep}" for folder in ("site-packages", "dist-packages"))
_INSTALLED = (".dist-info", ".egg-info", ".egg-link", ".pth")
_LIVE_FOLDERS = ("/proc/", "/sys/", "/dev/")
_OWN = f"{Path(__file__).resolve().parents[1]}{os.sep}"
_SUFFIXES = frozenset({"", *importlib.machinery.all_suffixes()})
_FILE, _MODULE = "file ", "module "
_CHANGED = "files changed while they were in use"
_TICK_NS = 20_000_000
"""By at most this a file's time of change is behind the clock."""


def is_installed(path: str) -> bool:
    """Whether a path is in the standard library or among installed packages; a cheap check."""
    return path.startswith(_ROOTS) or any(mark in path for mark in _MARKS)


def is_own(path: str) -> bool:
    """Whether a path is in this package."""
    return path.startswith(_OWN)


def describe_surroundings(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The surroundings of all code that a process like this one runs: interpreter, packages, host.

    Packages are named with their versions, as the folders of ``sys.path`` list them.
    """
    host, folders = os.uname(), (*find_working_folder(environ), *sys.path)
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
        *(f"{name}={text}" for name, text in find_heard_variables(environ).items()),
    )


def find_working_folder(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The working directory if a user's code is to import from it, as with ``python -m``; else nothing.

    It is excluded if others may write there, or if PYTHONSAFEPATH excludes it.
    """
    folder = Path.cwd()
    is_safe = not environ.get("PYTHONSAFEPATH") and not find_stranger(folder)
    return (str(folder),) if is_safe else ()


# ---- footprints of what was read -------------------------------------------------------------


def is_current(footprint: Footprint, environ: Mapping[str, str], code: Iterable[str] = ()) -> bool:
    """Whether a process with this environment would read the same; files of ``code`` name variables, too."""
    if footprint.doubts:
        return False
    now = Footprint()
    entries: dict[str, Mapping[str, str]] = {}
    for name in footprint.parts:
        if name.startswith(_FILE):
            now.put(name, digest_if_there(name.removeprefix(_FILE)))
        elif name.startswith(_MODULE):
            folder, _, module = name.removeprefix(_MODULE).rpartition(os.sep)
            if folder not in entries:
                entries[folder] = _list_modules(folder)
            now.put(name, entries[folder].get(module, ""))
    _put_variables(now, code, environ)
    return now.parts == footprint.parts


def _list_files(footprint: Footprint) -> list[str]:
    """The paths of the files that were read, or looked for in vain."""
    return [name.removeprefix(_FILE) for name in footprint.parts if name.startswith(_FILE)]


def read_digest(footprint: Footprint, path: str) -> str | None:
    """The digest of a file as it was read; None if it was not."""
    return footprint.parts.get(f"{_FILE}{path}")


def _put_variables(footprint: Footprint, code: Iterable[str], environ: Mapping[str, str]) -> None:
    """Add the variables whose names occur in Python files that are not Tileyard's own."""
    files = (*code, *_list_files(footprint))
    named = [file for file in files if file.endswith(".py") and not is_own(file)]
    footprint.put_variables(find_named_variables(named, environ))


def _list_modules(folder: str) -> Mapping[str, str]:
    """The entries of a folder that may be modules or packages, by the names of these."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name in sorted(_list_names(folder)):
        stem, dot, suffix = name.partition(".")
        if stem and f"{dot}{suffix}" in _SUFFIXES:
            found[stem].append(name)
    return {stem: ", ".join(names) for stem, names in found.items()}


def _list_names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - names are all that is wanted
    except OSError:
        return []


# ---- hearing ---------------------------------------------------------------------------------


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


def _is_read(mode: object, flags: object) -> bool:
    if isinstance(mode, str):
        return "r" in mode or ("a" in mode and "+" in mode)
    return isinstance(flags, int) and flags & os.O_ACCMODE != os.O_WRONLY


def _find_counting(given: object) -> str:
    """The absolute path of a file that counts by its content; empty for all else."""
    if not isinstance(given, (str, bytes, os.PathLike)):
        return ""
    name = os.fsdecode(given)
    is_cache = name.endswith(".pyc") and "__pycache__" in name
    if is_cache or name.startswith(("<", *_LIVE_FOLDERS)) or is_installed(name):
        return ""
    return str(Path(name).absolute())


class Recorder:
    """Records what this process reads from now on, to the end of its life."""

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
        self._entries: dict[str, Mapping[str, str]] = {}
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
        """The footprint, if it has grown since the last call; with a doubt if files changed while in use."""
        noted, inside = dict(self._files), dict(self._inside)
        changed = {path for path in noted if _changed_ns(path) > self._began_ns}
        # A file made and removed again since then belonged only to this process.
        gone = {path for path in self._late if not Path(path).exists()}
        seen: tuple[object, ...] = (len(noted), gone, changed, len(self._roots))
        seen += (len(self._top), *(len(names) for names in inside.values()))
        if seen == self._told:
            return None
        self._told = seen
        footprint = Footprint(doubts=[_CHANGED] if changed else [])
        footprint.parts = {_FILE + path: noted[path] for path in noted if path not in gone}
        for folder, names in (*((root, self._top) for root in tuple(self._roots)), *inside.items()):
            for name in tuple(names):
                found = self._entries[folder].get(name, "")
                footprint.put(f"{_MODULE}{folder}{os.sep}{name}", found)
        _put_variables(footprint, (), self._environ)
        return footprint

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

    def _hear(self, event: str, arguments: tuple[object, ...]) -> None:
        self._note(find_read(event, arguments))

    def _note(self, given: object) -> None:
        """Record a file as it is now, if it counts and was not seen before."""
        if given is None or getattr(self._thread, "busy", False):
            return
        path = _find_counting(given)
        if not path or path in self._files or path.startswith(self._apart):
            return
        self._thread.busy = True
        try:
            self._files[path] = digest_if_there(path)
            if _changed_ns(path) > self._began_ns:
                self._late.add(path)
        finally:
            self._thread.busy = False

    def _list(self, folders: Iterable[str]) -> list[str]:
        """The folders that count; their entries are recorded before anything is looked for."""
        counted = [folder for folder in folders if not is_installed(f"{folder}{os.sep}")]
        for folder in counted:
            if folder not in self._entries:
                self._entries[folder] = _list_modules(folder)
        return counted


class Watch:
    """Notes what is read in this process while a user's functions run, for results that are kept beyond it.

    The process may be the user's own, so nothing else is heard.
    """

    def __init__(self) -> None:
        self._opened_ns: dict[str, int] = {}
        self._code: set[str] = set()
        self._is_on = self._has_hook = False

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Note each file that is run or opened to read meanwhile."""
        if not self._has_hook:
            sys.addaudithook(self._hear)
            self._has_hook = True
        before, self._is_on = self._is_on, True
        try:
            yield
        finally:
            self._is_on = before

    @contextmanager
    def importing(self) -> Iterator[None]:
        """Note each file that is opened meanwhile, except code that is imported: a closure contains it."""
        with self.reading():
            yield
        for path in self._code:
            self._opened_ns.pop(path, None)

    def tell(self, code: Iterable[str], apart: Path) -> Footprint:
        """What was read so far, except in the folder ``apart``; with a doubt if a file has changed meanwhile.

        ``code`` are the files of the functions, any of which may remember what an earlier one read.
        """
        known = set(code)
        paths = [
            path
            for path in self._opened_ns
            if path not in known and not Path(path).is_relative_to(apart.absolute())
        ]
        footprint = Footprint()
        if any(_changed_ns(path) > self._opened_ns[path] - _TICK_NS for path in paths):
            footprint.doubt(_CHANGED)
        for path in sorted(paths):
            footprint.put(f"{_FILE}{path}", digest_if_there(path))
        _put_variables(footprint, known, os.environ)
        return footprint

    def _hear(self, event: str, arguments: tuple[object, ...]) -> None:
        if not self._is_on:  # also while Python ends, which takes modules away
            return
        path = _find_counting(find_read(event, arguments))
        if path and not is_own(path):
            self._opened_ns.setdefault(path, time.time_ns())
            if event != "open":
                self._code.add(path)


def would_read_again(footprint: Footprint, code: Iterable[str]) -> bool:
    """Whether the functions in the files ``code`` would read the same now.

    The files are in the footprint of this process then, as if the functions had run.
    """
    for path in _list_files(footprint):
        sys.audit("open", path, "r", os.O_RDONLY)
    return is_current(footprint, os.environ, code)


def _changed_ns(path: str) -> int:
    """When a file's content or place was last changed; this time cannot be set back."""
    try:
        return Path(path).stat().st_ctime_ns
    except OSError:
        return 0


WATCH = Watch()
"""The watch of this process: an audit hook cannot be removed."""
