"""Configuration as one value, read once at the edge from the environment and then passed down."""

import os
from collections.abc import Mapping
from pathlib import Path

from tileyard.model import Record


class Settings(Record):
    """Where things are and how much of the machine may be used.

    ``home`` holds the store, objects, logs and runs; ``lock_dir`` holds the host's device locks.
    ``cores`` are the CPUs this process may use. ``cc`` is the C compiler asked for, or empty.
    ``plugins`` maps further target names to ``module:Class``.
    """

    home: Path
    lock_dir: Path
    cores: tuple[int, ...]
    cc: str = ""
    plugins: dict[str, str] = {}

    def environment(self) -> dict[str, str]:
        """The variables from which ``read_settings`` makes this value again in another process."""
        return {
            "TILEYARD_HOME": str(self.home),
            "TILEYARD_LOCK_DIR": str(self.lock_dir),
            "TILEYARD_PLUGINS": ",".join(f"{name}={where}" for name, where in self.plugins.items()),
            "CC": self.cc,
        }


def read_settings(environ: Mapping[str, str], cwd: Path) -> Settings:
    """Settings from ``TILEYARD_HOME``, ``TILEYARD_LOCK_DIR``, ``TILEYARD_PLUGINS`` and ``CC``."""
    home = environ.get("TILEYARD_HOME")
    pairs = (item.partition("=") for item in environ.get("TILEYARD_PLUGINS", "").split(",") if item)
    return Settings(
        home=Path(home).absolute() if home else default_home(cwd),
        lock_dir=cwd / environ.get("TILEYARD_LOCK_DIR", "/run/lock/tileyard"),
        cores=tuple(sorted(os.sched_getaffinity(0))),
        cc=environ.get("CC", ""),
        plugins={name: where for name, _, where in pairs},
    )


def default_home(cwd: Path) -> Path:
    """``.tileyard`` beside the nearest ``pyproject.toml`` upwards of ``cwd``, else in ``cwd``."""
    for folder in (cwd, *cwd.parents):
        if (folder / "pyproject.toml").is_file():
            return folder / ".tileyard"
    return cwd / ".tileyard"
