"""Queues the builds that are still to be made: each build of a side once, however many cases need it."""

from collections import deque

from tileyard.base.model import BuildKey
from tileyard.engine.commands import CasePrepared

_Build = tuple[tuple[str, str], BuildKey]


class BuildQueue:
    """Cases that wait for a compile worker, oldest first. Builds that share a cache are made singly."""

    def __init__(self) -> None:
        self._cases: deque[CasePrepared] = deque()
        self._build_of: dict[str, _Build] = {}
        # The first of them is queued or being built, the others follow it.
        self._members: dict[_Build, list[CasePrepared]] = {}
        self._caches: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._cases)

    def add(self, fact: CasePrepared) -> None:
        """Queue a case, or have it follow a queued one with the same builder and key."""
        build = self._build_of[fact.case] = (fact.builder, fact.build)
        members = self._members.setdefault(build, [])
        members.append(fact)
        if len(members) == 1:
            self._cases.append(fact)

    def take(self, worker: int, workers: int) -> tuple[str, ...]:
        """The cases that one of ``workers`` builds next: cases of one builder, at most its share of them."""
        used = self._caches.values()
        first = next((one for one in self._cases if not one.cache or one.cache not in used), None)
        if first is None:
            return ()
        self._caches[worker] = first.cache
        if first.group == 1:
            self._cases.remove(first)
            return (first.case,)
        share = -(-len(self._cases) // workers)
        taken: list[CasePrepared] = []
        for fact in self._cases:
            if len(taken) == min(first.group, share):
                break
            if fact.builder == first.builder:
                taken.append(fact)
        chosen = {fact.case for fact in taken}
        self._cases = deque(fact for fact in self._cases if fact.case not in chosen)
        return tuple(fact.case for fact in taken)

    def free(self, worker: int) -> None:
        """A worker needs its cache no more."""
        self._caches.pop(worker, None)

    def end(self, case: str) -> list[str]:
        """A case was built: return the cases that are built with it, including itself."""
        members = self._members.pop(self._build_of[case], [])
        return [case, *(fact.case for fact in members if fact.case != case)]

    def end_early(self, builder: tuple[str, str], build: BuildKey) -> list[str]:
        """A build is ready that was made with another: return the cases that need it."""
        members = self._members.pop((builder, build), [])
        if members and members[0] in self._cases:
            self._cases.remove(members[0])
        return [fact.case for fact in members]

    def fail(self, case: str) -> None:
        """A build failed: the cases with its key are reported one by one, and find the recorded failure."""
        build = self._build_of[case]
        left = [fact for fact in self._members.pop(build, []) if fact.case != case]
        if left:
            self._members[build] = left
            self._cases.appendleft(left[0])

    def discard(self, case: str) -> None:
        """A queued case need not be built any more; if others follow it, they take its place."""
        members = self._members.get(self._build_of[case], []) if case in self._build_of else []
        if members and members[0].case == case and members[0] in self._cases:
            self._cases.remove(members[0])
            self.fail(case)
        elif members and members[0].case != case:
            members[:] = [fact for fact in members if fact.case != case]

    def forget(self, case: str) -> None:
        """Forget a case that has left the engine."""
        self._build_of.pop(case, None)

    def clear(self) -> None:
        """Nothing in the queue need be built any more."""
        self._cases.clear()
        self._members.clear()
