"""Tracks the outputs of kernels that ran and are not judged: their bytes, and when the judge is due."""

from collections import deque
from collections.abc import Mapping

MAX_JUDGED = 64
"""The most cases in one question to the judge."""
QUESTION_BYTES = 16 << 20
"""Bytes of outputs after which a question takes no further case: all are freed when it is answered."""


class Unjudged:
    """Cases that wait for the judge, in the order in which they ran. ``rooms``: bytes of outputs
    that may wait, by device, 0 for one that hands none over. ``rivals``: cases whose times may
    bound others' once judged.
    """

    def __init__(self, rooms: Mapping[str, int]) -> None:
        self._rooms = rooms
        self._waiting: deque[str] = deque()
        self._asked: set[str] = set()
        self._bytes: dict[str, tuple[str, int]] = {}
        self._used: dict[str, int] = dict.fromkeys(rooms, 0)
        self.rivals: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._bytes)

    @property
    def is_asked(self) -> bool:
        """Whether the judge has a question and has not answered it."""
        return bool(self._asked)

    @property
    def is_waiting(self) -> bool:
        """Whether there is a further question."""
        return bool(self._waiting)

    @property
    def is_due(self) -> bool:
        """Whether verdicts are needed soon: for times that may bound others, or half of the room is used."""
        return bool(self.rivals) or any(
            2 * used > self._rooms[device] for device, used in self._used.items()
        )

    def add(self, case: str, device: str, size: int, *, is_rival: bool) -> None:
        """A case ran well on a device; a rival's time bounds those of others once it is judged."""
        self._waiting.append(case)
        self._bytes[case] = (device, size)
        self._used[device] = self._used.get(device, 0) + size
        if is_rival:
            self.rivals.add(case)

    def take(self) -> tuple[str, ...]:
        """The cases of the next question."""
        size = 0
        while self._waiting and len(self._asked) < MAX_JUDGED and size < QUESTION_BYTES:
            case = self._waiting.popleft()
            size += self._bytes[case][1]
            self._asked.add(case)
        return tuple(case for case in self._bytes if case in self._asked)

    def end(self, case: str) -> None:
        """Remove a case that ended, by the judge or otherwise."""
        if case in self._bytes:
            device, size = self._bytes.pop(case)
            self._used[device] -= size
            self._asked.discard(case)
            self.rivals.discard(case)

    def left_bytes(self, device: str) -> int | None:
        """Bytes of outputs that a device may hand over now; None for any number."""
        room, used = self._rooms.get(device, 0), self._used.get(device, 0)
        return room - used if room and used else None
