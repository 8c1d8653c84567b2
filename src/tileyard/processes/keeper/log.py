"""Writes the host's log of leases, which nothing may fail for: what cannot be written is lost.
A lease has a line when it begins and a complete one when it ends. Its user's keepers append them to
files of that user, whose names nobody can guess and which begin with their own name; they also remove
this user's oldest files. In a sticky folder nobody else can do either, except root.
"""

import os
import stat
import time

from .files import FILE_MODE, LOG, escape, open_directory, open_folders, remove
from .report import RefusedError
from .rules import Rules

TYPE_CHECKING = False  # typing would cost 5 ms
if TYPE_CHECKING:
    from collections.abc import Iterable

DAY_S = 86400
MEMORY_BYTES, DISK_BYTES = 1 << 20, 16 << 20
"""Most bytes of one user's files, in the lock directory, which may be in memory, and elsewhere."""
FILES = 16
"""Files that share these bytes: the oldest goes first."""
BEGIN, END = "begin", "end"
LAST = "."
"""The last word of a line: without it the disk was full."""


class Log:
    """The log of one lease, open until ``end``. Nothing is written where there is no log."""

    def __init__(self, root: int, path: str, rules: Rules) -> None:
        """Open the log of the lock directory ``root``, which is at ``path``."""
        self.limit_bytes = DISK_BYTES if rules.log else MEMORY_BYTES
        self.keep_days = rules.keep_days
        self.facts: list[tuple[str, str]] = []
        self.began = 0.0
        try:
            self.folder = open_log(root, path, rules) if rules.keep_days else -1
        except (OSError, RefusedError):
            self.folder = -1

    def begin(self, number: int, devices: "Iterable[str]", command: str) -> None:
        """Write that the lease has begun."""
        self.began = time.monotonic()
        self.facts = [
            ("number", str(number)),
            ("since", f"{time.time():.3f}"),
            ("pid", str(os.getpid())),
            *(("device", device) for device in devices),
            ("command", command),
        ]
        self._write(BEGIN, self.facts)

    def end(self, how: str) -> None:
        """Write that the lease has ended, and close the log. Repeatable."""
        if self.folder >= 0:
            held = ("held_s", f"{time.monotonic() - self.began:.3f}")
            self._write(END, [*self.facts, held, ("how", how)])
            os.close(self.folder)
            self.folder = -1

    def _write(self, kind: str, facts: list[tuple[str, str]]) -> None:
        words = [kind, *(f"{key}={escape(value)}" for key, value in facts), LAST]
        try:
            if self.folder >= 0:
                append(self.folder, " ".join(words), self.limit_bytes, self.keep_days)
        except OSError:
            pass


def open_log(root: int, path: str, rules: Rules) -> int:
    """The folder of the log. Raises RefusedError if it cannot be trusted, OSError if there is none."""
    return open_directory(rules.log) if rules.log else open_folders(root, path, (LOG,))[0]


def append(folder: int, line: str, limit_bytes: int, keep_days: int) -> None:
    """Add a line to this user's newest file, or to a new one each day. Raises OSError."""
    today = f"{os.geteuid()}.{time.strftime('%Y%m%d', time.gmtime())}"
    # A line that was cut short ends here. One call appends it as a whole, among those of others.
    data = f"\n{line}\n".encode("ascii")
    files = list_files(folder, os.geteuid())
    fd = -1
    newest = [file for file in files if file.name.startswith(today)][-1:]
    if newest and newest[0].size + len(data) <= limit_bytes // FILES:
        fd = open_own(folder, newest[0].name)
    if fd < 0:
        remove_old(folder, files, limit_bytes - limit_bytes // FILES, keep_days)
        name = f"{today}{time.strftime('-%H%M%S', time.gmtime())}.{os.urandom(6).hex()}"
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(name, flags, FILE_MODE, dir_fd=folder)
        os.fchmod(fd, FILE_MODE)  # whatever the umask is
        data = f"{name}\n".encode("ascii") + data
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


class LogFile:
    """A file of the log, as its folder shows it."""

    def __init__(self, name: str, status: os.stat_result) -> None:
        self.name = name
        self.size = status.st_size
        self.changed = status.st_mtime


def list_files(folder: int, uid: int) -> list[LogFile]:
    """A user's files, the oldest first: those whose owner and name are that user's."""
    found = []
    for name in sorted(os.listdir(folder)):
        if name.startswith(f"{uid}."):
            try:
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except OSError:
                continue  # it has just gone
            if status.st_uid == uid and stat.S_ISREG(status.st_mode):
                found.append(LogFile(name, status))
    return found


def remove_old(folder: int, files: list[LogFile], limit_bytes: int, keep_days: int) -> None:
    """Remove those of a user's files, the oldest first, that are too old or exceed the limit together."""
    oldest = time.time() - keep_days * DAY_S
    left_bytes = limit_bytes
    for file in reversed(files):
        left_bytes -= file.size
        if file.changed < oldest or left_bytes < 0:
            remove(folder, file.name)


def open_own(folder: int, name: str) -> int:
    """Open a file of this user's log for appending; -1 if it is another file under this name."""
    flags = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(name, flags, dir_fd=folder)
    except OSError:
        return -1
    if os.pread(fd, len(name) + 1, 0) == f"{name}\n".encode("ascii"):
        return fd
    os.close(fd)
    return -1
