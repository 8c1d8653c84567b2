"""Where trials and artifacts are kept."""

import itertools
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tileyard.artifacts.keys import digest_bytes
from tileyard.doctor.findings import Finding, Level
from tileyard.errors import HomeError
from tileyard.modes import mode_in
from tileyard.settings import Settings
from tileyard.store.filesystem import find_filesystem, require_local
from tileyard.store.trials import TrialStore

LOW_SPACE_BYTES = 1 << 30
SAMPLE = 50
"""How many stored objects are read; all of them can take minutes."""
DIGEST_LENGTH = 40


def check_home(settings: Settings) -> Iterator[Finding]:
    """The home can be written, lies on a disk of this host, and its store can be opened."""
    home = settings.home
    settings.require_trusted(home)
    require_local(home)
    folder = nearest_folder(home)
    there = next(path for path in (home, *home.parents) if path.exists())
    if there != folder:
        raise HomeError(f"{there} is no directory", hint="set TILEYARD_HOME to one")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise HomeError(
            f"{folder} is not writable", hint="set TILEYARD_HOME to a directory of yours"
        )
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".tileyard-doctor-") as file:
        file.write(b"\0" * 4096)
    if (home / "store.db").is_file():
        with TrialStore.open(home) as store:
            store.list_runs(limit=1)
    kind = find_filesystem(home) or "a file system of an unknown kind"
    free_bytes = shutil.disk_usage(folder).free
    message = f"{home} ({kind}, {free_bytes / 2**30:.1f} GiB free)"
    is_low = free_bytes < LOW_SPACE_BYTES
    yield Finding(
        subject="home",
        level=Level.WARN if is_low else Level.OK,
        message=message,
        todo="make room, or set TILEYARD_HOME to another disk" if is_low else "",
    )
    if home in settings.found and home.is_dir() and mode_in(home, 0o077):
        yield Finding(
            subject="home",
            level=Level.WARN,
            message=f"others can look into {home}, and nobody has shared it by name",
            todo=f"run chmod -R go= {shlex.quote(str(home))}, or name it by TILEYARD_HOME",
        )


def check_objects(settings: Settings) -> Iterator[Finding]:
    """Stored objects can be read and hold what their names promise; a sample of them is read."""
    root = settings.home / "objects"
    blobs = (p for p in root.glob("[0-9a-f][0-9a-f]/*") if len(p.name) == DIGEST_LENGTH)
    read = 0
    damaged: list[str] = []
    closed: list[Path] = []
    for path in itertools.islice(blobs, SAMPLE):
        read += 1
        try:
            if digest_bytes(path.read_bytes()) != path.name:
                damaged.append(path.name)
        except FileNotFoundError:
            continue
        except PermissionError:
            closed.append(path)
    if closed:
        yield Finding(
            subject="objects",
            level=Level.FAIL,
            message=f"{closed[0]} and {len(closed) - 1} others of {read} may not be read",
            todo=f"let their owner run chmod -R {_sharers(settings.home)}+rX {root}",
        )
    elif damaged:
        yield Finding(
            subject="objects",
            level=Level.WARN,
            message=f"{len(damaged)} of {read} of {root} are damaged, as {damaged[0]}",
            todo="look at the disk; what is damaged is set aside when needed, and made anew",
        )
    else:
        yield Finding(subject="objects", level=Level.OK, message=f"{read} of {root} were read")


def _sharers(home: Path) -> str:
    """Whom a home is shared with, as chmod calls them."""
    return "a" if mode_in(home, 0o005) == 0o005 else "g"


def nearest_folder(path: Path) -> Path:
    """The folder itself, or the nearest one above it that is there."""
    return next(folder for folder in (path, *path.parents) if folder.is_dir())
