"""Trace events, which https://ui.perfetto.dev opens: threads of processes, spans, arrows, counters."""

from collections.abc import Mapping
from os import PathLike
from typing import Any, NamedTuple

from tileyard.base.model import Record

AnyPath = str | PathLike[str]
FIRST_TID = 1001
"""Viewers take a thread with the id of its process for its first one, and 0 for the system."""
_ORDER = {"M": 0, "X": 1, "s": 2, "f": 3, "C": 4}


class Thread(NamedTuple):
    """Where spans are drawn."""

    pid: int
    tid: int


class Drawn(Record):
    """A span in whole microseconds: the category decides what can be filtered, ``args`` are shown once it is
    chosen.
    """

    name: str
    category: str
    begin: int
    end: int
    args: Mapping[str, Any] = {}


class TraceEvents:
    """Collects the events. Viewers name threads by their ids alone, so no two processes share one."""

    def __init__(self) -> None:
        self._events: list[dict[str, Any]] = []
        self._pids: dict[str, int] = {}
        self._threads = self._arrows = 0

    def add_thread(self, process: str, name: str) -> Thread:
        """A further thread of a process, below the earlier ones."""
        thread = Thread(self._pids.get(process, len(self._pids) + 1), FIRST_TID + self._threads)
        if process not in self._pids:
            self._pids[process] = thread.pid
            self._name(thread, "process", process, thread.pid)
        self._threads += 1
        self._name(thread, "thread", name, thread.tid)
        return thread

    def _name(self, thread: Thread, kind: str, name: str, place: int) -> None:
        for what, args in (("name", {"name": name}), ("sort_index", {"sort_index": place})):
            event = {"ph": "M", **thread._asdict(), "name": f"{kind}_{what}", "args": args}
            self._events.append(event)

    def draw(self, thread: Thread, span: Drawn) -> None:
        """Add a span; those of a thread may not overlap."""
        event = {"ph": "X", **thread._asdict(), "name": span.name, "cat": span.category}
        times = {"ts": span.begin, "dur": span.end - span.begin}
        self._events.append({**event, **times, "args": dict(span.args)})

    def lead(self, name: str, one: tuple[Thread, Drawn], other: tuple[Thread, Drawn]) -> None:
        """An arrow from the end of a span to the beginning of another. Its ends bind to the spans that
        enclose them, so it starts a microsecond before the first one is over.
        """
        self._arrows += 1
        base = {"name": name, "cat": name, "id": self._arrows}
        (begins, first), (ends, second) = one, other
        at = max(first.begin, first.end - 1)
        self._events.append({"ph": "s", **begins._asdict(), **base, "ts": at})
        self._events.append({"ph": "f", **ends._asdict(), **base, "ts": second.begin, "bp": "e"})

    def count(self, thread: Thread, name: str, at: int, numbers: Mapping[str, int]) -> None:
        """The values of counters of a thread's process from then on."""
        event = {"ph": "C", **thread._asdict(), "name": name, "ts": at}
        self._events.append({**event, "args": dict(numbers)})

    def make(self, other: Mapping[str, Any]) -> dict[str, Any]:
        """The document, in the order of time; ``other`` is about the whole."""
        self._events.sort(key=lambda one: (one.get("ts", 0), _ORDER[one["ph"]]))
        return {"traceEvents": self._events, "displayTimeUnit": "ms", "otherData": dict(other)}
