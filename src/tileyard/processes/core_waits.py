"""How long processes wait for a core: Linux counts it for each thread (/proc/PID/task/TID/schedstat)."""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tileyard.processes.keeper.tree import descendants_of


@dataclass(frozen=True)
class _Thread:
    """``counts``: nanoseconds that it ran and waited, excluding a wait that began ``since``."""

    counts: tuple[int, int]
    since: float
    waited_s: float


class CoreWaits:
    """The waits of all processes below ``root``. Of threads that wait at once, the longest one counts."""

    def __init__(self, root: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._root = root
        self._monotonic = monotonic
        self._threads: dict[int, _Thread] = {}

    def __call__(self) -> float:
        """Seconds since the last call; 0 where Linux does not count them."""
        now, before = self._monotonic(), self._threads
        self._threads = {
            thread: self._look(before.get(thread), counts, now, can_run=can_run)
            for pid, _ in descendants_of(self._root)
            for thread, counts, can_run in _read_threads(pid)
        }
        waits = (
            one.waited_s - (before[thread].waited_s if thread in before else 0.0)
            for thread, one in self._threads.items()
        )
        return max(waits, default=0.0)

    def _look(
        self, seen: _Thread | None, counts: tuple[int, int], now: float, *, can_run: bool
    ) -> _Thread:
        since = seen.since if seen and seen.counts == counts and can_run else now
        return _Thread(counts, since, counts[1] / 1e9 + now - since)


def _read_threads(pid: int) -> Iterator[tuple[int, tuple[int, int], bool]]:
    """A process's threads, with their counts and whether they can run; nothing of what ended meanwhile."""
    with suppress(OSError, ValueError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            ran, waited, _ = map(int, (task / "schedstat").read_text(encoding="ascii").split())
            state = (task / "stat").read_bytes().rpartition(b")")[2].split()[0]
            yield int(task.name), (ran, waited), state == b"R"
