"""Devices that nobody may have for now: a file per lock file of the device, in ``quarantine/``.

The file's name is that of the lock file without its ending, its owner is who put the device there,
and its content is JSON with ``device``, ``reason``, ``since`` (seconds since the epoch) and ``by``.
A device is in quarantine while any of its lock files is. Who may remove such a file decides the
sticky directory: its owner, the owner of the directory, and root.
"""

import os
import stat
import time

MAX_BYTES = 1 << 14


class Quarantine:
    """Why a device is out of use: ``by`` is the pid that put it there, ``uid`` whose file it is."""

    def __init__(self, path: str, uid: int, facts: dict[str, object]) -> None:
        self.path = path
        self.uid = uid
        self.device = str(facts.get("device") or os.path.basename(path))
        self.reason = str(facts.get("reason") or "its quarantine file cannot be read")
        since, by = facts.get("since"), facts.get("by")
        self.since = float(since) if isinstance(since, int | float) else 0.0
        self.by = by if isinstance(by, int) else 0


def quarantine_paths(locks: list[str] | tuple[str, ...]) -> list[str]:
    """Where it would be said that the device with these lock files is in quarantine."""
    paths = []
    for lock in locks:
        folder, name = os.path.split(lock)
        paths.append(f"{folder}/quarantine/{name.removesuffix('.lock')}")
    return paths


def find_quarantine(locks: list[str] | tuple[str, ...]) -> Quarantine | None:
    """Whether the device with these lock files is in quarantine. Links and pipes say nothing.

    A file that is there but cannot be understood counts: it takes a person to say that all is well.
    """
    for path in quarantine_paths(locks):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError:
            return Quarantine(path, os.lstat(path).st_uid, {})
        except OSError:
            continue  # a link
        try:
            status = os.fstat(fd)
            if stat.S_ISREG(status.st_mode):
                return Quarantine(path, status.st_uid, parse_facts(os.read(fd, MAX_BYTES)))
        finally:
            os.close(fd)
    return None


def parse_facts(data: bytes) -> dict[str, object]:
    """What a quarantine file says, nothing where it is not JSON of the right shape."""
    import json  # costs the keeper 5 ms, and there hardly ever is such a file

    try:
        facts = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}


def put_in_quarantine(locks: list[str] | tuple[str, ...], device: str, reason: str) -> None:
    """Keep everyone from using a device. One that is in quarantine already stays as it is.

    Raises OSError where that cannot be written down.
    """
    import json

    facts = {"device": device, "reason": reason, "since": time.time(), "by": os.getpid()}
    data = json.dumps(facts).encode()
    for path in quarantine_paths(locks):
        folder = os.path.dirname(path)
        try:
            os.mkdir(folder, 0o700)
            os.chmod(folder, 0o1777)
        except FileExistsError:
            pass
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            fd = os.open(path, flags, 0o644)
        except FileExistsError:
            continue
        try:
            os.fchmod(fd, 0o644)  # in two steps, since open heeds the umask
            os.write(fd, data)  # an empty file, on a full disk, still counts
        finally:
            os.close(fd)


def lift_quarantine(locks: list[str] | tuple[str, ...]) -> None:
    """Let a device be used again. Raises PermissionError where it is another user's to say so."""
    for path in quarantine_paths(locks):
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
