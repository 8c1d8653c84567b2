"""Trace events, which https://ui.perfetto.dev opens: threads of processes, spans, arrows, counters. The
timeline of a run as such events, and in lines.
"""

from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from typing import Any, NamedTuple

import msgspec
from rich.console import Console
from rich.text import Text

from tileyard.base.events import CasePlanned, Event
from tileyard.base.model import WELL, Case, KernelWork, Record
from tileyard.base.wording import count_of
from tileyard.show.lanes import (
    BETWEEN,
    describe_path,
    describe_shares,
    name_lane,
)
from tileyard.show.opening import load_settings, present, write_or_print
from tileyard.show.timeline import LaneSpan, Timeline, fold_timeline
from tileyard.show.words import clean_line, format_config, format_seconds, format_share
from tileyard.store.events import find_run_file, read_events

AnyPath = str | PathLike[str]
FIRST_TID = 1001
"""Viewers take a thread with the id of its process for its first one, and 0 for the system."""
_ORDER = {"M": 0, "X": 1, "s": 2, "f": 3, "C": 4}
PATH = "critical path"


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


def describe_trace(timeline: Timeline, events: Sequence[Event | None]) -> dict[str, Any]:
    """A document of trace events: a process per host, a thread per lane; the critical path as a thread of the
    run's own process, and as arrows between spans; counters of cases. Times are since the run began.
    """
    cases = {one.case.key: one.case for one in events if isinstance(one, CasePlanned)}
    made = TraceEvents()
    path = made.add_thread(f"run {timeline.run}".strip(), PATH)
    threads = []
    for lane in timeline.lanes:
        host = f"host {lane.host}" if lane.host else "this host"
        title = f"{lane.name}, {format_share(lane.idle)} idle"
        threads.append(made.add_thread(host, title))
        for each in lane.spans:
            made.draw(threads[-1], _describe_span(each, cases))
    before: tuple[Thread, Drawn] | None = None
    for step in timeline.path:
        span, begin, end = timeline.span_of(step), _us(step.begin), _us(step.end)
        if span is None or step.lane is None:
            made.draw(path, Drawn(name=BETWEEN, category=PATH, begin=begin, end=end))
            continue
        whole = _describe_span(span, cases)
        part = msgspec.structs.replace(whole, begin=begin, end=end)
        lane_name = timeline.lanes[step.lane].name
        args = {**whole.args, "lane": lane_name}
        made.draw(path, msgspec.structs.replace(part, category=PATH, args=args))
        here = threads[step.lane], part
        if before is not None:
            made.lead(PATH, before, here)
        before = here
    for count in timeline.counts:
        numbers = {"ready": count.ready, "building": count.building}
        made.count(path, "cases", _us(count.at), numbers)
    return made.make(
        {
            "run": timeline.run,
            "title": timeline.title,
            "began_at": timeline.at,
            "ended": timeline.reason or "no end recorded",
        }
    )


def _describe_span(span: LaneSpan, cases: Mapping[str, Case]) -> Drawn:
    """A span with its cases, their configs and outcome. Its name begins with its kind, so that those of a
    kind have one colour, and ends with how it failed.
    """
    shown: dict[str, Any] = {}
    if span.cases:
        shown["cases"] = ", ".join(span.cases)
    if configs := [text for case in span.cases if (text := _say_config(cases.get(case)))]:
        shown["configs"] = "; ".join(configs)
    if span.outcome is not None:
        shown["outcome"] = str(span.outcome)
    if span.why:
        shown["why"] = span.why
    more = f" and {len(span.cases) - 1} more" if len(span.cases) > 1 else ""
    name = f" {span.cases[0]}{more}" if span.cases else ""
    bad = f": {span.outcome}" if span.outcome is not None and span.outcome not in WELL else ""
    return Drawn(
        name=f"{span.kind}{name}{bad}",
        category=span.kind,
        begin=_us(span.begin),
        end=_us(span.end),
        args=shown,
    )


def _say_config(case: Case | None) -> str:
    if case is None or not isinstance(case.work, KernelWork):
        return ""
    return f"{case.work.kernel} {format_config(case.config)}".strip()


def _us(seconds: float) -> int:
    return round(seconds * 1e6)


def show_run(run: str, output: AnyPath | None, *, as_json: bool) -> int:
    """Print the timeline of a run, and write its trace. Raises UsageError."""
    events = list(read_events(find_run_file(load_settings().home, run)))
    timeline = fold_timeline(events)
    if output:
        write_or_print(output, msgspec.json.encode(describe_trace(timeline, events)))
    if output != "-":
        present(timeline, as_json, print_timeline)
    return 0


def print_timeline(console: Console, timeline: Timeline) -> None:
    """Print the length of a run, the idle share of each lane, and what the critical path consists of."""
    for line in describe_timeline(timeline):
        console.print(Text(clean_line(line)), soft_wrap=True)


def describe_timeline(timeline: Timeline) -> Iterator[str]:
    """The same in lines."""
    end = "" if timeline.reason else ", no end recorded"
    yield f"run {timeline.run}: {format_seconds(timeline.seconds)}{end}"
    if timeline.lanes:
        yield "shares of each lane's time, from its start to the end of the run:"
    for lane in timeline.lanes:
        yield f"{name_lane(lane)}: {describe_shares(lane)}"
    if path := describe_path(timeline):
        yield f"critical path: {path}"
    if timeline.skipped:
        yield f"{count_of(timeline.skipped, 'unreadable event')}"
