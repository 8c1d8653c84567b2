"""The configuration as one value, read once at the edge from the environment and then passed down."""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from tileyard.base.decoding import decode_toml
from tileyard.base.errors import HomeError, UsageError
from tileyard.base.model import Record
from tileyard.base.modes import find_stranger, open_file

HOST_CONFIG = Path("/etc/tileyard")
LOCK_DIR = Path("/run/lock/tileyard")
LOG_DIR = Path("/var/log/tileyard")
"""The log of leases in that directory, which is in memory, once root has installed it."""
PROJECT_FILE = "tileyard.toml"
PYPROJECT = "pyproject.toml"
DECLARED = {
    "device": "[[device]]",
    "classes": "[classes.NAME]",
    "simulators": "[simulators]",
    "queue": "[[queue]]",
}
"""Tables of configuration files that declare devices, and how they are written."""
GOLDEN_THREADS = "TILEYARD_GOLDEN_THREADS"
VARIABLES = (
    *("TILEYARD_HOME", "TILEYARD_LOCK_DIR", "TILEYARD_PLUGINS", "TILEYARD_HOST_CONFIG"),
    *("TILEYARD_CONFIG", GOLDEN_THREADS, "CC"),
)
"""The environment variables that settings are read from."""


class Settings(Record):
    """Locations of files, and how much of the machine may be used.
    ``home`` holds store, objects, logs and runs; ``lock_dir`` the host's locks; ``cores`` are the
    usable CPUs; ``cc`` is the C compiler, or empty; ``plugins`` maps targets to ``module:Class``.
    ``host_config`` is the administrator's; ``project_file`` is ``tileyard.toml`` or a
    ``pyproject.toml`` with ``[tool.tileyard]``, if any; ``found`` are the folders that no variable
    names. ``golden_threads``: most golden results at once, 0 for one per core; ``python_limit_s``
    limits a kernel file's Python in this process, 0 for the usual limits.
    """

    home: Path
    lock_dir: Path
    cores: tuple[int, ...]
    cc: str = ""
    plugins: dict[str, str] = {}
    host_config: Path = HOST_CONFIG
    project_file: Path | None = None
    found: tuple[Path, ...] = ()
    golden_threads: int = 0
    python_limit_s: float = 0.0

    @property
    def lanes(self) -> int:
        """Most golden results and program steps beside devices that run at the same time."""
        return self.golden_threads or len(self.cores)

    @property
    def step_threads(self) -> int:
        """Most threads that each of these steps may use."""
        return max(1, len(self.cores) // self.lanes)

    def make_home(self) -> Path:
        """The data directory, made for this user with a ``.gitignore`` if missing. Raises UsageError if it,
        or its folder, cannot be trusted and no variable names it, HomeError if it cannot be made.
        """
        self.require_trusted(self.home)
        try:
            self.home.parent.mkdir(parents=True, exist_ok=True)
            self.home.mkdir(0o700)
        except FileExistsError:
            self.require_trusted(self.home)  # again: another process may have been faster
        except OSError as error:
            raise HomeError(
                f"cannot write to {self.home}: {error.strerror}", "set TILEYARD_HOME elsewhere"
            ) from error
        _hide_from_git(self.home)
        return self.home

    def require_trusted(self, path: Path) -> None:
        """Raise UsageError if others may have put ``path`` into a folder that no variable names."""
        folders = ((self.home, "TILEYARD_HOME"), (self.host_config, "TILEYARD_HOST_CONFIG"))
        for folder, variable in folders:
            if folder in self.found and path.is_relative_to(folder):
                _refuse_strangers(path, f"set {variable} to {folder} if it is to be trusted")

    def environment(self) -> dict[str, str]:
        """The variables from which ``read_settings`` reads the same value in another process."""
        return {
            "TILEYARD_HOME": str(self.home),
            "TILEYARD_FOUND_HOME": str(self.home) if self.home in self.found else "",
            "TILEYARD_LOCK_DIR": str(self.lock_dir),
            "TILEYARD_PLUGINS": ",".join(f"{name}={where}" for name, where in self.plugins.items()),
            "TILEYARD_HOST_CONFIG": "" if self.host_config in self.found else str(self.host_config),
            "TILEYARD_CONFIG": str(self.project_file or ""),
            "CC": self.cc,
            GOLDEN_THREADS: str(self.golden_threads or ""),
        }


def read_settings(environ: Mapping[str, str], cwd: Path) -> Settings:
    """Settings from ``TILEYARD_*`` of ``environment`` and ``CC``. Raises UsageError for an
    untrusted data directory or project file that no variable names.
    """
    named = environ.get("TILEYARD_HOME", "")
    home = find_home(environ, cwd)
    host_config = environ.get("TILEYARD_HOST_CONFIG", "")
    is_found = not named or named == environ.get("TILEYARD_FOUND_HOME")
    pairs = (item.partition("=") for item in environ.get("TILEYARD_PLUGINS", "").split(",") if item)
    settings = Settings(
        home=home,
        lock_dir=read_lock_dir(environ, cwd),
        cores=tuple(sorted(os.sched_getaffinity(0))),
        cc=environ.get("CC", ""),
        plugins={name: where for name, _, where in pairs},
        host_config=cwd / (host_config or HOST_CONFIG),
        project_file=find_project_file(environ.get("TILEYARD_CONFIG", ""), cwd),
        found=(*((home,) if is_found else ()), *(() if host_config else (HOST_CONFIG,))),
        golden_threads=_read_golden_threads(environ.get(GOLDEN_THREADS, "")),
    )
    if os.path.lexists(home):
        settings.require_trusted(home)
    return settings


def _read_golden_threads(text: str) -> int:
    if text and not (text.isascii() and text.isdigit() and int(text)):
        raise UsageError(
            f"{GOLDEN_THREADS} is {text!r}, and not a number of golden results to make at a time",
            "set it to 1 or more, or not at all for one on each core",
        )
    return int(text or 0)


def read_lock_dir(environ: Mapping[str, str], cwd: Path) -> Path:
    """The host's lock directory."""
    return cwd / environ.get("TILEYARD_LOCK_DIR", LOCK_DIR)


def find_home(environ: Mapping[str, str], cwd: Path) -> Path:
    """The data directory."""
    named = environ.get("TILEYARD_HOME", "")
    return Path(named).absolute() if named else default_home(cwd)


def default_home(cwd: Path) -> Path:
    """``.tileyard`` beside the nearest trusted ``pyproject.toml`` from ``cwd`` up, else in ``cwd``."""
    for folder in (cwd, *cwd.parents):
        marker = folder / PYPROJECT
        if marker.is_file() and not find_stranger(marker):
            return folder / ".tileyard"
    return cwd / ".tileyard"


def find_project_file(named: str, cwd: Path) -> Path | None:
    """The named file, else the nearest project file up to the repository's root, or None. It names
    commands: raises UsageError for an unnamed one that others may have written.
    """
    if named:
        if not (cwd / named).exists() or (cwd / named).is_dir():
            raise UsageError(f"TILEYARD_CONFIG names {named}, which is not a file")
        return (cwd / named).absolute()
    for folder in (cwd, *cwd.parents):
        for path in (folder / PROJECT_FILE, folder / PYPROJECT):
            if _is_project_file(path):
                _refuse_strangers(
                    path, "set TILEYARD_CONFIG to it if it is to be trusted, or to /dev/null if not"
                )
                return path.absolute()
        if os.path.lexists(folder / ".git"):
            break
    return None


def read_tables(path: Path) -> dict[str, object]:
    """A configuration file's tables, of ``pyproject.toml`` ``[tool.tileyard]``, if any. Raises UsageError."""
    try:
        data = path.read_bytes()
        if path.name != PYPROJECT:
            return decode_toml(data)
        tool = decode_toml(data).get("tool") if b"tileyard" in data else None
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise UsageError(f"{path}: is not valid TOML: {error}") from error
    own = tool.get("tileyard") if isinstance(tool, dict) else None
    return own if isinstance(own, dict) else {}


def _is_project_file(path: Path) -> bool:
    if path.name == PROJECT_FILE:
        return os.path.lexists(path)
    return path.is_file() and os.access(path, os.R_OK) and bool(read_tables(path))


def _hide_from_git(home: Path) -> None:
    """Put a ``.gitignore`` into a data directory unless it has one, or contains other things."""
    with contextlib.suppress(OSError):  # a failure to write is reported where it matters
        names = {path.name for path in home.iterdir()}
        if ".git" in names or (names and names.isdisjoint(("objects", "store.lock"))):
            return
        with open(home / ".gitignore", "xb", opener=open_file) as file:
            file.write(b"*\n")


def _refuse_strangers(path: Path, hint: str) -> None:
    """Raise UsageError, with ``hint``, if others could have put there what is at a path."""
    if reason := find_stranger(path):
        raise UsageError(f"{path} cannot be trusted: {reason}", hint)
