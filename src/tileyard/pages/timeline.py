"""The timeline of a run as data for a page: what each lane did and when, and the critical path."""

from collections import defaultdict
from collections.abc import Sequence
from typing import get_args

from tileyard.base.model import Record
from tileyard.show.lanes import BETWEEN, describe_path, describe_shares, describe_waits, name_lane
from tileyard.show.timeline import WORK, Lane, PathStep, SpanKind, Timeline
from tileyard.show.words import clean_line, format_seconds, format_share

KINDS: tuple[SpanKind, ...] = get_args(SpanKind)


class Bounds(Record):
    """Limits of what is drawn: the first ``lanes``, and of more than so many ``spans`` those are joined that
    follow each other within ``gap``, a share of the run that no screen shows. A critical path of more steps
    than there are gaps in the run has none that is shorter than a gap.
    """

    lanes: int = 200
    spans: int = 40_000
    gap: float = 1 / 4000

    def has_short(self, timeline: Timeline) -> bool:
        """Whether short steps of the critical path are drawn with their neighbours."""
        return len(_join_steps(timeline.path)) * self.gap > 1


USUAL = Bounds()
MOST_WAITS = 3
"""Maximum number of devices whose waits are in the sentence; the lanes have all."""


class LaneRow(Record):
    """A lane: its name, and the shares of its time in words."""

    name: str
    shares: str


class LaneData(Record):
    """The spans of a lane, four numbers each: milliseconds since the end of the one before, milliseconds that
    it took, its kind, and the place of its first case, or of what it waited for, in the list of cases, -1
    for none.
    """

    name: str
    idle: str
    spans: tuple[int, ...]


class TimelineData(Record):
    """All lanes; ``path`` has begin, end and lane of each step of the critical path, in milliseconds and as a
    place in the list of lanes, -1 for none. ``work`` are the kinds in which a lane is not idle.
    """

    milliseconds: int
    kinds: tuple[str, ...]
    work: tuple[str, ...]
    lanes: tuple[LaneData, ...]
    cases: tuple[str, ...]
    path: tuple[tuple[int, int, int], ...]


class TimelineShown(Record):
    """A sentence that says what to see, and a row of text for each lane."""

    see: str
    lanes: tuple[LaneRow, ...]


def show_timeline(
    timeline: Timeline, bounds: Bounds = USUAL, whole_s: float = 0.0
) -> TimelineShown:
    """The text of a timeline, of a run that took ``whole_s`` if that is known."""
    path = describe_path(timeline)
    said = f"The critical path, the line below the lanes, consists of {path}." if path else ""
    if BETWEEN in path:
        said += " Between steps, what comes next is chosen and passed on."
    devices = [one for one in timeline.lanes if one.kind == "device"]
    idle = sum(one.idle for one in devices) / len(devices) if devices else 0.0
    used = f"Devices were idle {format_share(idle)} of the time." if devices else ""
    waits = [f"{name_lane(one)} waited {wait}" for one in devices if (wait := describe_waits(one))]
    used += f" Others held devices: {'; '.join(waits[:MOST_WAITS])}." if waits else ""
    short = cut = ""
    if bounds.has_short(timeline):
        gap = format_seconds(timeline.seconds * bounds.gap)
        short = f"Its steps shorter than {gap} are drawn with their neighbours."
    if len(timeline.lanes) > bounds.lanes:
        cut = f"These are {bounds.lanes} of {len(timeline.lanes)} lanes."
    return TimelineShown(
        see=" ".join(
            filter(None, (_say_length(timeline.seconds, whole_s), used, said, short, cut))
        ),
        lanes=tuple(
            LaneRow(
                name=clean_line(name_lane(one)),
                shares=describe_shares(one),
            )
            for one in timeline.lanes
        ),
    )


def _say_length(drawn_s: float, whole_s: float) -> str:
    """How long the run took, and which part of that is not drawn."""
    took, drawn = format_seconds(max(whole_s, drawn_s)), format_seconds(drawn_s)
    before = (
        "" if took == drawn else f" The last {drawn} are drawn: what is to run was read before."
    )
    return f"The run took {took}.{before}"


def pack_timeline(timeline: Timeline, bounds: Bounds = USUAL) -> TimelineData:
    """The numbers of a timeline."""
    least_s = timeline.seconds * bounds.gap if bounds.has_short(timeline) else 0.0
    cases: dict[str, int] = {}
    shown = timeline.lanes[: bounds.lanes]
    is_dense = sum(len(one.spans) for one in shown) > bounds.spans
    gap_ms = _ms(timeline.seconds * bounds.gap) if is_dense else -1
    lanes = tuple(_pack_lane(one, cases, gap_ms) for one in shown)
    return TimelineData(
        milliseconds=_ms(timeline.seconds),
        kinds=KINDS,
        work=tuple(one for one in KINDS if one in WORK),
        lanes=lanes,
        cases=tuple(map(clean_line, cases)),
        path=tuple(
            (_ms(step.begin), _ms(step.end), _place(step.lane, len(lanes)))
            for step in _join_steps(timeline.path, least_s)
        ),
    )


def _join_steps(path: Sequence[PathStep], least_s: float = 0.0) -> list[PathStep]:
    """A path whose steps in one lane are one, each of at least this length but the last: shorter ones are in
    the lane that has most of their time.
    """
    took: defaultdict[int | None, float] = defaultdict(float)
    begin = 0.0
    joined: list[PathStep] = []
    for step in path:
        took[step.lane] += step.end - step.begin
        if step.end - begin >= least_s or step is path[-1]:
            lane = max(took, key=lambda one: took[one])
            if joined and joined[-1].lane == lane:
                begin = joined.pop().begin
            joined.append(PathStep(begin=begin, end=step.end, lane=lane))
            took.clear()
            begin = step.end
    return joined


def _place(lane: int | None, lanes: int) -> int:
    return -1 if lane is None or lane >= lanes else lane


def _pack_lane(lane: Lane, cases: dict[str, int], gap_ms: int) -> LaneData:
    """The spans of a lane; cases get their places as they come. Spans of one kind with at most this gap are
    joined below the first one's case; none if it is negative.
    """
    numbers: list[int] = []
    last = 0
    for span in lane.spans:
        begin, end = _ms(span.begin), _ms(span.end)
        if numbers and numbers[-2] == KINDS.index(span.kind) and begin - last <= gap_ms:
            numbers[-3] += end - last
            last = end
            continue
        why = f"for {span.why}" if span.kind == "waiting" and span.why else span.why
        text = span.cases[0] if span.cases else why
        case = cases.setdefault(text, len(cases)) if text else -1
        numbers += (begin - last, end - begin, KINDS.index(span.kind), case)
        last = end
    name, idle = clean_line(name_lane(lane)), format_share(lane.idle)
    return LaneData(name=name, idle=idle, spans=tuple(numbers))


def _ms(seconds: float) -> int:
    return round(1000 * seconds)
