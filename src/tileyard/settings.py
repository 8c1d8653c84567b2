"""Configuration as one value, read once at the edge from the environment and then passed down."""

import os
from collections.abc import Mapping
from pathlib import Path

from tileyard.errors import UsageError
from tileyard.model import Record

HOST_CONFIG = Path("/etc/tileyard")
LOCK_DIR = Path("/run/lock/tileyard")
PROJECT_FILE = "tileyard.toml"


class Settings(Record):
    """Where things are and how much of the machine may be used.

    ``home`` holds the store, objects, logs and runs; ``lock_dir`` holds the host's device locks.
    ``cores`` are the CPUs this process may use. ``cc`` is the C compiler asked for, or empty.
    ``plugins`` maps further target names to ``module:Class``. ``host_config`` holds what the host's
    administrator declares for everyone, ``project_file`` is the project's ``tileyard.toml``, if any.
    """

    home: Path
    lock_dir: Path
    cores: tuple[int, ...]
    cc: str = ""
    plugins: dict[str, str] = {}
    host_config: Path = HOST_CONFIG
    project_file: Path | None = None

    def environment(self) -> dict[str, str]:
        """The variables from which ``read_settings`` makes this value again in another process."""
        return {
            "TILEYARD_HOME": str(self.home),
            "TILEYARD_LOCK_DIR": str(self.lock_dir),
            "TILEYARD_PLUGINS": ",".join(f"{name}={where}" for name, where in self.plugins.items()),
            "TILEYARD_HOST_CONFIG": str(self.host_config),
            "TILEYARD_CONFIG": str(self.project_file or ""),
            "CC": self.cc,
        }


def read_settings(environ: Mapping[str, str], cwd: Path) -> Settings:
    """Settings from the variables ``TILEYARD_*`` that ``environment`` names, and ``CC``."""
    home = environ.get("TILEYARD_HOME")
    pairs = (item.partition("=") for item in environ.get("TILEYARD_PLUGINS", "").split(",") if item)
    return Settings(
        home=Path(home).absolute() if home else default_home(cwd),
        lock_dir=read_lock_dir(environ, cwd),
        cores=tuple(sorted(os.sched_getaffinity(0))),
        cc=environ.get("CC", ""),
        plugins={name: where for name, _, where in pairs},
        host_config=cwd / environ.get("TILEYARD_HOST_CONFIG", HOST_CONFIG),
        project_file=find_project_file(environ.get("TILEYARD_CONFIG", ""), cwd),
    )


def read_lock_dir(environ: Mapping[str, str], cwd: Path) -> Path:
    """The host's lock directory."""
    return cwd / environ.get("TILEYARD_LOCK_DIR", LOCK_DIR)


def default_home(cwd: Path) -> Path:
    """``.tileyard`` beside the nearest ``pyproject.toml`` upwards of ``cwd``, else in ``cwd``."""
    for folder in (cwd, *cwd.parents):
        if (folder / "pyproject.toml").is_file():
            return folder / ".tileyard"
    return cwd / ".tileyard"


def find_project_file(named: str, cwd: Path) -> Path | None:
    """The file that is named, else the nearest ``tileyard.toml`` upwards of ``cwd``, else None.

    Its declarations name commands that are run. So one that was merely found, and belongs neither
    to this user nor to root, is refused: anybody could put one into ``/tmp``.
    """
    if named:
        if not (cwd / named).exists() or (cwd / named).is_dir():
            raise UsageError(f"TILEYARD_CONFIG names {named}, which is no file")
        return (cwd / named).absolute()
    for folder in (cwd, *cwd.parents):
        path = folder / PROJECT_FILE
        try:
            owner = path.stat().st_uid
        except OSError:
            continue
        if owner not in (0, os.geteuid()):
            raise UsageError(
                f"{path} belongs to another user (uid {owner})",
                "set TILEYARD_CONFIG to it if it is to be trusted, or to /dev/null if not",
            )
        return path.absolute()
    return None
