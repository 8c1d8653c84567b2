"""A lease for a holder that is a single process and has nothing to do but wait for it."""

import select
import time

from .holding import Holding
from .report import RefusedError
from .ticket import Ticket

CONFIRM_S = 5.0
"""How long what killed holders have left may take to die."""


def wait_for(ticket: Ticket, limit_s: float | None = None) -> Holding | None:
    """Block until the lease is there; None if it did not come within ``limit_s``. Closes the ticket.

    Raises RefusedError where it cannot be, among others if what earlier holders have left cannot be
    ended.
    """
    deadline = None if limit_s is None else time.monotonic() + limit_s
    waiting = select.poll()
    waiting.register(ticket.bell.fd, select.POLLIN)
    try:
        while (holding := ticket.try_take()) is None:
            rest_s = ticket.rescan_s
            if deadline is not None:
                rest_s = min(rest_s, deadline - time.monotonic())
                if rest_s <= 0:
                    return None
            waiting.poll(rest_s * 1000)
        give_up_at = time.monotonic() + CONFIRM_S
        while pids := ticket.end_survivors(holding):
            if time.monotonic() > give_up_at:
                holding.release(is_clean=False)
                raise RefusedError("orphans", 0, pids)
            waiting.poll(1)
        return holding
    finally:
        ticket.close()
