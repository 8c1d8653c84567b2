"""Computes digests of content: files, folders of installed packages; and finds the variables that code names.

A package's ``RECORD`` lists what was installed. A file that was changed after the record was written is
read; the rest, some gigabytes with torch, is trusted. Equal content gives equal digests, independent of its
location and of how it was installed.

A home stores such a folder's digest by the paths, sizes, inodes and change times of all its files: 40
characters, so that files that must be read are read once, and not by each run.

The files that a suite's steps name are found here, too, and packed for another machine.
"""

import base64
import contextlib
import hashlib
import os
import re
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from tileyard.artifacts.copying import unreadable
from tileyard.artifacts.folders import add_size
from tileyard.artifacts.objects import ObjectStore, chunks_of, digest_chunks, digest_parts
from tileyard.artifacts.trees import Trees
from tileyard.base.errors import HomeError, UsageError
from tileyard.base.model import Digest, Step

LONGEST = 1000
"""Most characters of a path: longer arguments are not paths."""
IGNORED = frozenset({".git", "__pycache__", ".tileyard"})
"""Folders whose content is always ignored."""

MOST_FILES = 1_000_000
"""Most files that the patterns of one step may name."""
NO_CONTENT = ("/proc", "/sys", "/dev")
"""Folders without stored content: their files are devices, processes and settings."""

_SIGN = re.compile(r"[*?[]")
_WORD = re.compile(r"\w+")
_Stamp = tuple[int, int, int, int]


class FileDigests:
    """Reads each file once while it does not change; usable from any thread."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[_Stamp, str]] = {}
        self._lock = threading.Lock()

    def digest(self, folder: Path, patterns: Sequence[str]) -> str:
        """The digest of names and contents of all files that match; a pattern may match none.

        A pattern is a path or a glob below ``folder``, or absolute; a directory selects all files in
        it. Names are relative to ``folder``, so that the same tree elsewhere has the same digest.
        Raises UsageError for a file that cannot be read, and for too many files.
        """
        parts: list[str] = []
        size = 0
        for pattern in patterns:
            files = sorted(set(find_files(folder, pattern)))
            if len(parts) + len(files) > MOST_FILES:
                raise UsageError(f"inputs {pattern!r}: these are more than {MOST_FILES:,} files")
            for path in files:
                name = os.path.relpath(path, folder) if path.is_relative_to(folder) else path.name
                try:
                    size = add_size(size, str(path), path.stat())
                    parts += [name, self.digest_file(path)]
                except OSError as error:
                    raise unreadable(path, error, f"inputs {pattern!r}: ") from error
        return digest_parts("files", *parts)

    def digest_file(self, path: Path) -> str:
        """As the function ``digest_file``, of a file that is read again only when it changes."""
        status = path.stat()
        # A file can be changed and given its old modification time again; then its change time is different.
        stamp = (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)
        with self._lock:
            known = self._known.get(str(path))
        if known is not None and known[0] == stamp:
            return known[1]
        digest = digest_file(path)
        with self._lock:
            self._known[str(path)] = (stamp, digest)
        return digest


def digest_file(path: Path) -> str:
    """A digest of a file's content and of whether its owner may run it. Raises OSError."""
    with path.open("rb") as file:
        mark = "x" if os.fstat(file.fileno()).st_mode & stat.S_IXUSR else "-"
        return mark + digest_chunks(chunks_of(file))


def digest_if_there(path: str) -> str:
    """As ``digest_file``; empty if there is no regular file that can be read."""
    try:
        # Checked first: opening a pipe would wait for its writer.
        is_regular = stat.S_ISREG(Path(path).stat().st_mode)
        return digest_file(Path(path)) if is_regular else ""
    except (OSError, ValueError):
        return ""


def find_files(folder: Path, pattern: str) -> Iterator[Path]:
    """The files that a pattern matches, with the rules of ``FileDigests.digest``. Raises UsageError."""
    path = folder / pattern
    if path.is_file():
        yield path
        return
    if problem := find_problem(path):
        raise UsageError(f"inputs {pattern!r}: {problem}")
    try:
        if path.is_dir():
            yield from _walk(path)
        elif _SIGN.search(pattern):
            if path.name == "**":  # before Python 3.13 it selects only folders
                path /= "*"
            base = Path(path.anchor)
            for found in base.glob(str(path.relative_to(base))):
                if found.is_file() and IGNORED.isdisjoint(found.parts):
                    yield found
    except RecursionError:
        raise UsageError(f"inputs {pattern!r}: its folders are nested too deeply") from None
    except OSError as error:
        where = str(error.filename)[:LONGEST]
        raise unreadable(where, error, f"inputs {pattern!r}: ") from error


def find_problem(pattern: Path) -> str:
    """Why an absolute path or glob cannot name inputs, empty if it can."""
    parts = pattern.parts
    signs = [number for number, part in enumerate(parts) if _SIGN.search(part)]
    fixed = os.path.normpath(Path(*parts[: signs[0]] if signs else parts))
    if any("**" in part and part != "**" for part in parts):
        return "** matches folders, and must be a part of its own"
    if signs and ".." in parts[signs[0] :]:
        return "there must be no .. behind a *, ? or ["
    if fixed == "/":
        return "it covers the whole file system: name a folder"
    top = "/".join(fixed.split("/")[:2])
    if top in NO_CONTENT and (signs or fixed == top):
        return f"nothing is stored in {top}"
    return ""


def _walk(top: Path) -> Iterator[Path]:
    for folder, names, files in os.walk(top, onerror=_fail):
        names[:] = [name for name in names if name not in IGNORED]
        for file in files:
            path = Path(folder, file)
            if path.is_file():
                yield path


def _fail(error: OSError) -> NoReturn:
    raise error


def is_file(folder: Path, text: str) -> bool:
    """Whether an argument names a file, as seen from ``folder``."""
    return 0 < len(text) < LONGEST and "\0" not in text and (folder / text).is_file()


def find_arguments(step: Step, folder: Path) -> list[str]:
    """The arguments that are files relative to the suite's folder: the step's result depends on them."""
    return [text for text in step.argv if "{" not in text and is_file(folder, text)]


# ---- installed packages ----------------------------------------------------------------------

KIND = "installed"
RECIPE = "1"
"""The version of how digests of folders of packages are made; a change that changes them raises it."""
SETTLED_S = 2.0
"""Seconds within which a changed file may change again with the same change time: it is counted in steps."""
_STARTED = ("sitecustomize.py", "usercustomize.py")


class InstalledPackages:
    """Digests of such folders, each computed once; usable from any thread."""

    def __init__(self, objects: ObjectStore, settled_s: float = SETTLED_S) -> None:
        """``objects`` has the digests of earlier runs, of folders unchanged for ``settled_s`` seconds."""
        self._objects = objects
        self._settled_ns = int(settled_s * 1e9)
        self._known: dict[tuple[str, ...], str] = {}
        self._lock = threading.Lock()

    def digest(self, folders: Sequence[str]) -> str:
        """The digest of everything that is installed in these folders. Raises OSError."""
        key = tuple(dict.fromkeys(map(os.path.realpath, folders)))
        with self._lock:
            if key not in self._known:
                self._known[key] = digest_parts(*map(self._digest, key))
            return self._known[key]

    def _digest(self, folder: str) -> str:
        began_ns = time.time_ns()
        stamps, changed_ns = _stamp(folder)
        known = self._objects.get_record(KIND, stamps)
        if known is not None:
            return known.decode()
        digest = digest_parts("installed", *_list(folder, "", _read_records(Path(folder))))
        if changed_ns <= began_ns - self._settled_ns:
            with contextlib.suppress(HomeError):  # what cannot be stored is read by the next run
                self._objects.put_record(KIND, stamps, digest.encode())
        return digest


def digest_started(folders: Sequence[str]) -> str:
    """The digest of the code in these folders that an interpreter runs at each start. Raises OSError."""
    parts: list[str] = []
    for folder in dict.fromkeys(map(Path, folders)):
        files = [*sorted(folder.glob("*.pth")), *(folder / name for name in _STARTED)]
        parts += [one for file in files if file.is_file() for one in (file.name, digest_file(file))]
    return digest_parts("started", *parts)


def _stamp(folder: str) -> tuple[str, int]:
    """The digest of the metadata of a folder's files, and when the last one of them was changed."""
    stamps: list[str] = []
    changed_ns = 0
    for below, names, files in os.walk(folder, followlinks=True):
        names[:] = sorted(name for name in names if name != "__pycache__")
        for name in sorted(files):
            path = f"{below}{os.sep}{name}"
            with contextlib.suppress(FileNotFoundError):  # a link that leads nowhere has no content
                status = os.stat(path)  # noqa: PTH116 - tens of thousands of files
                changed_ns = max(changed_ns, status.st_ctime_ns)
                stamps += (path, f"{status.st_ctime_ns} {status.st_size} {status.st_ino}")
    return digest_parts("stamps", RECIPE, *stamps), changed_ns


def _list(folder: str, shown: str, recorded: dict[str, tuple[str, int]]) -> list[str]:
    """Names and contents of a folder's files, sorted; ``shown`` is the prefix of the names."""
    parts: list[str] = []
    if not os.path.isdir(folder):  # noqa: PTH112 - a Path costs more than all else
        return parts
    is_about = shown.endswith(".dist-info/")  # which also records when and how it was installed
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        name = f"{shown}{entry.name}"
        if entry.is_dir():
            if entry.name != "__pycache__":
                parts += _list(entry.path, f"{name}/", recorded)
        elif not is_about or entry.name == "METADATA":
            known, since_ns = recorded.get(name, ("", 0))
            # A changed file has a later change time, whatever modification time it is given.
            if known and entry.stat().st_ctime_ns < since_ns:
                parts += (name, known)
            elif entry.is_file():
                parts += (name, _hash(Path(entry.path)))
    return parts


def _read_records(folder: Path) -> dict[str, tuple[str, int]]:
    """For each installed file, its recorded SHA-256 and when the record was written."""
    found: dict[str, tuple[str, int]] = {}
    for record in folder.glob("*.dist-info/RECORD"):
        since_ns = record.stat().st_ctime_ns
        for line in record.read_text(encoding="utf-8").splitlines():
            name, _, rest = line.rpartition(",")[0].rpartition(",sha256=")
            if rest and not name.startswith(('"', "..")):
                found[name] = (rest, since_ns)
    return found


def _hash(path: Path) -> str:
    """As a ``RECORD`` has it."""
    with path.open("rb") as file:
        state = hashlib.file_digest(file, "sha256")
    return base64.urlsafe_b64encode(state.digest()).decode().rstrip("=")


# ---- variables -------------------------------------------------------------------------------

HEARD = ("TILELANG_", "TVM_", "TL_", "TORCH_", "PYTORCH_", "CUDA_", "NVIDIA_", "PYTHON")
"""Prefixes of the variables that the libraries below user code read."""
_UNHEARD = frozenset({"_", "TILEYARD_LEASE", "TILEYARD_CHANNEL"})
"""Variables that differ from process to process and that user code does not need."""


def find_heard_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that the libraries below user code read."""
    return {name: environ[name] for name in sorted(environ) if name.startswith(HEARD)}


def find_named_variables(files: Iterable[str], environ: Mapping[str, str]) -> dict[str, str]:
    """The variables whose names occur in these files, as words."""
    words: set[str] = set()
    for file in files:
        with contextlib.suppress(OSError):
            words.update(_WORD.findall(Path(file).read_bytes().decode("utf-8", "replace")))
    return {
        name: environ[name]
        for name in sorted(environ.keys() - _UNHEARD)
        if words.issuperset(_WORD.findall(name))
    }


END = r"[^\s\"'`:;,|&<>(){}]+"
"""What a path within a longer text consists of."""


def list_inputs(steps: Iterable[Step], folder: Path) -> frozenset[str]:
    """The files, folders and globs of a suite's folder that these steps name."""
    return frozenset(name for one in steps for name in (*one.inputs, *find_named(one, folder)))


def pack_inputs(patterns: Iterable[str], folder: Path, objects: ObjectStore) -> Digest:
    """A tree of the files in a folder that match. Raises UsageError and HomeError."""
    found = {file for pattern in patterns for file in find_files(folder, pattern)}
    with tempfile.TemporaryDirectory() as name:
        for file in sorted(file for file in found if file.is_relative_to(folder)):
            into = Path(name, file.relative_to(folder))
            into.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, into)
        return Trees(objects).put(Path(name))


def find_named(step: Step, folder: Path) -> list[str]:
    """The files that a step names in arguments and variables without declaring them: whole arguments, and
    files of that folder in longer texts, as ``--data={suite}/a.txt``, which it may read or write: these are
    packed and in no key.
    """
    within = re.compile(re.escape(f"{folder}/") + END)
    found = dict.fromkeys(find_arguments(step, folder))
    for text in (*step.argv, *step.env.values()):
        for name in within.findall(text):
            # A path that continues with a place is not complete yet.
            if f"{name}{{" not in text and is_file(folder, name):
                found[name] = None
    return list(found)
