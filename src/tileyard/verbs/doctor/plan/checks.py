"""Checks of the host itself, and ``CHECKS``: all checks in the order in which they are shown."""

import grp
import importlib.metadata
import os
import platform
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tileyard.artifacts.objects import digest_bytes
from tileyard.base.errors import HomeError, UsageError
from tileyard.base.modes import mode_in
from tileyard.base.settings import LOCK_DIR, Settings
from tileyard.base.wording import count_of, install_extra
from tileyard.devices.base import name_user
from tileyard.devices.locks import hint_for, install_command, is_for_all, prepare_directory
from tileyard.store.base import NETWORK, TrialQuery, find_filesystem, require_local
from tileyard.store.trials import has_store, open_store
from tileyard.targets.cpu.toolchain import CpuOptions, open_toolchain
from tileyard.verbs.doctor.plan.devices import (
    check_declarations,
    check_devices,
    check_gpus,
    check_leftovers,
    check_queues,
)
from tileyard.verbs.doctor.plan.findings import Check, Finding, Level

OLDEST_PYTHON = (3, 11)
LOW_SPACE_BYTES, LOW_LOCK_SPACE_BYTES = 1 << 30, 1 << 20
SAMPLE = 50
"""Number of stored objects that are read; reading all of them can take minutes."""
DIGEST_LENGTH = 40
SOURCE = "int tileyard_probe(int x) { return x + 1; }\n"


def check_python(_: Settings) -> Iterator[Finding]:
    """Check that the interpreter is new enough."""
    is_new = sys.version_info >= OLDEST_PYTHON
    yield Finding(
        subject="python",
        level=Level.OK if is_new else Level.FAIL,
        message=f"{platform.python_version()} ({sys.executable})",
        todo="" if is_new else f"use Python {'.'.join(map(str, OLDEST_PYTHON))} or newer",
    )


def check_tilelang(_: Settings) -> Iterator[Finding]:
    """Check that TileLang is installed in the pinned version; it is not imported."""
    wanted = _pinned_version("tilelang")
    found = find_version("tilelang")
    if not found:
        yield Finding(
            subject="tilelang",
            level=Level.WARN,
            message="is not installed: kernels cannot be built, artifacts can be run",
            todo=install_extra("tilelang"),
        )
    elif wanted and found != wanted:
        yield Finding(
            subject="tilelang",
            level=Level.WARN,
            message=f"{found}, but this version of tileyard was made for {wanted}",
            todo=f"pip install tilelang=={wanted}",
        )
    else:
        yield Finding(subject="tilelang", level=Level.OK, message=found)


def check_compiler(settings: Settings) -> Iterator[Finding]:
    """Check that the C compiler builds a shared object for this machine."""
    toolchain = open_toolchain(settings.cc, CpuOptions())
    name = f"{' '.join(toolchain.command)} {toolchain.version}"
    with tempfile.TemporaryDirectory(prefix="tileyard-doctor-") as folder:
        (Path(folder) / "probe.c").write_text(SOURCE, encoding="ascii")
        compiled = toolchain.compile_kernel(Path(folder), "probe.c", "probe.so")
    if compiled.ok:
        yield Finding(subject="C compiler", level=Level.OK, message=name)
    else:
        lines = compiled.log.strip().splitlines() or ["it prints nothing"]
        yield Finding(
            subject="C compiler",
            level=Level.FAIL,
            message=f"{name} cannot build a shared object: {lines[-1]}",
            todo="install the C library's headers and a linker, or set CC to another compiler",
        )


def find_version(package: str) -> str:
    """The installed version of a package, empty if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _pinned_version(package: str) -> str:
    """The version that this package pins, empty if it pins none."""
    for line in importlib.metadata.requires("tileyard") or ():
        name, _, version = line.partition(";")[0].strip().partition("==")
        if name == package:
            return version.strip()
    return ""


def check_home(settings: Settings) -> Iterator[Finding]:
    """Check that the data directory is writable, on a disk of this host, and that its store can be opened."""
    home = settings.home
    settings.require_trusted(home)
    require_local(home)
    folder = nearest_folder(home)
    there = next(path for path in (home, *home.parents) if path.exists())
    if there != folder:
        raise HomeError(f"{there} is not a directory", hint="set TILEYARD_HOME to one")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise HomeError(
            f"{folder} is not writable", hint="set TILEYARD_HOME to a directory of yours"
        )
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".tileyard-doctor-") as file:
        file.write(b"\0" * 4096)
    if has_store(home):
        with open_store(home) as store:
            store.list_trials(TrialQuery(limit=1))
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
    """Check that a sample of stored objects can be read and matches their names."""
    root = settings.home / "objects"
    blobs = (p for p in root.glob("[0-9a-f][0-9a-f]/*") if len(p.name) == DIGEST_LENGTH)
    stored = list(blobs)
    paths = stored[:SAMPLE]
    damaged: list[str] = []
    closed: list[Path] = []
    for path in paths:
        try:
            if digest_bytes(path.read_bytes()) != path.name:
                damaged.append(path.name)
        except FileNotFoundError:
            continue
        except PermissionError:
            closed.append(path)
    if closed:
        # Whom a data directory is shared with, in chmod's terms.
        sharers = "a" if mode_in(settings.home, 0o005) == 0o005 else "g"
        yield Finding(
            subject="objects",
            level=Level.FAIL,
            message=f"{len(closed)} of {len(paths)} may not be read, the first: {closed[0]}",
            todo=f"let their owner run chmod -R {sharers}+rX {root}",
        )
    elif damaged:
        yield Finding(
            subject="objects",
            level=Level.WARN,
            message=f"{len(damaged)} of {len(paths)} of {root} are damaged, as {damaged[0]}",
            todo="look at the disk; what is damaged is set aside when needed, and made anew",
        )
    else:
        yield Finding(
            subject="objects",
            level=Level.OK,
            message=f"checked {len(paths)} of {count_of(len(stored), 'stored object')} in {root}",
        )


def nearest_folder(path: Path) -> Path:
    """The folder itself, or the nearest existing one above it."""
    return next(folder for folder in (path, *path.parents) if folder.is_dir())


def check_lock_directory(settings: Settings) -> Iterator[Finding]:
    """Check that it exists, that others cannot rearrange it, and that the kernel's locks work there."""
    folder = settings.lock_dir
    kind = find_filesystem(folder)
    if kind in NETWORK:
        raise UsageError(
            f"{folder} lies on a network file system ({kind}): other hosts' devices are not these",
            "set TILEYARD_LOCK_DIR to a directory of this host, such as one below /run/lock",
        )
    if not folder.exists():
        yield _judge_missing(folder)
        return
    prepare_directory(folder)
    free_bytes = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
    if free_bytes < LOW_LOCK_SPACE_BYTES:
        raise UsageError(f"{folder} has {free_bytes >> 10} KiB left", f"make room on {kind}")
    is_ones_own = folder == LOCK_DIR and not is_for_all(folder)
    yield Finding(
        subject="lock directory",
        level=Level.WARN if is_ones_own else Level.OK,
        message=f"{folder} ({kind}, {free_bytes / 2**30:.1f} GiB free), {describe_writers(folder)}",
        todo=f"to share devices with other users run {install_command(folder)}"
        if is_ones_own
        else "",
    )


def describe_writers(folder: Path) -> str:
    """Describe who may lease devices here, from the directory's owner and mode."""
    status = folder.stat()
    if not is_for_all(folder) or not status.st_mode & 0o011:
        return f"for {name_user(status.st_uid)} alone"
    return (
        "for all users" if status.st_mode & 0o001 else f"for the group {_name_group(status.st_gid)}"
    )


def _judge_missing(folder: Path) -> Finding:
    above = nearest_folder(folder)
    is_root = os.geteuid() == 0
    if folder.parent != above or not os.access(above, os.W_OK | os.X_OK):
        level, message = Level.FAIL, f"{folder} does not exist, and cannot be made in {above}"
    else:
        level = Level.OK if is_root else Level.WARN
        owner = "for all users" if is_root else "for one user alone"
        message = f"{folder} does not exist yet; the first lease makes it, {owner}"
    todo = "" if level is Level.OK else hint_for(folder)
    return Finding(subject="lock directory", level=level, message=message, todo=todo)


def _name_group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


CHECKS: tuple[tuple[str, Check], ...] = (
    ("python", check_python),
    ("tilelang", check_tilelang),
    ("C compiler", check_compiler),
    ("home", check_home),
    ("objects", check_objects),
    ("lock directory", check_lock_directory),
    ("declared devices", check_declarations),
    ("GPUs", check_gpus),
    ("devices", check_devices),
    ("leftovers", check_leftovers),
    ("queues", check_queues),
)
"""All checks, each with its subject, which is named if the check cannot be finished."""
