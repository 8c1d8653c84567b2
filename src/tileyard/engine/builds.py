"""What is still to be built: each build key once, however many cases come to it."""

from collections import deque

from tileyard.model import BuildKey


class BuildQueue:
    """Cases that wait for a compile worker, in the order in which they came."""

    def __init__(self) -> None:
        self._cases: deque[str] = deque()
        self._key_of: dict[str, BuildKey] = {}
        self._followers: dict[BuildKey, list[str]] = {}

    def __len__(self) -> int:
        return len(self._cases)

    def add(self, case: str, key: BuildKey) -> None:
        """Put a case in line, or have it follow one with the same key."""
        self._key_of[case] = key
        if key in self._followers:
            self._followers[key].append(case)
        else:
            self._followers[key] = []
            self._cases.append(case)

    def take(self, count: int) -> tuple[str, ...]:
        """The next cases to be built, up to ``count``."""
        return tuple(self._cases.popleft() for _ in range(min(count, len(self._cases))))

    def end(self, case: str) -> list[str]:
        """A case was built: the cases that are built with it, itself among them."""
        return [case, *self._followers.pop(self._key_of[case], [])]

    def fail(self, case: str) -> None:
        """A build failed: the cases with the same key are told one by one, each by its own build.

        The driver finds the recorded failure at once, so nothing is compiled twice.
        """
        key = self._key_of[case]
        followers = self._followers.pop(key, [])
        if followers:
            self._followers[key] = followers[1:]
            self._cases.appendleft(followers[0])

    def forget(self, case: str) -> None:
        """A case has left the engine."""
        self._key_of.pop(case, None)

    def clear(self) -> None:
        """Nothing in line is to be built any more."""
        self._cases.clear()
        self._followers.clear()
