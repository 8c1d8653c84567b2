"""Holds the one queue of batches that could run at once, over all devices, and decides their order.

The batch with the longest expected run goes first, because the last to start decides when the
last one ends; one of unknown length counts as the longest. Interleaved batches are never
overtaken, and no batch is overtaken more than PATIENCE times.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

PATIENCE = 32


@dataclass
class Ready:
    """A batch that waits for a device.

    ``devices`` are those that can run it, and ``output_bytes`` is the size of its outputs to be judged; it
    begins if there is room for ``least_bytes``. ``alone``: it shares a run with no other batch.
    ``avoid`` are devices that failed it.
    ``asked``: it has waited ever since a device was asked for.
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
        """The batch that this device should run next, None for nothing.

        A device skips batches that it failed before, if there is a usable device that did not.
        """
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
        """Take out the next batch, and others that may share its run, up to ``room`` in all.

        Together they leave at most ``room_bytes`` of outputs, unless that is 0.
        """
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
