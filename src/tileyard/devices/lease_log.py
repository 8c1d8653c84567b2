"""Reads the host's log of leases and root's limits on them, which keepers write and obey."""

import contextlib
import enum
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path

from tileyard.base.model import Record
from tileyard.devices.base import class_of, name_user
from tileyard.devices.locks import install_command
from tileyard.devices.occupancy import open_directory
from tileyard.processes.keeper.directory import MAX_DIGITS, LockDirectory
from tileyard.processes.keeper.files import open_seen, unescape
from tileyard.processes.keeper.log import BEGIN, DAY_S, DISK_BYTES, END, FILES, LAST, open_log
from tileyard.processes.keeper.report import RefusedError
from tileyard.processes.keeper.rules import KEEP_DAYS, Rules, read_rules

LOG_VERSION = 1
MAX_TIME = 10**10
"""Most seconds since the epoch, or of a lease, that count as such."""
Key = tuple[int, int]
"""A lease's user and number."""


class LeaseEnd(enum.StrEnum):
    """How a lease ended. ``told``: by an order of its starter, such as ``--run-limit`` or a run's end.
    ``unknown``: no end was written, because the keeper was killed, the host stopped or the disk was full.
    """

    HELD = "held"
    CODE = "code"
    SIGNAL = "signal"
    TOLD = "told"
    LEASE_LIMIT = "lease_limit"
    NOT_STARTED = "not_started"
    UNKNOWN = "unknown"


class LoggedLease(Record):
    """One lease. ``user`` comes from the kernel, the rest from that user's keeper. ``since`` is in seconds
    since the epoch, ``held_s`` None if unknown, ``number`` the lease's, ``status`` its code or signal.
    """

    user: str
    devices: tuple[str, ...]
    number: int
    pid: int
    command: str
    since: float
    held_s: float | None
    end: LeaseEnd
    status: int | None = None


class LeaseLog(Record):
    """Leases in the order of their beginning: those held ``at`` this time, in seconds since the epoch, and
    those that ended in the ``days`` before, or began then and have no known end. ``note``: why no other is.
    """

    at: float
    days: int
    keep_days: int
    leases: tuple[LoggedLease, ...]
    note: str = ""
    version: int = LOG_VERSION


class LeaseRules(Record):
    """Root's limits: the longest lease by class of devices, "" for all others, 0 for any length; the
    highest priority of users other than root, None for any.
    """

    lease_s: dict[str, float] = {}
    priority: int | None = None


def read_lease_rules(lock_dir: Path) -> LeaseRules:
    """Root's limits on this host. Raises UsageError if the lock directory is invalid."""
    if not lock_dir.exists():
        return LeaseRules()
    with open_directory(lock_dir) as directory:
        rules = read_rules(directory.root)
    return LeaseRules(lease_s=rules.lease_s, priority=rules.priority)


def read_log(lock_dir: Path, days: int, name: str = "") -> LeaseLog:
    """The log, of a device or class if named. Raises UsageError if the lock directory is invalid."""
    at = time.time()
    if not lock_dir.exists():
        return LeaseLog(at=at, days=days, keep_days=KEEP_DAYS, leases=())
    with open_directory(lock_dir) as directory:
        rules = read_rules(directory.root)
        with _open_log(directory, rules) as (folder, note):
            logged = _read_leases(folder, at - days * DAY_S)
            held = _list_held(directory, at)
            if any(one.end is LeaseEnd.UNKNOWN and key not in held for key, one in logged.items()):
                logged = _read_leases(folder, at - days * DAY_S)  # it has ended meanwhile
    ended = {key: one for key, one in logged.items() if one.end is not LeaseEnd.UNKNOWN}
    leases = [
        lease
        for lease in (logged | held | ended).values()
        if (lease.end is LeaseEnd.HELD or lease.since + (lease.held_s or 0.0) > at - days * DAY_S)
        and (not name or any(name in (one, class_of(one)) for one in lease.devices))
    ]
    leases.sort(key=lambda lease: (lease.since, lease.number))
    return LeaseLog(at=at, days=days, keep_days=rules.keep_days, leases=tuple(leases), note=note)


@contextlib.contextmanager
def _open_log(directory: LockDirectory, rules: Rules) -> Iterator[tuple[int, str]]:
    """The folder of the log, or -1 and why no lease is logged on this host."""
    try:
        folder = open_log(directory.root, directory.path, rules)
    except (OSError, RefusedError) as error:
        why = error.text if isinstance(error, RefusedError) else f"{rules.log}: {error.strerror}"
        command = install_command(Path(directory.path))
        note = (
            f"no lease is logged, because the folder for it cannot be used ({why}): run {command}"
        )
        yield -1, note
    else:
        try:
            yield folder, "" if rules.keep_days else "root has set that no lease is logged"
        finally:
            os.close(folder)


def _read_leases(folder: int, oldest: float) -> dict[Key, LoggedLease]:
    """The leases in the log. One without an end is held, or has an end that is not known."""
    found: dict[Key, LoggedLease] = {}
    for uid, line in _read_lines(folder, oldest) if folder >= 0 else ():
        lease = _read_line(line, uid)
        if lease is not None:
            found[uid, lease.number] = lease
    return found


def _list_held(directory: LockDirectory, at: float) -> dict[Key, LoggedLease]:
    """The leases that are held now, as their records describe them."""
    found: dict[Key, LoggedLease] = {}
    for part, numbers in directory.list_numbers().items():
        for record in directory.read_records(part, numbers):
            if record.is_live:
                key = record.uid, record.number
                known = found[key].devices if key in found else ()
                found[key] = LoggedLease(
                    user=name_user(record.uid),
                    devices=tuple(dict.fromkeys((*known, record.device))),
                    number=record.number,
                    pid=record.pid,
                    command=record.command,
                    since=record.since,
                    held_s=max(0.0, at - record.since),
                    end=LeaseEnd.HELD,
                )
    return found


def _read_lines(folder: int, oldest: float) -> Iterator[tuple[int, bytes]]:
    """Each line with its user, in the order in which they were written, of files changed since ``oldest``."""
    left_bytes: dict[int, int] = {}  # a user who has more has not made it by leases
    for name in sorted(os.listdir(folder)):
        if (seen := open_seen(folder, name)) is None:
            continue
        try:
            is_recent = os.fstat(seen.fd).st_mtime >= oldest
            if is_recent and name.partition(".")[0] == str(seen.uid):
                left = left_bytes.setdefault(seen.uid, DISK_BYTES)
                data = os.pread(seen.fd, min(left, DISK_BYTES // FILES), 0)
                left_bytes[seen.uid] -= len(data)
                first, *lines = data.split(b"\n")
                if first == os.fsencode(name):
                    yield from ((seen.uid, line) for line in lines)
        finally:
            os.close(seen.fd)


def _read_line(line: bytes, uid: int) -> LoggedLease | None:
    """A line's lease, without an end if it was written at the beginning; None if it is not whole."""
    kind, *words = line.decode("ascii", "replace").split(" ")
    if kind not in (BEGIN, END) or words[-1:] != [LAST]:
        return None
    try:
        pairs = [
            (key, unescape(value)) for key, _, value in (word.partition("=") for word in words[:-1])
        ]
        facts = dict(pairs)
        how, _, status = facts.get("how", LeaseEnd.UNKNOWN).partition(" ")
        return LoggedLease(
            user=name_user(uid),
            devices=tuple(value for key, value in pairs if key == "device"),
            number=_parse_number(facts["number"]),
            pid=_parse_number(facts["pid"]),
            command=facts["command"],
            since=_parse_time(facts["since"]),
            held_s=_parse_time(facts["held_s"]) if kind == END else None,
            end=LeaseEnd(how),
            status=_parse_number(status) if status else None,
        )
    except (ValueError, KeyError):
        return None


def _parse_number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS):
        raise ValueError(text)
    return int(text)


def _parse_time(text: str) -> float:
    seconds = float(text)
    if not (math.isfinite(seconds) and 0 <= seconds <= MAX_TIME):
        raise ValueError(text)
    return seconds
