"""Names lanes of a timeline, and says what they and its critical path consist of."""

from collections import Counter, defaultdict

from tileyard.base.wording import count_of
from tileyard.show.timeline import WORK, Lane, SpanKind, Timeline
from tileyard.show.words import clean_line, format_seconds, format_share

NOTICED = 0.005
"""Smallest share of the time of a lane, or of a run, that is named."""
MOST_HOLDERS = 3
"""Maximum number of holders of a device that are named."""
BETWEEN = "between steps"
"""On the critical path: what comes next is chosen, or passed on from one process to another."""


def name_lane(lane: Lane) -> str:
    """Its name, with its host if the name lacks that."""
    return f"{lane.name} on {lane.host}" if lane.host and lane.host not in lane.name else lane.name


def describe_shares(lane: Lane) -> str:
    """``40 % running, 60 % idle (3 % waiting: 1.9 s for ann, pid 7)``: all of its time, the largest share of
    work first, and the known parts of what is not work.
    """
    shares = sorted(lane.shares.items(), key=lambda one: -one[1])
    work = [_describe_share(lane, kind) for kind, one in shares if one >= NOTICED and kind in WORK]
    rest = [
        _describe_share(lane, kind) for kind, one in shares if one >= NOTICED and kind not in WORK
    ]
    idle = f"{format_share(lane.idle)} idle" + (f" ({', '.join(rest)})" if rest else "")
    return ", ".join((*work, idle))


def _describe_share(lane: Lane, kind: SpanKind) -> str:
    waits = describe_waits(lane) if kind == "waiting" else ""
    return f"{format_share(lane.shares[kind])} {kind}" + (f": {waits}" if waits else "")


def describe_waits(lane: Lane) -> str:
    """``1.9 s for ann, pid 7``: those that held a device meanwhile, the longest first; else empty."""
    took: defaultdict[str, float] = defaultdict(float)
    for span in lane.spans:
        if span.kind == "waiting":
            took[clean_line(span.why) or "an unknown holder"] += span.seconds
    longest = sorted(took.items(), key=lambda one: -one[1])
    said = [f"{format_seconds(took_s)} for {holder}" for holder, took_s in longest[:MOST_HOLDERS]]
    if rest := longest[MOST_HOLDERS:]:
        said.append(f"{format_seconds(sum(took_s for _, took_s in rest))} for {len(rest)} more")
    return "; ".join(said)


def describe_path(timeline: Timeline) -> str:
    """``12 s running (20 spans), 3 s building (2 spans)``: the longest kind first; empty without a path."""
    took: defaultdict[str, float] = defaultdict(float)
    counts: Counter[str] = Counter()
    for step in timeline.path:
        span = timeline.span_of(step)
        kind = BETWEEN if span is None else span.kind
        took[kind] += step.end - step.begin
        counts[kind] += span is not None
    return ", ".join(
        f"{format_seconds(took_s)} {kind}"
        + (f" ({count_of(counts[kind], 'span')})" if counts[kind] else "")
        for kind, took_s in sorted(took.items(), key=lambda one: -one[1])
        if took_s >= NOTICED * timeline.seconds
    )
