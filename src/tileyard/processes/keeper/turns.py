"""Decides whose turn it is: a pure function of the requests that wait, and of the turns that were taken.

Within a priority, turns go round the users, and those of a user round its jobs: the next one goes to who has had none for the
longest time. Within a job the oldest request comes first. Priorities are compared by ``order_key``, between the requests that are
next in turn at each of them.
"""

import os
import time
from binascii import crc32
from heapq import heapify, heappop, heapreplace

from .deciding import Wish, order_key

TYPE_CHECKING = False  # typing would cost 5 ms
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Ranked = tuple[object, "Asked"]

LAPSE_NS = 60 * 10**9
"""Nanoseconds of waiting after which turns on other devices of the class no longer count against a request: it would wait for ever."""


def name_request(priority: int, job: str = "", pool: str = "") -> str:
    """A name for a new request: its priority, the time, a part that no other request has, and whose turn it waits for."""
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
    """A waiting request. ``job`` and ``pool`` are digests: the job's, and that of the class and devices it asks for."""

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
        self.group = self.priority, uid, self.pool, self.job  # within it, only age counts

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
        self._waiting = waiting
        self._known: dict[tuple[int, str | None, str], tuple[int, int]] = {}

    def last(self, one: Asked, job: str | None) -> int:
        """When the user of a request, or its ``job``, had the last turn that counts; the first request if there was none."""
        key = one.uid, job, one.pool
        if key not in self._known:
            here, there = (self._last.get((one.uid, job, pool), 0) for pool in (one.pool, one.kind))
            if not there:
                here = there = self._find_first(one, job)
            self._known[key] = here, there
        here, there = self._known[key]
        return max(here, min(there, one.asked_ns + LAPSE_NS))

    def _find_first(self, one: Asked, job: str | None) -> int:
        return min(
            other.asked_ns
            for other in self._waiting
            if (other.uid, other.kind) == (one.uid, one.kind) and job in (None, other.job)
        )


def kind_of(pool: str) -> str:
    """The part of a pool's digest that all pools of a class have."""
    return pool[:8]


def put_in_order(waiting: list[Asked], taken: dict[tuple[int, str, str], int]) -> "Iterator[Asked]":
    """The requests in the order in which they are served, as far as they ask for the same devices.

    A grant to the first of them does not change the order of the others. Only the part that is read is computed.
    """
    oldest = sorted(waiting, key=lambda one: one.age)
    groups: dict[int, dict[tuple[int, str], dict[str, list[Asked]]]] = {}
    for one in oldest:
        users = groups.setdefault(one.priority, {})
        users.setdefault((one.uid, one.pool), {}).setdefault(one.job, []).append(one)
    turns = Turns(taken, oldest)
    queues = [go_round(users, turns) for users in groups.values()]
    return (one for _, one in weave(queues, lambda _, __, one: one.urgency))


def go_round(
    users: dict[tuple[int, str], dict[str, list[Asked]]], turns: Turns
) -> "Iterator[Ranked]":
    """The requests of one priority in turn. ``users`` has those of each user, pool and job, the oldest first."""
    queues = []
    members: dict[tuple[int, str], list[Asked]] = {}
    for (uid, _), jobs in users.items():
        ranked = [((one.age, one) for one in job) for job in jobs.values()]
        queues.append(weave(ranked, lambda had, age, one: (had, turns.last(one, one.job), age)))
        for job, asked in jobs.items():
            members.setdefault((uid, job), []).extend(asked)
    left = {key: iter(sorted(of, key=lambda one: one.age)) for key, of in members.items()}
    for rank, one in weave(queues, lambda had, rank, one: (had, turns.last(one, None), rank)):
        yield rank, next(left[one.uid, one.job])  # a job's places go to its oldest


def weave(
    queues: "Iterable[Iterator[Ranked]]", rank_of: "Callable[[int, object, Asked], object]"
) -> "Iterator[Ranked]":
    """One queue of several, each of which keeps its order: the lowest rank of those that are first comes next.

    ``rank_of`` receives the number of requests that its queue has had before, its rank there, and the request.
    """
    heads = []
    for number, queue in enumerate(queues):
        rank, one = next(queue)
        heads.append((rank_of(0, rank, one), number, 0, one, queue))
    heapify(heads)
    while heads:
        rank, number, had, one, queue = heads[0]
        yield rank, one
        if (following := next(queue, None)) is None:
            heappop(heads)
        else:
            rank = rank_of(had + 1, *following)
            heapreplace(heads, (rank, number, had + 1, following[1], queue))
