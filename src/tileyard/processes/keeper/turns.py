"""Decides whose turn it is: a pure function of the requests that wait, and of the turns that were
taken. Within a priority, turns go round users, and jobs of a user: longest without comes first;
within a job, the oldest. ``order_key`` compares those next at each priority.
"""

import os
import time
from binascii import crc32

from .deciding import Wish, order_key

TYPE_CHECKING = False  # typing would cost 5 ms
if TYPE_CHECKING:
    from collections.abc import Callable

LAPSE_NS = 60 * 10**9
"""Nanoseconds of waiting after which turns on other devices no longer count against a request."""


def name_request(priority: int, job: str = "", pool: str = "") -> str:
    """A new request's name: its priority, the time, a part of its own, and whose turn it waits for."""
    unique = f"{time.time_ns():020d}.{os.getpid()}.{os.urandom(4).hex()}"
    return f"{priority}.{unique}.{job}.{pool}"


def digest(text: str) -> str:
    """A short name for a text."""
    return f"{crc32(text.encode('utf-8', 'surrogateescape')):08x}"


def name_pool(wish: Wish) -> str:
    """The name of a class of devices, and of what is asked of it."""
    parts = sorted({part for choice in wish.choices for part in choice.parts})
    return digest(wish.choices[0].device.partition(":")[0]) + digest(f"{wish.count} {parts}")


class Asked:
    """A waiting request. ``job`` and ``pool`` are digests: the job's, and that of what it asks for."""

    def __init__(self, name: str, uid: int, asked_ns: int, most_priority: int) -> None:
        """Raises ValueError if ``name`` is not that of a request."""
        priority, _, self.rest = name.partition(".")
        self.name = name
        self.uid = uid
        self.asked_ns = asked_ns
        self.priority = max(-most_priority, min(most_priority, int(priority)))
        # an earlier version names neither job nor pool
        self.job, self.pool = [*self.rest.split(".")[3:5], "", ""][:2]
        self.kind = kind_of(self.pool)
        self.age = asked_ns, self.rest  # the oldest first

    @property
    def urgency(self) -> tuple[int, str]:
        """The sort key between requests of different priorities."""
        return order_key(self.priority, self.asked_ns), self.rest


class Turns:
    """The last turn of each user and job: ``taken`` has the time of each (user, job, pool)."""

    def __init__(self, taken: dict[tuple[int, str, str], int], waiting: list[Asked]) -> None:
        self._last: dict[tuple[int, str | None, str], int] = {}
        for (uid, job, pool), at_ns in taken.items():
            for key in ((uid, job, pool), (uid, None, pool)):
                for place in (key, (*key[:2], kind_of(pool))):
                    self._last[place] = max(at_ns, self._last.get(place, 0))
        self._first: dict[tuple[int, str | None, str], int] = {}
        self._known: dict[tuple[int, str | None, str], tuple[int, int, int]] = {}
        for one in waiting:
            self._first.setdefault((one.uid, one.job, one.kind), one.asked_ns)
            self._first.setdefault((one.uid, None, one.kind), one.asked_ns)

    def last(self, one: Asked, job: str | None) -> int:
        """When a request's user, or its ``job``, last had a turn that counts, else the first request."""
        known = self._known.get((one.uid, job, one.pool))
        if known is None:
            here, there = (self._last.get((one.uid, job, pool), 0) for pool in (one.pool, one.kind))
            known = here, there, self._first[one.uid, job, one.kind]
            self._known[one.uid, job, one.pool] = known
        here, there, first = known
        if here < there:
            here = max(here, min(there, one.asked_ns + LAPSE_NS))
        return here or first


def kind_of(pool: str) -> str:
    """The part of a pool's digest that all pools of a class have."""
    return pool[:8]


def put_in_order(waiting: list[Asked], taken: dict[tuple[int, str, str], int]) -> list[Asked]:
    """The requests for the same devices in their order, which a grant to the first does not change."""
    oldest = sorted(waiting, key=lambda one: one.age)
    turns = Turns(taken, oldest)
    queues: dict[int, list[Asked]] = {}
    for one in oldest:
        queues.setdefault(one.priority, []).append(one)
    return merge([go_round(queue, turns) for queue in queues.values()])


def go_round(oldest: list[Asked], turns: Turns) -> list[Asked]:
    """The requests of one priority in turn."""
    if len({(one.uid, one.job) for one in oldest}) == 1:
        return oldest
    rounds = count_rounds(oldest, lambda one: (one.uid, one.pool, one.job))
    jobs = sorted(oldest, key=lambda one: (rounds[one.name], turns.last(one, one.job), one.age))
    rounds = count_rounds(jobs, lambda one: (one.uid, one.pool))
    users = sorted(jobs, key=lambda one: (rounds[one.name], turns.last(one, None)))
    members: dict[tuple[int, str], list[Asked]] = {}
    for one in reversed(oldest):
        members.setdefault((one.uid, one.job), []).append(one)
    return [members[one.uid, one.job].pop() for one in users]  # a job's places go to its oldest


def count_rounds(queue: list[Asked], group_of: "Callable[[Asked], object]") -> dict[str, int]:
    """For each request, how many of its group are before it in the queue."""
    seen: dict[object, int] = {}
    found = {}
    for one in queue:
        group = group_of(one)
        found[one.name] = seen[group] = seen.get(group, -1) + 1
    return found


def merge(queues: list[list[Asked]]) -> list[Asked]:
    """One queue of several, each of which keeps its order."""
    if len(queues) == 1:
        return queues[0]
    left = [queue[::-1] for queue in queues]
    found = []
    while left := [queue for queue in left if queue]:
        found.append(min(left, key=lambda queue: queue[-1].urgency).pop())
    return found
