"""Waiting for the end of processes that are not one's own children."""

import os
import select


def has_ended(pid: int, within_s: float = 0.0) -> bool:
    """Wait until a process has ended; it may be a zombie still, if its parent takes its time."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    ended = bool(poll.poll(within_s * 1000))
    os.close(handle)
    return ended
