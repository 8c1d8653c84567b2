"""Holds the one queue of batches that could run at once, over all devices. Longest or unknown first, since
the last to start decides the end; interleaved batches are never overtaken, others at most PATIENCE times.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

PATIENCE = 32


@dataclass
class Ready:
    """A batch that waits for a device, one of ``devices`` and better none of ``avoid``, which failed it. It
    begins if there is room for ``least_bytes``; its outputs to be judged take ``output_bytes``. ``alone``: it
    shares a run with no other; ``asked``: it has waited since a device was asked for.
    """

    batch: str
    memory_bytes: int
    devices: frozenset[str]
    expected_s: float | None = None
    output_bytes: int = 0
    least_bytes: int = 0
    interleaved: bool = False
    alone: bool = False
    avoid: frozenset[str] = frozenset()
    asked: bool = False
    overtaken: int = 0


class ReadyQueue:
    """Batches in the order in which they became ready."""

    def __init__(self) -> None:
        self._entries: dict[str, Ready] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Ready]:
        return iter(self._entries.values())

    def add(self, entry: Ready) -> None:
        """Add a batch at the end, as one that has not waited yet."""
        entry.asked, entry.overtaken = False, 0
        self._entries[entry.batch] = entry

    def put_back(self, entries: list[Ready]) -> None:
        """Put batches that had been taken back at the front."""
        self._entries = {entry.batch: entry for entry in entries} | self._entries

    def discard(self, batch: str) -> None:
        """Remove a batch, if it is in the queue."""
        self._entries.pop(batch, None)

    def clear(self) -> None:
        """Remove all batches."""
        self._entries.clear()

    def count(self, device: str) -> int:
        """Number of batches that this device could run."""
        return sum(device in entry.devices for entry in self._entries.values())

    def peek(self, device: str, usable: frozenset[str]) -> Ready | None:
        """The next batch for this device, or None. Usable devices that did not fail it go first."""
        best: Ready | None = None
        for entry in self._entries.values():
            if device not in entry.devices:
                continue
            if device in entry.avoid and not usable & entry.devices <= entry.avoid:
                continue
            if best is None:
                best = entry
                if entry.interleaved or entry.overtaken >= PATIENCE or entry.expected_s is None:
                    return entry
            elif entry.interleaved:
                break
            elif _length_s(entry) > _length_s(best):
                best = entry
        return best

    def take(
        self, device: str, usable: frozenset[str], room: int, room_bytes: int = 0
    ) -> list[Ready]:
        """Take out the next batch, and others for its run: up to ``room``, and ``room_bytes`` if not 0."""
        taken: list[Ready] = []
        while len(taken) < room:
            entry = self.peek(device, usable)
            if entry is None:
                break
            if taken and (entry.alone or entry.memory_bytes != taken[0].memory_bytes):
                break
            left_bytes = room_bytes - sum(other.output_bytes for other in taken)
            if taken and room_bytes and entry.output_bytes > left_bytes:
                break
            self._overtake(entry)
            taken.append(entry)
            if entry.alone:
                break
        return taken

    def _overtake(self, entry: Ready) -> None:
        for other in self._entries.values():
            if other is entry:
                break
            other.overtaken += 1
        del self._entries[entry.batch]


def _length_s(entry: Ready) -> float:
    return inf if entry.expected_s is None else entry.expected_s
