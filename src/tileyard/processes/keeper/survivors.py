"""What is left of a tree whose keeper was itself killed: found by the next holder, and ended.

A process shows by its environment which tree it belongs to. Where that cannot be read, because it
is another user's or was wiped, its session and its parent have to tell; such a process is never
signalled, but as long as it is there nobody can say that the tree is gone.
"""

import os

from .directory import LeaseRecord
from .holding import find_process_space
from .tree import all_pids, kill_marked, parent_of, read_process, session_of, start_of


def end_survivors(record: LeaseRecord) -> list[int]:
    """Kill what is known to be left of a lease's tree; return all pids that were still there."""
    return [*kill_marked(record.tree, record.part), *find_suspects(record)]


def find_suspects(record: LeaseRecord) -> list[int]:
    """Processes of the holder's user that may belong to the tree, with environments nobody can read.

    They are in its session, or started after it and are orphans. Of a lease in another container
    nothing can be said.
    """
    suspects: list[int] = []
    if record.process_space != find_process_space():
        return suspects
    for pid in all_pids():
        try:
            if os.stat(f"/proc/{pid}").st_uid != record.uid:
                continue
        except OSError:
            continue
        if read_process(pid, "environ") or is_over(pid) or start_of(pid) < record.start:
            continue
        if session_of(pid) == record.session or parent_of(pid) == 1:
            suspects.append(pid)
    return suspects


def is_over(pid: int) -> bool:
    """Whether a process is gone, or a zombie that somebody still has to reap."""
    state = read_process(pid, "stat").rpartition(b")")[2].split()[:1]
    return not state or state[0] in (b"Z", b"X")
