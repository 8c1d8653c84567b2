"""Holds a lease: its records, its return, and the processes that killed holders have left.
The next holder finds the rest of a killed keeper's tree by environment, and ends it. If that cannot be read,
session and parent decide; such a process is never signalled, but keeps the tree from being gone. Records can
be forged, but not their owner: one not root's concerns only its owner's processes.
"""

import os
import time

from .deciding import Choice
from .directory import (
    MAX_COMMAND,
    LeaseRecord,
    LockDirectory,
    mark_ended,
    mark_session,
    next_number,
)
from .files import escape, remove
from .tree import (
    SIGKILL,
    all_pids,
    carries,
    parent_of,
    read_process,
    session_of,
    signal_child,
    start_of,
)


class LeaseFacts:
    """The facts about its holder in a lease's records. ``tree`` is its processes' token, ``outer``
    those of leases around it, ``job`` whose turn it takes; ``process_space`` distinguishes
    containers, whose process numbers are unrelated.
    """

    def __init__(self, command: str, tree: str, outer: tuple[str, ...] = (), job: str = "") -> None:
        self.command = command
        self.job = job
        self.tree = tree
        self.outer = outer
        self.pid = os.getpid()
        self.start = start_of(self.pid)
        self.process_space = find_process_space()

    def format(self, device: str) -> list[tuple[str, str]]:
        """The lines of a record."""
        return [
            ("device", escape(device)),
            ("tree", self.tree),
            ("pid", str(self.pid)),
            ("start", str(self.start)),
            ("space", str(self.process_space)),
            ("since", f"{time.time():.3f}"),
            ("command", escape(self.command[:MAX_COMMAND])),
        ]


def find_process_space() -> int:
    """The number of this process's PID namespace, 0 if the kernel does not report it."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


class Holding:
    """A lease of devices under one number, which ends with its process; decided at ``taken_ns``.
    ``unclean``: records of earlier, killed holders, whose processes must end first.
    """

    def __init__(
        self,
        choices: tuple[Choice, ...],
        number: int,
        fds: list[int],
        earlier: dict[str, list[LeaseRecord]],
    ) -> None:
        self.choices = choices
        self.number = number
        self.taken_ns = time.time_ns()
        self.unclean = find_unclean(earlier)
        self.earlier = [record for records in earlier.values() for record in records]
        self._fds = fds

    def note_session(self, session: int) -> None:
        """Record the session of the leased tree, for later holders."""
        for fd in self._fds:
            mark_session(fd, session)

    def release(self, *, is_clean: bool = True) -> None:
        """Give the devices back; ``is_clean``: nothing is left of this tree or ``unclean``. Repeatable."""
        for fd in self._fds:
            if is_clean:
                try:
                    mark_ended(fd)
                except OSError:
                    pass  # the next holder then searches for processes that do not exist
            os.close(fd)
        self._fds.clear()


def take_parts(
    directory: LockDirectory,
    devices: tuple[Choice, ...],
    records: dict[str, list[LeaseRecord]],
    numbers: dict[str, list[int]],
    facts: LeaseFacts,
) -> Holding | None:
    """The lease of all these devices; None if another process decided at the same time. ``records``
    and ``numbers`` are of earlier leases, by part, highest first. Takes nothing if it raises
    RefusedError or OSError.
    """
    number = next_number()
    parts = {part: device.device for device in devices for part in device.parts}
    fds: list[int] = []
    is_taken = False
    try:
        for part, device in parts.items():
            fds.append(directory.add_record(part, number, facts.format(device)))
        is_taken = not directory.has_rivals(parts, number, numbers)
    except FileExistsError:
        pass
    finally:
        if not is_taken:
            for part, fd in zip(parts, fds, strict=False):
                remove(directory.leases, f"{part}.{number}")
                os.close(fd)
    if not is_taken:
        return None
    return Holding(devices, number, fds, {part: records[part] for part in parts})


def find_unclean(earlier: dict[str, list[LeaseRecord]]) -> list[LeaseRecord]:
    """The leases of each part without a clean end, unless a later one, of the same user, root or
    this user, says that nothing is left: a stranger could hide processes.
    """
    found = []
    for records in earlier.values():
        believed: set[int] = set()
        for record in sorted(records, key=lambda one: one.number, reverse=True):
            if record.is_clean:
                believed.add(record.uid)
            elif record.is_ours and believed.isdisjoint((record.uid, 0, os.geteuid())):
                found.append(record)
    return found


def forget_earlier(directory: LockDirectory, holding: Holding) -> None:
    """Remove the records of earlier leases of the same devices: this user's, or all if this one is root."""
    for record in holding.earlier:
        if os.geteuid() in (0, record.uid):
            remove(directory.leases, f"{record.part}.{record.number}")


# ---- processes of killed holders --------------------------------------------------------------


def end_survivors(records: list[LeaseRecord]) -> list[int]:
    """Kill the known processes of these leases' trees; return all pids that still existed."""
    if not records:
        return []
    found = []
    here = find_process_space()
    for pid in all_pids():
        variables = read_process(pid, "environ")
        if not variables:
            if any(r.process_space == here and is_suspect(pid, r) for r in records):
                found.append(pid)
        elif pid != os.getpid() and is_of(pid, variables, records):
            parent = parent_of(pid)
            if is_of(pid, read_process(pid, "environ"), records):  # it is still the same process
                signal_child(pid, parent, SIGKILL)
            found.append(pid)
    return found


def is_of(pid: int, variables: bytes, records: list[LeaseRecord]) -> bool:
    """Whether a process with this environment belongs to the tree of one of these leases."""
    ours = [record for record in records if carries(variables, record.tree, record.part)]
    return bool(ours) and not {record.uid for record in ours}.isdisjoint((0, uid_of(pid)))


def uid_of(pid: int) -> int:
    """The user of a process, -1 if there is none."""
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return -1


def is_suspect(pid: int, record: LeaseRecord) -> bool:
    """Whether a process with an unreadable environment may be of a lease's tree: of the holder's
    user, and in its session or an orphan started after it.
    """
    if uid_of(pid) != record.uid or is_over(pid) or start_of(pid) < record.start:
        return False
    # Threads of the kernel are in session 0, as is a lease whose holder died before it had noted one.
    return parent_of(pid) == 1 or 0 < record.session == session_of(pid)


def is_over(pid: int) -> bool:
    """Whether a process is gone, or a zombie that is still to be reaped."""
    state = read_process(pid, "stat").rpartition(b")")[2].split()[:1]
    return not state or state[0] in (b"Z", b"X")
