"""Devices that nobody may have for now: statements in ``quarantine/`` beside the lock files.

A statement is a file named after a lock file, ``STEM`` or ``STEM@ANYTHING``; its owner is who put
the device there, and its content is JSON with ``device``, ``reason``, ``since`` (seconds since the
epoch), ``by`` (a pid) and ``by_hand`` (where a person put it there). A device is in quarantine while a statement on any of its lock files counts.

In a sticky directory only its owner can remove a statement. Others lift it with a file of their own,
``STEM@lifted.ANYTHING``, whose ``lifts`` names statements by inode and time of change. So nobody
needs a common clock or a lock, a statement that nobody had seen is never lifted by mistake, and
touching a statement makes it count again. Anybody may lift, as anybody may state.
"""

import os
import stat
import time

MAX_BYTES = 1 << 14
LIFTED = "lifted."
PROBES = "probes."
"""What begins the second part of a file's name that is no statement."""


class Quarantine:
    """Why a device is out of use: ``by`` is the pid that put it there, ``uid`` whose file it is.

    ``token`` is what lifts this statement and no other. ``by_hand`` says that a person made it.
    """

    def __init__(self, path: str, status: os.stat_result, facts: dict[str, object]) -> None:
        self.path = path
        self.uid = status.st_uid
        self.token = f"{status.st_ino}:{status.st_ctime_ns}"
        self.device = str(facts.get("device") or os.path.basename(path))
        self.reason = str(facts.get("reason") or "its quarantine file cannot be read")
        since, by = facts.get("since"), facts.get("by")
        self.since = float(since) if isinstance(since, int | float) else status.st_ctime
        self.by = by if isinstance(by, int) else 0
        self.by_hand = facts.get("by_hand") is True


def quarantine_paths(locks: list[str] | tuple[str, ...]) -> list[str]:
    """Where it would be said first that the device with these lock files is in quarantine."""
    paths = []
    for lock in locks:
        folder, name = os.path.split(lock)
        paths.append(f"{folder}/quarantine/{name.removesuffix('.lock')}")
    return paths


def find_quarantine(locks: list[str] | tuple[str, ...]) -> Quarantine | None:
    """The first statement that keeps the device with these lock files out of use, if any."""
    for path in quarantine_paths(locks):
        if found := find_statements(path):
            return found[0]
    return None


def find_statements(path: str, *, lifted: bool = False) -> list[Quarantine]:
    """The statements on one lock file that count, or those that are ``lifted``, by their time.

    Links and pipes say nothing, nor do further names of files about other parts. A file that is there but cannot be understood counts: it takes a
    person to say that all is well.
    """
    statements: list[Quarantine] = []
    lifts: set[object] = set()
    part = os.path.basename(path)
    for name, rest in list_files(path):
        if rest.startswith(PROBES):
            continue
        status, data = read_plain_file(name)
        if status is None:
            continue
        facts = parse_facts(data)
        if facts.get("part", part) != part:
            continue  # a second name of what was stated of something else
        if rest.startswith(LIFTED):
            named = facts.get("lifts")
            lifts.update(map(str, named) if isinstance(named, list) else ())
        else:
            statements.append(Quarantine(name, status, facts))
    found = [one for one in statements if (one.token in lifts) == lifted]
    return sorted(found, key=lambda one: one.since)


def list_files(path: str) -> list[tuple[str, str]]:
    """``(path, what follows STEM@)`` of all files about one lock file, the oldest name first."""
    folder, stem = os.path.split(path)
    try:
        names = sorted(os.listdir(folder))
    except OSError:  # there is none, or what is there is no directory
        return []
    about = [name.partition("@") for name in names]
    return [(f"{folder}/{first}{at}{rest}", rest) for first, at, rest in about if first == stem]


def read_plain_file(path: str) -> tuple[os.stat_result | None, bytes]:
    """Status and content; no status where it is gone or no plain file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except PermissionError:
        return lstat_plain_file(path), b""
    except OSError:
        return None, b""
    try:
        status = os.fstat(fd)
        return (status, os.read(fd, MAX_BYTES)) if stat.S_ISREG(status.st_mode) else (None, b"")
    finally:
        os.close(fd)


def lstat_plain_file(path: str) -> os.stat_result | None:
    """The status of a file that may not be read, if it is a plain one."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def list_sick_parts(lock_dir: str) -> set[str]:
    """The names of all lock files, without their ending, that are in quarantine."""
    folder = f"{lock_dir}/quarantine"
    try:
        stems = {name.partition("@")[0] for name in os.listdir(folder)}
    except OSError:
        return set()
    return {stem for stem in stems if find_statements(f"{folder}/{stem}")}


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
    sick = [path for path in locks if not find_quarantine([path])]
    state_again(sick, device, reason)


def state_again(
    locks: list[str] | tuple[str, ...], device: str, reason: str, *, by_hand: bool = False
) -> None:
    """State that a device is sick whether or not others have. Raises OSError as above."""
    facts: dict[str, object] = {"device": device, "reason": reason, "since": time.time()}
    if by_hand:
        facts["by_hand"] = True
    for path in quarantine_paths(locks):
        try:
            write_facts(path, facts)
        except FileExistsError:  # another user's, or one that was lifted
            write_facts(f"{path}@{os.urandom(6).hex()}", facts)


def renew_statement(statement: Quarantine) -> None:
    """State anew what this user stated, so that no lift or probe made before counts against it."""
    folder, name = os.path.split(statement.path)
    facts: dict[str, object] = {
        "device": statement.device,
        "reason": statement.reason,
        "since": statement.since,
        "by_hand": statement.by_hand,
    }
    write_facts(f"{folder}/{name.partition('@')[0]}@{os.urandom(6).hex()}", facts)
    remove_own(statement.path, statement.uid)


def lift_quarantine(locks: list[str] | tuple[str, ...]) -> None:
    """Let a device be used again. Raises OSError where that cannot be written down."""
    for path in quarantine_paths(locks):
        kept = []
        for statement in find_statements(path):
            try:
                os.unlink(statement.path)
            except FileNotFoundError:
                pass
            except PermissionError:
                kept.append(statement.token)
        if kept:
            write_facts(f"{path}@{LIFTED}{os.urandom(6).hex()}", {"lifts": kept})
        remove_own_leftovers(path)


def remove_own_leftovers(path: str) -> None:
    """Remove what this user may of statements that were lifted, and of lifts of what is gone."""
    lifted = find_statements(path, lifted=True)
    for statement in lifted:
        remove_own(statement.path, statement.uid)
    tokens = {one.token for one in find_statements(path, lifted=True)}
    for name, rest in list_files(path):
        status, data = read_plain_file(name) if rest.startswith(LIFTED) else (None, b"")
        named = parse_facts(data).get("lifts")
        if status is not None and tokens.isdisjoint(named if isinstance(named, list) else ()):
            remove_own(name, status.st_uid)


def remove_own(path: str, uid: int) -> None:
    """Remove a file that is this user's, or anyone's where this user is root."""
    if os.geteuid() in (0, uid):
        try:
            os.unlink(path)
        except OSError:
            pass  # gone meanwhile


def write_facts(path: str, facts: dict[str, object]) -> None:
    """Make a new file for everyone to read. Raises FileExistsError if there is one."""
    import json

    folder = os.path.dirname(path)
    try:
        os.mkdir(folder, 0o700)
        os.chmod(folder, 0o1777)
    except FileExistsError:
        pass
    part = os.path.basename(path).partition("@")[0]
    data = json.dumps({**facts, "part": part, "by": os.getpid()}).encode()
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        os.fchmod(fd, 0o644)  # in two steps, since open heeds the umask
        os.write(fd, data)  # an empty file, on a full disk, still counts
    finally:
        os.close(fd)
