"""Which runs there are, and the folds of those under way: one for each run, however many look at it."""

import asyncio
import contextlib
from bisect import bisect_left
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import Final, TypeVar

from tileyard.base.errors import HomeError
from tileyard.base.events import Event
from tileyard.base.model import Record
from tileyard.show.view import Judged, RunView
from tileyard.store.base import RunSpan, Store
from tileyard.store.events import (
    EventTail,
    StreamState,
    is_under_way,
    read_state,
    run_file,
)

T = TypeVar("T")
MOST_OPEN: Final = 200
"""The number of latest streams that are looked at for runs under way."""
MOST_FOLDS: Final = 8
"""Folds that are kept although nobody looks at them."""
LATEST: Final = 12
"""Ended attempts that are kept of a run under way."""
POLL_S: Final = 0.5
NO_STREAM = StreamState(begun=None, ended=None, is_open=False)


class RunLine(Record):
    """A run of a list: what its stream says, and its trials in the store, if it has any."""

    run: str
    stream: StreamState
    span: RunSpan | None = None


def find_open(files: Sequence[Path]) -> list[RunLine]:
    """The runs under way of these streams, which are by name, the latest first."""
    found = []
    for path in reversed(files[-MOST_OPEN:]):
        with contextlib.suppress(HomeError):  # it was removed meanwhile
            if is_under_way(path) and (stream := read_state(path)).is_open:
                found.append(RunLine(run=path.stem, stream=stream))
    return found


def list_lines(
    home: Path, files: Sequence[Path], store: Store | None, limit: int, before: str = ""
) -> list[RunLine]:
    """The latest runs by name with one of these streams or trials, of those ``before`` one if it is named."""
    end = bisect_left(files, before, key=lambda path: path.stem) if before else len(files)
    recent = [path.stem for path in files[max(0, end - limit) : end]]
    spans = {span.run: span for span in store.list_runs(limit, before)} if store else {}
    chosen = sorted({*recent, *spans}, reverse=True)[:limit]
    return [find_line(home, run, spans.get(run)) for run in chosen]


def find_line(home: Path, run: str, span: RunSpan | None = None) -> RunLine:
    """What is known of a run by its name. Raises HomeError for what cannot be a name."""
    return RunLine(run=run, stream=_try_state(run_file(home, run)), span=span)


def _try_state(path: Path) -> StreamState:
    """The state of a run; nothing is known of one whose stream cannot be read, or is removed."""
    try:
        return read_state(path)
    except HomeError:
        return NO_STREAM


class RunFold:
    """The state of one run, from its events so far; its clock are their times since the epoch."""

    def __init__(self, path: Path) -> None:
        self.run = path.stem
        self.view = RunView()
        self.latest: deque[Judged] = deque(maxlen=LATEST)
        self._tail = EventTail(path)
        self._at_s = 0.0
        self._read_s = float("-inf")
        self._lock = asyncio.Lock()
        self.users = 0

    async def look(self, show: Callable[["RunFold"], T]) -> T:
        """What ``show`` makes of the state, once it has what was written since. Raises HomeError."""
        # A thread goes on if its caller is cancelled, and so does the task that keeps others out.
        return await asyncio.shield(self._look_alone(show))

    async def _look_alone(self, show: Callable[["RunFold"], T]) -> T:
        async with self._lock:  # the state does not change while it is shown
            return await asyncio.to_thread(self._look, show)

    def _look(self, show: Callable[["RunFold"], T]) -> T:
        if monotonic() - self._read_s >= POLL_S:
            for event in self._tail.read():
                self._take(event)
            self._read_s = monotonic()
        return show(self)

    def _take(self, event: Event) -> None:
        self._at_s = max(self._at_s, getattr(event, "at", 0.0))
        self.view.take(event, self._at_s)
        if isinstance(self.view.changed, Judged):
            self.latest.appendleft(self.view.changed)

    @property
    def at_s(self) -> float:
        """The time of its last event that has one."""
        return self._at_s


class Folds:
    """The folds of the runs of a data directory."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._folds: dict[str, RunFold] = {}

    @contextlib.asynccontextmanager
    async def hold(self, run: str) -> AsyncIterator[RunFold]:
        """The fold of a run, the same for all who hold it. Raises HomeError for what cannot be a name."""
        fold = self._folds.pop(run, None) or RunFold(run_file(self._home, run))
        self._folds[run] = (
            fold  # at the end: the first ones are those that nobody has held for longest
        )
        fold.users += 1
        try:
            yield fold
        finally:
            fold.users -= 1
            idle = [name for name, one in self._folds.items() if not one.users]
            for name in idle[: max(0, len(idle) - MOST_FOLDS)]:
                del self._folds[name]
