"""Queues the builds that are still to be made: each build of a side once, however many cases need it."""

from collections import deque

from tileyard.engine.commands import CasePrepared
from tileyard.model import BuildKey

_Build = tuple[tuple[str, str], BuildKey]


class BuildQueue:
    """Cases that wait for a compile worker, in order of arrival."""

    def __init__(self) -> None:
        self._cases: deque[CasePrepared] = deque()
        self._build_of: dict[str, _Build] = {}
        self._followers: dict[_Build, list[CasePrepared]] = {}

    def __len__(self) -> int:
        return len(self._cases)

    def add(self, fact: CasePrepared) -> None:
        """Queue a case, or have it follow a queued one with the same builder and key."""
        build = self._build_of[fact.case] = (fact.builder, fact.build)
        if build in self._followers:
            self._followers[build].append(fact)
        else:
            self._followers[build] = []
            self._cases.append(fact)

    def take(self, workers: int) -> tuple[str, ...]:
        """The cases that one of ``workers`` workers builds next: cases of one builder, at most its share of them."""
        first = self._cases[0]
        share = -(-len(self._cases) // workers)
        taken: list[CasePrepared] = []
        for fact in self._cases:
            if len(taken) == min(first.group, share):
                break
            if fact.builder == first.builder:
                taken.append(fact)
        if len(taken) == 1:
            self._cases.popleft()
        else:
            chosen = {fact.case for fact in taken}
            self._cases = deque(fact for fact in self._cases if fact.case not in chosen)
        return tuple(fact.case for fact in taken)

    def end(self, case: str) -> list[str]:
        """A case was built: return the cases that are built with it, including itself."""
        followers = self._followers.pop(self._build_of[case], [])
        return [case, *(fact.case for fact in followers)]

    def fail(self, case: str) -> None:
        """A build failed: the cases with the same key are reported one by one, each by its own build.

        The driver finds the recorded failure at once, so nothing is compiled twice.
        """
        build = self._build_of[case]
        followers = self._followers.pop(build, [])
        if followers:
            self._followers[build] = followers[1:]
            self._cases.appendleft(followers[0])

    def discard(self, case: str) -> None:
        """A queued case need not be built any more; if others follow it, they take its place."""
        build = self._build_of.get(case)
        if build is None:
            return
        followers = self._followers.get(build, [])
        if any(fact.case == case for fact in followers):
            self._followers[build] = [fact for fact in followers if fact.case != case]
        elif any(fact.case == case for fact in self._cases):
            self._cases = deque(fact for fact in self._cases if fact.case != case)
            self.fail(case)

    def forget(self, case: str) -> None:
        """Forget a case that has left the engine."""
        self._build_of.pop(case, None)

    def clear(self) -> None:
        """Nothing in the queue need be built any more."""
        self._cases.clear()
        self._followers.clear()
