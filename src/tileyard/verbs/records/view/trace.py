"""The timeline of a run as trace events, which https://ui.perfetto.dev opens, and in lines."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from rich.console import Console
from rich.text import Text

from tileyard.base.events import CasePlanned, Event
from tileyard.base.model import WELL, Case, KernelWork
from tileyard.base.wording import count_of
from tileyard.show.timeline import LaneSpan, PathStep, Timeline
from tileyard.show.words import clean_line, format_config, format_seconds, format_share

TraceEvent = dict[str, Any]
RUN_PID = 1
"""The process of the run itself: its critical path and counters."""
FIRST_TID = 1001
"""Viewers name threads by their ids alone, and take one with the id of its process for its first thread."""
PATH = "critical path"
NOTICED = 0.005
"""Share of a run below which a part of it is left out of the lines."""
_ORDER = {"M": 0, "X": 1, "s": 2, "f": 3, "C": 4}


def describe_trace(timeline: Timeline, events: Sequence[Event | None]) -> dict[str, Any]:
    """A document of trace events, in the order of time: a process per host, a thread per lane; the critical
    path as a thread of the run's own process, and as arrows between spans; counters of cases. Times are
    microseconds since the run began.
    """
    cases = {one.case.key: one.case for one in events if isinstance(one, CasePlanned)}
    path_tid = FIRST_TID
    tids = [FIRST_TID + 1 + number for number in range(len(timeline.lanes))]
    made = [
        *_name("process", RUN_PID, path_tid, f"run {timeline.run}".strip(), 0),
        *_name("thread", RUN_PID, path_tid, PATH, 0),
    ]
    pids: dict[str, int] = {}
    for lane, tid in zip(timeline.lanes, tids, strict=True):
        host = f"host {lane.host}" if lane.host else "this host"
        if lane.host not in pids:
            pids[lane.host] = pid = RUN_PID + 1 + len(pids)
            made += _name("process", pid, tid, host, pid)
        pid = pids[lane.host]
        title = f"{lane.name}, {format_share(lane.idle)} idle"
        made += _name("thread", pid, tid, title, tid)
        made += [_complete(pid, tid, span, describe_span(span, cases)) for span in lane.spans]
    for step in timeline.path:
        span = timeline.span_of(step)
        name = "" if step.lane is None else timeline.lanes[step.lane].name
        made.append(_place_step(step, span, name, path_tid, cases))
    made += _draw_arrows(
        timeline, [(pids[lane.host], tid) for lane, tid in zip(timeline.lanes, tids, strict=True)]
    )
    for count in timeline.counts:
        numbers = {"ready": count.ready, "building": count.building}
        made.append(
            {
                "ph": "C",
                "name": "cases",
                "pid": RUN_PID,
                "tid": path_tid,
                "ts": _us(count.at),
                "args": numbers,
            }
        )
    made.sort(key=lambda one: (one.get("ts", 0), _ORDER[one["ph"]]))
    return {
        "traceEvents": made,
        "displayTimeUnit": "ms",
        "otherData": {
            "run": timeline.run,
            "title": timeline.title,
            "began_at": timeline.at,
            "ended": timeline.reason or "no end recorded",
        },
    }


def describe_span(span: LaneSpan, cases: Mapping[str, Case]) -> dict[str, Any]:
    """What a viewer shows of a chosen span."""
    shown: dict[str, Any] = {}
    if span.cases:
        shown["cases"] = ", ".join(span.cases)
    if configs := [text for case in span.cases if (text := _say_config(cases.get(case)))]:
        shown["configs"] = "; ".join(configs)
    if span.outcome is not None:
        shown["outcome"] = str(span.outcome)
    if span.why:
        shown["why"] = span.why
    return shown


def _say_config(case: Case | None) -> str:
    if case is None or not isinstance(case.work, KernelWork):
        return ""
    return f"{case.work.kernel} {format_config(case.config)}".strip()


def _name(kind: str, pid: int, tid: int, name: str, place: int) -> Iterator[TraceEvent]:
    """The name of a process or thread, and its place among the others."""
    base = {"ph": "M", "pid": pid, "tid": tid}
    yield {**base, "name": f"{kind}_name", "args": {"name": name}}
    yield {**base, "name": f"{kind}_sort_index", "args": {"sort_index": place}}


def _complete(pid: int, tid: int, span: LaneSpan, args: dict[str, Any]) -> TraceEvent:
    return {
        "ph": "X",
        "name": _title(span),
        "cat": span.kind,
        "pid": pid,
        "tid": tid,
        "ts": _us(span.begin),
        "dur": _us(span.end) - _us(span.begin),
        "args": args,
    }


def _title(span: LaneSpan) -> str:
    """Its kind and first case, so that spans of a kind have one colour, and how it failed."""
    more = f" and {len(span.cases) - 1} more" if len(span.cases) > 1 else ""
    name = f" {span.cases[0]}{more}" if span.cases else ""
    bad = f": {span.outcome}" if span.outcome is not None and span.outcome not in WELL else ""
    return f"{span.kind}{name}{bad}"


def _place_step(
    step: PathStep, span: LaneSpan | None, lane: str, tid: int, cases: Mapping[str, Case]
) -> TraceEvent:
    """A step of the critical path, on the path's own thread."""
    shown = LaneSpan(kind="waiting", begin=step.begin, end=step.end)
    made = _complete(RUN_PID, tid, shown, {} if span is None else describe_span(span, cases))
    if span is None:
        return made | {"name": "nothing recorded", "cat": PATH}
    made["args"]["lane"] = lane
    return made | {"name": _title(span), "cat": PATH}


def _draw_arrows(timeline: Timeline, places: Sequence[tuple[int, int]]) -> Iterator[TraceEvent]:
    """An arrow from the end of each span of the critical path to the beginning of the next one: it starts
    within the one, a microsecond before the end, and binds to the other, which encloses its end.
    """
    on_path = [step for step in timeline.path if step.lane is not None]
    for number, (one, other) in enumerate(pairwise(on_path), start=1):
        base = {"name": PATH, "cat": PATH, "id": number}
        for phase, step, at in (
            ("s", one, max(_us(one.begin), _us(one.end) - 1)),
            ("f", other, _us(other.begin)),
        ):
            pid, tid = places[step.lane or 0]
            end = {"bp": "e"} if phase == "f" else {}
            yield {"ph": phase, **base, "pid": pid, "tid": tid, "ts": at, **end}


def _us(seconds: float) -> int:
    return round(seconds * 1e6)


def print_timeline(console: Console, timeline: Timeline) -> None:
    """Print the length of a run, the idle share of each lane, and what the critical path consists of."""
    for line in describe_timeline(timeline):
        console.print(Text(clean_line(line)), soft_wrap=True)


def describe_timeline(timeline: Timeline) -> Iterator[str]:
    """The same in lines."""
    end = "" if timeline.reason else ", no end recorded"
    yield f"run {timeline.run}: {format_seconds(timeline.seconds)}{end}"
    for lane in timeline.lanes:
        where = f" on {lane.host}" if lane.host and lane.host not in lane.name else ""
        shares = sorted(lane.shares.items(), key=lambda one: -one[1])
        parts = [f"{format_share(share)} {kind}" for kind, share in shares if share >= NOTICED]
        yield f"{lane.name}{where}: {', '.join([*parts, f'{format_share(lane.idle)} idle'])}"
    took: defaultdict[str, float] = defaultdict(float)
    counts: Counter[str] = Counter()
    for step in timeline.path:
        span = timeline.span_of(step)
        kind = "nothing recorded" if span is None else span.kind
        took[kind] += step.end - step.begin
        counts[kind] += span is not None
    if took:
        longest = sorted(took.items(), key=lambda one: -one[1])
        parts = [
            f"{format_seconds(took_s)} {kind}"
            + (f" ({count_of(counts[kind], 'span')})" if counts[kind] else "")
            for kind, took_s in longest
            if took_s >= NOTICED * timeline.seconds
        ]
        yield f"critical path: {', '.join(parts)}"
    if timeline.skipped:
        yield f"{count_of(timeline.skipped, 'unreadable event')}"
