"""A request for devices from its first look to the lease: decided under the directory's lock.

A ticket waits in the kernel, on what is right ahead of it and on nothing else: threads of its own
block on those files and ring its bell. So its owner can go on with whatever else it waits for.
"""

import _thread
import fcntl
import os
import select
import time

from .deciding import Decision, Wish, decide, order_key, parts_of, pick
from .directory import LeaseRecord, LockDirectory, Request
from .files import open_seen, wait_unlocked
from .holding import Holding, LeaseFacts, forget_earlier, take_parts
from .quarantine import list_sick_parts
from .report import RefusedError
from .survivors import end_survivors
from .tree import ancestors_of, start_of

RESCAN_S = 1.0
"""How often a ticket looks again without being rung; more rarely the longer the queue is."""
CONFIRM_S = 5.0
"""How long what killed holders have left may take to die."""
DECIDE_LIMIT_S = 30.0
"""How long others may keep a ticket from deciding before that is an error."""


class Bell:
    """A pipe that threads ring until it is closed."""

    def __init__(self) -> None:
        self.fd, self._ring_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._guard = _thread.allocate_lock()
        self._is_open = True

    def ring(self) -> None:
        """Wake who waits for it; harmless from any thread, at any time."""
        with self._guard:
            if self._is_open:
                try:
                    os.write(self._ring_fd, b"!")
                except BlockingIOError:
                    pass  # it rings already

    def silence(self) -> None:
        """Take note of all that has rung."""
        try:
            while os.read(self.fd, 4096):
                pass
        except BlockingIOError:
            pass

    def close(self) -> None:
        """No more ringing."""
        with self._guard:
            if self._is_open:
                self._is_open = False
                os.close(self.fd)
                os.close(self._ring_fd)


class Ticket:
    """Asks for devices. Call ``try_take`` at first, whenever ``bell`` rings, and after ``rescan_s``.

    ``position`` is how many requests for the same devices come before it, plus one; ``holder`` is
    the record of a lease that is in the way, if one is.
    """

    def __init__(self, path: str, wish: Wish, facts: LeaseFacts, priority: int = 0) -> None:
        """Raises RefusedError or OSError where the lock directory cannot be used."""
        self.directory = LockDirectory(path)
        self.bell = Bell()
        self.position = 1
        self.holder: LeaseRecord | None = None
        self._wish = wish
        self._facts = facts
        self._priority = priority
        self._name = ""
        self._request = -1
        self._watched: set[str] = set()
        self._guard = _thread.allocate_lock()
        self._lock_state = "free"  # or "wanted" by a thread, or "held" by it for us
        self._wanted_since = 0.0
        self._is_closed = False
        self._is_first_look = True

    @property
    def rescan_s(self) -> float:
        """How long to wait for the bell at most."""
        return RESCAN_S * min(10.0, 0.75 + 0.25 * self.position)

    def try_take(self) -> Holding | None:
        """The lease, if it is this one's turn and all is free.

        The place in the queue is kept until ``close``, so that a holding that turns out to be of no
        use can be given back and asked for again. Raises RefusedError where it will never be.
        """
        self.bell.silence()
        if not self._lock():
            return None
        try:
            return self._decide()
        finally:
            self.directory.unlock()

    def end_survivors(self, holding: Holding) -> list[int]:
        """Kill what earlier holders of its devices have left, and return what was still there.

        Once that is nothing, the devices can be used.
        """
        pids = {pid for record in holding.unclean for pid in end_survivors(record)}
        if not pids:
            forget_earlier(self.directory, holding)
        return sorted(pids)

    def close(self) -> None:
        """Leave the queue; what was taken stays taken. Harmless when repeated."""
        self.bell.close()
        with self._guard:
            if self._is_closed:
                return
            self._is_closed = True
            if self._request >= 0:
                self.directory.remove_request(self._name)
                os.close(self._request)  # wakes who is next
            if self._lock_state != "wanted":  # else that thread does it
                self.directory.close()

    # ---- the lock on the directory ------------------------------------------------------------

    def _lock(self) -> bool:
        with self._guard:
            if self._lock_state == "held" or (
                self._lock_state == "free" and self.directory.try_lock()
            ):
                self._lock_state = "free"
                return True
            if self._lock_state == "free":
                self._lock_state = "wanted"
                self._wanted_since = time.monotonic()
                _thread.start_new_thread(self._wait_for_lock, ())
        if time.monotonic() - self._wanted_since > DECIDE_LIMIT_S:
            raise RefusedError("busy", 0, text=self.directory.path)
        return False

    def _wait_for_lock(self) -> None:
        try:
            fcntl.flock(self.directory.root, fcntl.LOCK_EX)
        except OSError:
            pass  # then it is not locked, and numbers alone keep leases apart
        with self._guard:
            self._lock_state = "held"
            if self._is_closed:
                self.directory.close()
        self.bell.ring()

    # ---- deciding -----------------------------------------------------------------------------

    def _decide(self) -> Holding | None:
        directory = self.directory
        if self._is_first_look:
            directory.remove_leftovers()
            self._is_first_look = False
        numbers = directory.list_numbers()
        sick = list_sick_parts(directory.path)
        wanted = {part for choice in self._wish.choices for part in choice.parts}
        records = {p: directory.read_records(p, numbers.get(p, [])) for p in sorted(wanted)}
        live = {r.part: r for several in records.values() for r in several if r.is_live}
        self._leave_out_own(live, sick)
        ahead = self._find_ahead()
        decision = decide(self._wish, [r.wish for r in ahead], set(live), sick)
        if decision.devices:
            holding = take_parts(directory, decision.devices, records, numbers, self._facts)
            if holding is None:
                self.bell.ring()
            return holding
        if not decision.parts and not decision.ahead:
            raise RefusedError("sick", 0, text=" ".join(sorted(wanted & sick)))
        self._wait(decision, ahead, live)
        return None

    def _leave_out_own(self, live: dict[str, LeaseRecord], sick: set[str]) -> None:
        """Refuse to wait for a lease under which this request itself is made."""
        if not live:
            return
        above = ancestors_of(os.getpid())
        own = {
            part
            for part, record in live.items()
            if record.tree in self._facts.outer
            or (
                record.pid in above
                and record.process_space == self._facts.process_space
                and record.start == start_of(record.pid)
            )
        }
        if own:
            choices = tuple(c for c in self._wish.choices if own.isdisjoint(c.parts))
            self._wish = Wish(choices, self._wish.count)
            if not pick(self._wish, sick):
                names = sorted({live[part].device for part in own})
                raise RefusedError("nested", 0, text=" ".join(names))

    def _find_ahead(self) -> list[Request]:
        """The requests that come before this one, whether it is in the queue already or not."""
        requests = self.directory.read_requests()
        if self._request < 0:
            mine = (order_key(self._priority, time.time_ns()), "")
        else:
            found = [request.order for request in requests if request.name == self._name]
            if not found:  # somebody who may has removed it: ask again, at the end
                os.close(self._request)
                self._request = -1
                return self._find_ahead()
            mine = found[0]
        return [request for request in requests if request.order < mine]

    # ---- waiting ------------------------------------------------------------------------------

    def _wait(self, decision: Decision, ahead: list[Request], live: dict[str, LeaseRecord]) -> None:
        directory = self.directory
        if self._request < 0:
            self._name = f"{time.time_ns():020d}-{os.getpid()}-{os.urandom(4).hex()}"
            command = self._facts.command
            self._request = directory.add_request(self._name, self._wish, self._priority, command)
        wanted = {part for choice in self._wish.choices for part in choice.parts}
        self.position = 1 + sum(not wanted.isdisjoint(parts_of(r.wish, set())) for r in ahead)
        self.holder = next((live[part] for part in sorted(wanted) if part in live), None)
        for part in decision.parts:
            self._watch(directory.leases, f"{part}.{live[part].number}")
        for index in decision.ahead:
            self._watch(directory.requests, ahead[index].name)

    def _watch(self, folder: int, name: str) -> None:
        """Have the bell rung when the owner of this file lets go of it."""
        with self._guard:
            if name in self._watched:
                return
            self._watched.add(name)
        seen = open_seen(folder, name)
        try:
            _thread.start_new_thread(self._wait_for_end, (name, -1 if seen is None else seen.fd))
        except RuntimeError:  # too many threads: the next look will tell
            if seen is not None:
                os.close(seen.fd)

    def _wait_for_end(self, name: str, fd: int) -> None:
        if fd >= 0:
            try:
                wait_unlocked(fd)
            except OSError:
                pass
            os.close(fd)
        with self._guard:
            self._watched.discard(name)
        self.bell.ring()


def wait_for(ticket: Ticket, limit_s: float | None = None) -> Holding | None:
    """Block until the lease is there; None if it did not come within ``limit_s``. Closes the ticket.

    For holders that are a single process. Raises RefusedError where it cannot be, among others if
    what earlier holders have left cannot be ended.
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
