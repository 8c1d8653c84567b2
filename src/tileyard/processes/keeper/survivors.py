"""What is left of a tree whose keeper was itself killed: found by the next holder, and ended.

A process shows by its environment which tree it belongs to. Where that cannot be read, because it
is another user's or was wiped, its session and its parent have to tell; such a process is never
signalled, but as long as it is there nobody can say that the tree is gone.

A record can be forged, but not its owner: one that is not root's speaks of its owner's processes only.
"""

import os

from .directory import LeaseRecord
from .holding import find_process_space
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


def end_survivors(records: list[LeaseRecord]) -> list[int]:
    """Kill what is known to be left of these leases' trees; return all pids that were still there."""
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
            if is_of(pid, read_process(pid, "environ"), records):  # it still is who it was
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
    """Whether a process, whose environment nobody can read, may belong to a lease's tree.

    It is the holder's user's and is in its session, or an orphan that started after it.
    """
    if uid_of(pid) != record.uid or is_over(pid) or start_of(pid) < record.start:
        return False
    # Threads of the kernel are in session 0, as is a lease whose holder died before it had noted one.
    return parent_of(pid) == 1 or 0 < record.session == session_of(pid)


def is_over(pid: int) -> bool:
    """Whether a process is gone, or a zombie that somebody still has to reap."""
    state = read_process(pid, "stat").rpartition(b")")[2].split()[:1]
    return not state or state[0] in (b"Z", b"X")
