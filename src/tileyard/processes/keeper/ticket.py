"""Follows a request for devices from its first look to the lease: decided under the directory's lock. It
waits in the kernel, on what is directly ahead: threads block on those files and ring its bell.
"""

import _thread
import fcntl
import os
import time
from itertools import takewhile

from .deciding import Decision, Wish, decide, find_due, parts_of, pick
from .directory import MAX_PRIORITY, LeaseRecord, LockDirectory, Request
from .files import is_replaced, open_seen, remove, wait_unlocked
from .holding import Holding, LeaseFacts, end_survivors, forget_earlier, take_parts, uid_of
from .report import RefusedError
from .tree import ancestors_of, start_of
from .turns import Asked, digest, name_pool, name_request

TYPE_CHECKING = False  # typing would cost 5 ms
if TYPE_CHECKING:
    from collections.abc import Iterator

RESCAN_S = 1.0
"""Seconds after which a ticket looks again without a ring; more for a longer queue."""
LOCK_ATTEMPTS, LOCK_PAUSE_S = 15, 0.0001
PATIENCE_S = 5.0
"""Seconds for which a request that could be granted may block others without taking its devices."""
SOON_S = 0.02
"""The same for one that is near, while one ahead could take its devices: that may have just lost its turn."""
NEAR = 2
"""Jobs that are woken by the end of a lease: the first one may have lost its turn to the second meanwhile."""
DECIDE_LIMIT_S = 5.0
"""Seconds for which others may prevent a ticket from deciding; then it decides without the lock."""


class Bell:
    """A descriptor that threads make readable until it is closed."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._guard = _thread.allocate_lock()
        self._is_open = True
        self._watched: set[str] = set()

    def ring(self) -> None:
        """Wake the process that waits for it; harmless from any thread, at any time."""
        with self._guard:
            if self._is_open:
                os.eventfd_write(self.fd, 1)

    def silence(self) -> None:
        """Clear all rings so far."""
        try:
            os.eventfd_read(self.fd)
        except BlockingIOError:
            pass

    def close(self) -> None:
        """Stop ringing."""
        with self._guard:
            if self._is_open:
                self._is_open = False
                os.close(self.fd)

    def ring_after(self, folder: int, name: str) -> None:
        """Ring when the owner of this file releases it, or at once if that has happened."""
        with self._guard:
            if name in self._watched:
                return
            self._watched.add(name)
        seen = open_seen(folder, name)
        fd = -1 if seen is None else seen.fd
        try:
            _thread.start_new_thread(self._wait, (name, fd))
        except RuntimeError:  # too many threads: the next look will show it
            if fd >= 0:
                os.close(fd)

    def _wait(self, name: str, fd: int) -> None:
        if fd >= 0:
            try:
                wait_unlocked(fd)
            except OSError:
                pass
            os.close(fd)
        with self._guard:
            self._watched.discard(name)
        self.ring()


class Look:
    """One look at the directory: numbers and records by part, who is ahead, and the decision."""

    def __init__(
        self,
        decision: Decision,
        numbers: dict[str, list[int]],
        records: dict[str, list[LeaseRecord]],
        live: dict[str, LeaseRecord],
        ahead: list[str],
    ) -> None:
        self.decision = decision
        self.numbers = numbers
        self.records = records
        self.live = live
        self.ahead = ahead


class Ticket:
    """Asks for devices. Call ``try_take`` at first, whenever ``bell`` rings, and after
    ``rescan_s``. ``ahead`` counts the requests before it, ``holder`` is a lease in the way,
    ``asked_ns`` decides its turn, 0 until it has to wait.
    """

    def __init__(self, path: str, wish: Wish, facts: LeaseFacts, priority: int = 0) -> None:
        """Raises RefusedError or OSError if the lock directory cannot be used."""
        self.directory = LockDirectory(path)
        self.bell = Bell()
        self.ahead = 0
        self.holder: LeaseRecord | None = None
        self.asked_ns = 0
        self._wish = wish
        self._facts = facts
        self._priority = priority
        self._job, self._pool = digest(facts.job), name_pool(wish)
        self._name = name_request(priority, self._job, self._pool)
        self._kin: list[Asked] = []
        """Requests ahead that ask for the same devices."""
        self._elder = ""
        self._is_soon = self._is_due_ahead = False
        self._request = -1
        self._guard = _thread.allocate_lock()
        self._lock_state = "free"  # or "wanted" by a thread, or "held" by it for us
        self._wanted_since = 0.0
        self._is_closed = False
        self._looked_at = time.monotonic()
        self._above: list[int] = []
        self._due_since: dict[str, float] = {}

    @property
    def rescan_s(self) -> float:
        """Most seconds to wait for the bell."""
        if self._is_soon:
            return SOON_S
        return RESCAN_S * min(10.0, 1.0 + 0.25 * self.ahead)

    def find_position(self) -> int:
        """Its place among the requests for the same devices, 1 for the next in turn; None is final."""
        wanted = {part for choice in self._wish.choices for part in choice.parts}
        names = [one.name for one in self.directory.list_requests()]
        if self._name in names:
            names = names[: names.index(self._name)]
        requests = (self.directory.read_request(name) for name in names)
        return 1 + sum(
            r is not None and not wanted.isdisjoint(parts_of(r.wish, set())) for r in requests
        )

    def try_take(self) -> Holding | None:
        """The lease, if it is this ticket's turn and all is free: it leaves the queue. Raises
        RefusedError if it can never be served, OSError if the lease cannot be recorded.
        """
        self.bell.silence()
        is_free = self._lock_state == "free"  # and no thread waits for it
        is_locked = is_free and self._request < 0 and self.directory.try_lock()
        if is_free and not is_locked and (self._request >= 0 or self.directory.list_requests()):
            look = self._look()  # usually it is not our turn, and nobody has to be kept out
            if not look.decision.devices:
                self._wait_for(look)
                return None
        if not is_locked and not self._lock():
            return None
        try:
            if is_replaced(self.directory.root, self.directory.path):
                raise RefusedError("replaced", 0, text=self.directory.path)
            look = self._look()
            holding = self._take(look) if look.decision.devices else None
        finally:
            self.directory.unlock()
        if holding is None:
            self._wait_for(look)
        else:
            self._leave_queue()
        return holding

    def end_survivors(self, holding: Holding) -> list[int]:
        """Kill what earlier holders left; return those that still existed. None: devices can be used."""
        pids = end_survivors(holding.unclean)
        if not pids:
            forget_earlier(self.directory, holding)
            self.directory.remove_leftovers()
        return pids

    def close(self) -> None:
        """Leave the queue; what was taken stays taken. Harmless when repeated."""
        self.bell.close()
        with self._guard:
            if self._is_closed:
                return
            self._is_closed = True
            self._leave_queue()
            if self._lock_state != "wanted":  # else that thread does it
                self.directory.close()

    def _leave_queue(self) -> None:
        if self._request >= 0:
            remove(self.directory.requests, self._name)
            os.close(self._request)  # wakes the next in turn
            self._request = -1

    # ---- the lock on the directory ------------------------------------------------------------

    def _lock(self) -> bool:
        with self._guard:
            if self._lock_state == "held" or (self._lock_state == "free" and self._try_lock()):
                self._lock_state = "free"
                return True
            if self._lock_state == "free":
                self._lock_state = "wanted"
                self._wanted_since = time.monotonic()
                _thread.start_new_thread(self._wait_for_lock, ())
        return time.monotonic() - self._wanted_since > DECIDE_LIMIT_S

    def _try_lock(self) -> bool:
        """Whether the lock was free at once, or nearly: others hold it for less than a millisecond."""
        for _ in range(LOCK_ATTEMPTS):
            if self.directory.try_lock():
                return True
            time.sleep(LOCK_PAUSE_S)
        return self.directory.try_lock()

    def _wait_for_lock(self) -> None:
        try:
            fcntl.flock(self.directory.root, fcntl.LOCK_EX)
        except OSError:
            pass  # then it is not locked, and the look after taking keeps leases apart
        with self._guard:
            self._lock_state = "held"
            if self._is_closed:
                self.directory.close()
        self.bell.ring()

    # ---- deciding -----------------------------------------------------------------------------

    def _look(self) -> Look:
        """The present state and decision. Raises RefusedError if waiting is of no use."""
        directory = self.directory
        numbers = directory.list_numbers()
        sick = directory.quarantines.list_parts()
        wanted = {part for choice in self._wish.choices for part in choice.parts}
        records = {p: directory.read_records(p, numbers.get(p, [])) for p in sorted(wanted)}
        live = {r.part: r for several in records.values() for r in several if r.is_live}
        if live:
            self._leave_out_own(live, sick)
        queue = self._list_ahead()
        names = [one.name for one in queue]
        late = self._find_late(names, set(live), sick)
        found: list[Request] = []
        decision = decide(self._wish, self._read_ahead(names, late, found), set(live), sick)
        if not (decision.devices or decision.parts or decision.ahead):
            raise RefusedError("sick", 0, text=" ".join(sorted(wanted & sick)))
        # Of a request for other devices, too, it is not known whether those are free.
        inside = (one for one in found if wanted.issuperset(parts_of(one.wish, set())))
        self._is_due_ahead = any(pick(one.wish, set(live) | sick) for one in inside)
        self.ahead = len(names)
        self.holder = next((live[part] for part in sorted(live)), None)
        self._kin = [one for one in queue if one.pool == self._pool]
        return Look(decision, numbers, records, live, [request.name for request in found])

    def _take(self, look: Look) -> Holding | None:
        holding = take_parts(
            self.directory, look.decision.devices, look.records, look.numbers, self._facts
        )
        if holding is None:
            self.bell.ring()  # another process decides in spite of the lock: look again
        elif self.directory.asked:  # a turn that nobody waits for costs nothing
            self.directory.note_turn(self._job, self._pool)
        return holding

    def _wait_for(self, look: Look) -> None:
        """Ring at the next change that may make this request the next in turn."""
        if self._request < 0:
            self._request = self.directory.add_request(self._name, self._wish, self._facts.command)
            self.asked_ns = os.fstat(self._request).st_ctime_ns
        self._is_soon = False
        if self._elder:  # nothing can make this one the next in turn before that one
            self.bell.ring_after(self.directory.requests, self._elder)
            return
        as_urgent = [one for one in self._kin if one.priority == self._priority]
        is_near = len(as_urgent) < NEAR
        self._is_soon = is_near and self._is_due_ahead
        for part in look.live if is_near else look.decision.parts:
            self.bell.ring_after(self.directory.leases, f"{part}.{look.live[part].number}")
        for index in look.decision.ahead:
            self.bell.ring_after(self.directory.requests, look.ahead[index])

    def _find_elder(self, queue: list[Asked]) -> str:
        """The name of the request before this one in its job, if there is one and its owner lives."""
        mine = (os.geteuid(), self._job, self._pool, self._priority)
        names = (
            one.name
            for one in reversed(queue)
            if (one.uid, one.job, one.pool, one.priority) == mine
        )
        return next(filter(self.directory.read_request, names), "")

    def _leave_out_own(self, live: dict[str, LeaseRecord], sick: set[str]) -> None:
        """Refuse to wait for a lease under which this request is made; strangers' claims do not count."""
        if not self._above:
            self._above = ancestors_of(os.getpid())
        own = {
            part
            for part, record in live.items()
            if (record.tree in self._facts.outer and record.uid in (0, os.geteuid()))
            or (
                record.pid in self._above
                and record.process_space == self._facts.process_space
                and record.start == start_of(record.pid)
                and record.uid == uid_of(record.pid)
            )
        }
        if own:
            choices = tuple(c for c in self._wish.choices if own.isdisjoint(c.parts))
            self._wish = Wish(choices, self._wish.count)
            if not pick(self._wish, sick):
                names = sorted({live[part].device for part in own})
                raise RefusedError("nested", 0, text=" ".join(names))

    def _list_ahead(self) -> list[Asked]:
        new = None
        if self._request >= 0 and not self.directory.has_request(self._name):
            os.close(self._request)  # a user who may do so has removed it: ask again, at the end
            self._request = -1
            self._name = name_request(self._priority, self._job, self._pool)
        if self._request < 0:
            new = Asked(self._name, os.geteuid(), time.time_ns(), MAX_PRIORITY)
        queue = self._list_before(new)
        # the first of a job must know the living from the dead: nobody would tell it that it is next
        self._elder = self._find_elder(queue)
        if not self._elder:
            living = [one for one in queue if self.directory.read_request(one.name) is not None]
            queue = queue if len(living) == len(queue) else self._list_before(new)
        return queue

    def _list_before(self, new: Asked | None) -> list[Asked]:
        queue = self.directory.list_requests(new)
        return list(takewhile(lambda one: one.name != self._name, queue))

    def _read_ahead(
        self, names: list[str], late: set[str], found: list[Request]
    ) -> "Iterator[Wish]":
        """The wishes before this one, the nearest first; ``found`` collects their owners."""
        for name in reversed(names):
            request = None if name in late else self.directory.read_request(name)
            if request is not None:
                found.append(request)
                yield request.wish

    def _find_late(self, names: list[str], busy: set[str], sick: set[str]) -> set[str]:
        """Requests ahead whose owners, stopped, could have been served long ago: they are passed over."""
        now = time.monotonic()
        if now - self._looked_at < RESCAN_S or not names or not pick(self._wish, busy | sick):
            return set()
        self._looked_at = now
        requests = [r for name in names if (r := self.directory.read_request(name)) is not None]
        due = [requests[i].name for i in find_due([r.wish for r in requests], busy, sick)]
        self._due_since = {name: self._due_since.get(name, now) for name in due}
        return {name for name, since in self._due_since.items() if now - since > PATIENCE_S}
