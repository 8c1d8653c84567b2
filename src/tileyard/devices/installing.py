"""Makes the host's lock directory for all users, as root: ``tileyard devices --install``."""

import contextlib
import os
import shutil
import stat
from pathlib import Path

from tileyard.base.decoding import draft_of
from tileyard.base.errors import UsageError
from tileyard.base.model import Record
from tileyard.base.modes import find_stranger
from tileyard.devices.base import name_user
from tileyard.devices.locks import check_way, explaining, install_command, prepare_directory
from tileyard.devices.occupancy import keep_from_deciding
from tileyard.processes.keeper.files import (
    FOLDERS,
    LOG,
    OPEN,
    close_all,
    is_locked,
    make_directory,
    open_directory,
    open_folders,
    open_seen,
)
from tileyard.processes.keeper.log import DISK_BYTES, list_files, remove_old
from tileyard.processes.keeper.report import RefusedError
from tileyard.processes.keeper.rules import SETTINGS, Rules, read_rules

TMPFILE = "tileyard.conf"


class NewRules(Record):
    """What root sets anew, None to keep what is set: see ``Rules``."""

    keep_days: int | None = None
    priority: int | None = None
    lease_s: dict[str, float] = {}


def install_directory(
    directory: Path, tmpfiles: Path, new: NewRules, log: Path | None = None
) -> list[str]:
    """Make the lock directory for all users, now and at each start, with root's settings and the folder
    ``log`` if it is not in the directory; returns the actions taken. An untrusted directory is replaced
    unless in use. Raises UsageError if this user is not root, or it cannot be done.
    """
    if os.geteuid():
        raise UsageError(
            "only root can make a lock directory for all users",
            f"run: {install_command(directory)}",
        )
    if reason := find_stranger(tmpfiles):
        raise UsageError(f"{tmpfiles / TMPFILE} is not safe: {reason}")
    done = []
    with explaining(directory):
        check_way(directory)
        if not _serves_all(directory):
            _set_aside(directory)
            make_directory(str(directory))
            done.append(f"made {directory} for all users")
    prepare_directory(directory)
    rules = _merge(_read_set(directory, tmpfiles / TMPFILE), new)
    rules.log = "" if log is None else str(log)
    _prepare_log(directory, rules)
    text = rules.format()
    if _write(directory / SETTINGS, f"{text}\n"):
        done.append(f"set {text}")
    if _write(tmpfiles / TMPFILE, _format_tmpfile(directory, rules)):
        done.append(f"wrote {tmpfiles / TMPFILE}, so that it is made again at each start")
    return done or [f"{directory} serves all users already"]


def _serves_all(directory: Path) -> bool:
    try:
        root = open_directory(str(directory))
    except (FileNotFoundError, RefusedError):
        return False
    try:
        close_all(open_folders(root, str(directory)))
    except RefusedError:
        return False
    else:
        return bool(os.fstat(root).st_mode & 0o011)
    finally:
        os.close(root)


def _set_aside(directory: Path) -> None:
    """Remove what is at this path. Raises UsageError if somebody uses it."""
    try:
        directory.lstat()
    except FileNotFoundError:
        return
    with contextlib.ExitStack() as closing:
        with contextlib.suppress(OSError):  # a link or a file has no users
            root = os.open(directory, OPEN)
            closing.callback(os.close, root)
            keep_from_deciding(root)  # nobody gets a lease in it from now on
            if users := _list_users(root):
                raise UsageError(
                    f"{directory} cannot be replaced: {', '.join(users)} holds or waits for a device in it",
                    "run this again when that has ended",
                )
        aside = directory.parent / f".{directory.name}.{os.urandom(6).hex()}"
        aside.mkdir(mode=0o700)  # nobody else can follow it there
        try:
            directory.rename(aside / "old")
        finally:
            shutil.rmtree(aside)


def _list_users(root: int) -> list[str]:
    """The users whose leases and requests are alive in a directory that may contain anything."""
    found: set[int] = set()
    for name in FOLDERS[:2]:
        try:
            folder = os.open(name, OPEN, dir_fd=root)
        except OSError:
            continue
        for file in os.listdir(folder):  # noqa: PTH208 - a descriptor
            if (seen := open_seen(folder, file)) is not None:
                if is_locked(seen.fd):
                    found.add(seen.uid)
                os.close(seen.fd)
        os.close(folder)
    return [name_user(uid) for uid in sorted(found)]


def _merge(rules: Rules, new: NewRules) -> Rules:
    if new.keep_days is not None:
        rules.keep_days = new.keep_days
    if new.priority is not None:
        rules.priority = new.priority
    rules.lease_s |= new.lease_s
    return rules


def _prepare_log(directory: Path, rules: Rules) -> None:
    """Make the folder of the log for the directory's users, and remove what is too old. Raises UsageError."""
    folder = Path(rules.log or directory / LOG)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        fd = os.open(folder, OPEN)
        try:
            if os.fstat(fd).st_uid:
                raise UsageError(f"the folder of the log {folder} belongs to another user")
            model = (directory / FOLDERS[0]).stat()
            os.fchown(fd, -1, model.st_gid)
            os.fchmod(fd, stat.S_IMODE(model.st_mode))
            owners = {name.partition(".")[0] for name in os.listdir(fd)}  # noqa: PTH208 - a descriptor
            for uid in filter(str.isdecimal, owners):
                remove_old(fd, list_files(fd, int(uid)), DISK_BYTES, rules.keep_days)
        finally:
            os.close(fd)
    except OSError as error:
        raise UsageError(f"cannot make the folder of the log {folder}: {error.strerror}") from error


def _read_set(directory: Path, tmpfile: Path) -> Rules:
    """The settings in force, or of a directory that was made anew those that systemd makes at each start."""
    if (directory / SETTINGS).exists():
        root = open_directory(str(directory))
        try:
            return read_rules(root)
        finally:
            os.close(root)
    try:
        lines = tmpfile.read_text(encoding="utf-8").splitlines()
    except OSError:
        return Rules()
    found = (line.rpartition(" - ")[2] for line in lines if line.startswith("f "))
    return Rules(next(found, "").replace("%%", "%"))


def _format_tmpfile(directory: Path, rules: Rules) -> str:
    """The entry by which systemd makes the directory at each start, as it is now, and cleans the log."""
    log = Path(rules.log or directory / LOG)
    ages = {log: f"{rules.keep_days}d"} if rules.keep_days else {}
    lines = []
    for path in (directory, *(directory / name for name in FOLDERS), log):
        status = path.stat()
        mode = stat.S_IMODE(status.st_mode)
        lines.append(f"d {_quote(path)} {mode:04o} root {status.st_gid} {ages.get(path, '-')}\n")
    text = rules.format().replace("%", "%%")
    lines.append(f"f {_quote(directory / SETTINGS)} 0644 root 0 - {text}\n")
    return "# made by: tileyard devices --install\n" + "".join(lines)


def _write(file: Path, text: str) -> bool:
    """Replace a file that all may read; returns whether its content is new. Raises UsageError."""
    try:
        with contextlib.suppress(FileNotFoundError):
            if file.read_text(encoding="utf-8") == text:
                return False
        file.parent.mkdir(parents=True, exist_ok=True)
        with draft_of(file) as draft:
            os.fchmod(draft.fileno(), 0o644)
            draft.write(text.encode())
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror}") from error
    return True


def _quote(path: Path) -> str:
    text = str(path).replace("%", "%%")
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return text if escaped == text and " " not in text else f'"{escaped}"'
