"""The timeline of a run: one fold of its events into the spans of each lane, idle shares, critical path."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from tileyard.base.events import (
    BuildEnded,
    BuildStarted,
    CaseEnded,
    CaseLeft,
    CasePlanned,
    CaseStarted,
    DeviceAsked,
    DeviceAwaited,
    DeviceLeased,
    DevicePaused,
    DeviceReleased,
    Event,
    HostJoined,
    JudgeAnswered,
    PauseReason,
    PreparationEnded,
    RunStarted,
    StepEnded,
    StepKind,
    StopReason,
)
from tileyard.base.model import WELL, Outcome, Record, Trial
from tileyard.show.view import RunView, host_of

SpanKind = Literal[
    "preparing",
    "golden",
    "building",
    "starting",
    "waiting",
    "paused",
    "running",
    "judging",
    "check",
]
"""What a lane does. Preparing: the author elaborates a case, makes its golden result and checks it for races,
or a program's case waits for its golden step; starting: a device is asked for, and its runner starts;
waiting: somebody else has the device; paused: a device is held, and does not begin what is ready.
"""
WORK: Final = frozenset[SpanKind](
    {"preparing", "golden", "building", "running", "judging", "check"}
)
"""Kinds in which a lane is not idle."""
LaneKind = Literal["author", "worker", "device", "judge", "steps"]
PAUSES: Final[dict[PauseReason, str]] = {
    "quiet": "until nothing is built or prepared on its cores",
    "judge": "for the judge",
    "pairs": "to begin together with other devices",
    "burst": "until more is built",
}
TOGETHER_S: Final = 0.02
TOGETHER: Final = 0.02
"""Builds of one request that end within so many seconds, or this share of the request, ended together."""
JITTER_S: Final = 0.002
"""By so much a time that was computed from a duration may be wrong."""
GAP_S: Final = 0.005
"""A longer gap on the critical path is explained by what ended last in it, if nothing else is known."""


class LaneSpan(Record):
    """Time of a lane, in seconds since the run began. Several ``cases`` are built in one request, judged in
    one question, or timed in turn; ``outcome`` is that of the first of them that failed, None if unknown or
    none. ``why``: who has a device, or why it pauses.
    """

    kind: SpanKind
    begin: float
    end: float
    cases: tuple[str, ...] = ()
    outcome: Outcome | None = None
    why: str = ""

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end - self.begin


class Lane(Record):
    """A compile worker, a device, the judge, or one of the places where cases are prepared, or golden and
    check steps run, on this or another ``host``, there since ``begin``. Its spans are in order and do not
    overlap; ``shares`` are those of its time by kind, ``idle`` is the share without work, waiting included.
    """

    kind: LaneKind
    name: str
    host: str = ""
    begin: float = 0.0
    spans: tuple[LaneSpan, ...] = ()
    shares: dict[SpanKind, float] = {}
    idle: float = 0.0


class PathStep(Record):
    """A part of the critical path: of the span with these two indexes, or of none, if only the engine, the
    source of cases or something unrecorded took the time.
    """

    begin: float
    end: float
    lane: int | None = None
    span: int | None = None


class Count(Record):
    """The numbers of cases that are built and wait for a device, and that are being built, from then on."""

    at: float
    ready: int
    building: int


class Timeline(Record):
    """Where the ``seconds`` of a run went, which began ``at`` this time since the epoch. ``reason``: None if
    it has not ended or its stream was cut; then its open spans end with it. ``path`` is contiguous from 0 to
    the end: each span on it is the one that ended last of those for which the next one waited. ``skipped``
    counts unreadable events.
    """

    run: str
    title: str
    at: float
    seconds: float
    reason: StopReason | None = None
    lanes: tuple[Lane, ...] = ()
    path: tuple[PathStep, ...] = ()
    counts: tuple[Count, ...] = ()
    skipped: int = 0

    def span_of(self, step: PathStep) -> LaneSpan | None:
        """The span of a step of the path."""
        if step.lane is None or step.span is None:
            return None
        return self.lanes[step.lane].spans[step.span]


def fold_timeline(events: Iterable[Event | None]) -> Timeline:
    """The timeline of a stream of events, which may be cut anywhere; None is an unreadable one."""
    return fold_run(events)[0]


def fold_run(events: Iterable[Event | None]) -> tuple[Timeline, RunView]:
    """The same, and the state of the run after all events."""
    folder = _Folder()
    skipped = 0
    for event in events:
        if event is None:
            skipped += 1
        elif isinstance(event, RunStarted):
            folder = _Folder(event)
        else:
            folder.take(event)
    return folder.close(skipped), folder.view


@dataclass(slots=True, eq=False)
class _Span:
    number: int
    lane: "_Lane"
    kind: SpanKind
    begin: float
    end: float
    cases: list[str]
    outcome: Outcome | None = None
    why: str = ""
    is_open: bool = False
    left: set[str] = field(default_factory=set)
    """Cases that the device still has: several if they are timed in turn."""
    after: "list[_Span]" = field(default_factory=list)
    """Spans for whose end it waited."""

    @property
    def order(self) -> tuple[float, int]:
        return self.begin, self.number


@dataclass(slots=True, eq=False)
class _Lane:
    kind: LaneKind
    host: str
    name: str
    begin: float
    spans: list[_Span] = field(default_factory=list)
    building: dict[str, list[_Span]] = field(default_factory=dict)
    """Cases of the request of a compile worker, and what each waited for."""
    asked: float = 0.0
    """When that request began."""

    @property
    def last(self) -> _Span | None:
        return self.spans[-1] if self.spans else None

    @property
    def end(self) -> float:
        return self.spans[-1].end if self.spans else self.begin

    @property
    def open(self) -> _Span | None:
        return self.spans[-1] if self.spans and self.spans[-1].is_open else None


class _Folder:
    """Takes the events of one run, in their order."""

    def __init__(self, begun: RunStarted | None = None) -> None:
        self.view = RunView()
        self._began = None if begun is None else begun.at
        self._now = 0.0
        self._lanes: dict[tuple[LaneKind, str, str], _Lane] = {}
        self._spans: list[_Span] = []
        self._counts: list[Count] = []
        self._building: dict[str, _Lane] = {}
        # By case: the span that made it what it is now, and the last one on a device.
        self._latest: dict[str, _Span] = {}
        self._ran: dict[str, _Span] = {}
        self._failed_builds: dict[str, _Span] = {}
        self._planned: dict[str, tuple[str, _Span | None]] = {}
        """The batch of each open case, and the span that had ended when it was planned."""
        self._tells_left = False
        self._ended: _Span | None = None
        """The span with which the last case ended."""
        if begun is not None:
            self.view.take(begun, 0.0)
            for device in begun.devices:
                self._device(device.name)

    # ---- events -----------------------------------------------------------------------------

    def take(self, event: Event) -> None:
        """Take in the next event."""
        self._go_on(event)
        match event:
            case CasePlanned(case=case, batch=batch):
                self._planned[case.key] = batch, self._ended
            case PreparationEnded(case=case, seconds=seconds):
                self._prepare(case, seconds)
            case BuildStarted():
                self._begin_build(event)
            case BuildEnded(case=case, ok=ok):
                self._end_build(case, Outcome.PASSED if ok else Outcome.COMPILE_ERROR)
            case StepEnded(case=case, step=step, seconds=seconds):
                self._step(case, step, seconds)
            case JudgeAnswered(cases=cases, seconds=seconds):
                self._judge(cases, seconds)
            case CaseStarted(case=case, device=device):
                self._run(case, self._device(device))
            case CaseLeft(case=case, device=device):
                self._leave(case, self._device(device).open)
            case CaseEnded(trial=trial, at=at):
                self._end(trial, is_old=not at)
            case HostJoined(devices=devices):
                for one in devices:
                    self._device(one.name)
            case DeviceAsked() | DeviceAwaited() | DeviceLeased() | DeviceReleased():
                self._lend(event)
            case DevicePaused(device=device, reason=reason):
                self._wait(self._device(device), "paused", PAUSES[reason])
            case _:
                pass
        self.view.take(event, self._now)
        self._count()

    def _go_on(self, event: Event) -> None:
        """Go on to the time of an event. A clock that is set back stops the time for as long."""
        self._tells_left = self._tells_left or isinstance(event, PreparationEnded | CaseLeft)
        at = getattr(event, "at", 0.0)
        if at and self._began is None:
            self._began = at
        if at and self._began is not None:
            self._now = max(self._now, at - self._began)

    def _count(self) -> None:
        ready, building = len(self.view.ready), len(self.view.building)
        counts = self._counts
        if counts and (counts[-1].ready, counts[-1].building) == (ready, building):
            return
        at = _round(self._now)
        if counts and counts[-1].at == at:
            counts.pop()
        if not counts or (counts[-1].ready, counts[-1].building) != (ready, building):
            counts.append(Count(at=at, ready=ready, building=building))

    # ---- authors, compile workers, judge, steps --------------------------------------------

    def _prepare(self, case: str, seconds: float) -> None:
        begin = max(self._now - seconds, 0.0)
        lane = self._find_free("author", "", begin)
        span = self._add(lane, "preparing", max(begin, lane.end), self._now, [case])
        span.after += self._list_causes(case)
        self._latest[case] = span

    def _begin_build(self, event: BuildStarted) -> None:
        case = event.case
        if case in self._building:  # its worker was lost with its host
            self._end_build(case, Outcome.INFRA_ERROR)
        if event.worker is None:
            lane = self._find_free("worker", event.host, self._now)
        else:
            lane = self._lane("worker", event.host, f"worker {event.worker}")
        if not lane.building:
            lane.asked = max(self._now, lane.end)
        latest = self._latest.get(case)
        lane.building[case] = [] if latest is None else [latest]
        self._building[case] = lane

    def _end_build(self, case: str, outcome: Outcome) -> None:
        lane = self._building.pop(case, None)
        if lane is None:
            return
        after = lane.building.pop(case)
        last, now = lane.last, self._now
        is_of_request = last is not None and last.end > lane.asked
        if last is not None and is_of_request:
            after.append(last)
            if now - last.end <= max(TOGETHER_S, TOGETHER * (now - lane.asked)):
                last.end = now
                last.cases.append(case)
                last.after += after[:-1]
                self._take_outcome(last, outcome)
                self._keep_build(case, last, outcome)
                return
        begin = max(lane.asked, lane.end)
        span = self._add(lane, "building", begin, now, [case], after)
        span.outcome = outcome
        self._keep_build(case, span, outcome)

    def _keep_build(self, case: str, span: _Span, outcome: Outcome) -> None:
        self._latest[case] = span
        if outcome not in WELL:
            self._failed_builds[case] = span

    def _step(self, case: str, step: StepKind, seconds: float) -> None:
        begin = max(self._now - seconds, 0.0)
        ran = self._ran.get(case)
        if step == "check" and ran is not None:
            begin = max(begin, ran.end)
        lane = self._find_free("steps", "", begin)
        span = self._add(lane, step, max(begin, lane.end), self._now, [case])
        if step == "check":
            span.after += [] if ran is None else [ran]
            self._latest[case] = span
        else:
            span.after += self._list_causes(case)

    def _list_causes(self, case: str) -> list[_Span]:
        """The span that had ended last when a case was planned, as its source may have waited for that."""
        _, cause = self._planned.get(case, ("", None))
        return [] if cause is None else [cause]

    def _judge(self, cases: Sequence[str], seconds: float) -> None:
        lane = self._lane("judge", "", "judge")
        ran = [self._ran[case] for case in cases if case in self._ran]
        begin = max(self._now - seconds, lane.end, *(one.end for one in ran), 0.0)
        span = self._add(lane, "judging", min(begin, self._now), self._now, list(cases), ran)
        for case in cases:
            self._latest[case] = span

    # ---- devices ----------------------------------------------------------------------------

    def _lend(self, event: DeviceAsked | DeviceAwaited | DeviceLeased | DeviceReleased) -> None:
        lane = self._device(event.device)
        match event:
            case DeviceAsked():
                self._wait(lane, "starting")
            case DeviceAwaited(holder=holder):
                self._wait(lane, "waiting", holder)
            case DeviceLeased() | DeviceReleased():
                if lane.open is not None:
                    self._close(lane.open)

    def _wait(self, lane: _Lane, kind: SpanKind, why: str = "") -> None:
        """A device begins to wait, unless it does so already, or runs a case."""
        span = lane.open
        if span is not None and span.kind == "running":
            return
        is_same = span is not None and span.kind == kind and (not why or span.why in ("", why))
        if span is not None and (is_same or span.begin == self._now):
            span.kind, span.why = kind, why or span.why
            return
        if span is not None:
            self._close(span)
        span = self._add(lane, kind, self._now, self._now, [])
        span.is_open, span.why = True, why

    def _run(self, case: str, lane: _Lane) -> None:
        """A device begins a case, which no other runs any more. It has no others but those of the same batch
        that it times in turn.
        """
        before, current = self._ran.get(case), lane.open
        if before is not None:
            before.outcome = before.outcome or Outcome.INFRA_ERROR
            self._leave(case, before)
        waited = [self._latest.get(case), before]
        if current is not None and current.is_open and self._is_in_turn(case, current):
            span = current
            span.cases.append(case)
        else:
            if current is not None:
                self._close(current)
            span = self._add(lane, "running", self._now, self._now, [case])
            span.is_open = True
        span.left.add(case)
        span.after += [one for one in waited if one is not None and one is not span]
        self._ran[case] = self._latest[case] = span

    def _is_in_turn(self, case: str, span: _Span) -> bool:
        """Whether a device times a case in turn with those of a span. Older streams do not say it."""
        if not (self._tells_left and span.left):
            return False
        (batch, _), nothing = self._planned.get(case, ("", None)), ("", None)
        return batch != "" and all(self._planned.get(o, nothing)[0] == batch for o in span.left)

    def _leave(self, case: str, span: _Span | None) -> None:
        """A device has done with a case."""
        if span is not None and case in span.left:
            span.left.remove(case)
            if not span.left and span.is_open:
                self._close(span)

    def _end(self, trial: Trial, *, is_old: bool) -> None:
        """A case has its outcome. Older streams do not say when it left its device."""
        key, outcome = trial.key, trial.outcome
        self._end_build(key, outcome)
        if (failed := self._failed_builds.pop(key, None)) is not None:
            failed.outcome = outcome
        ran = self._ran.pop(key, None)
        if ran is not None:
            self._take_outcome(ran, outcome)
            self._leave(key, ran)
            if is_old and trial.run_s:
                ran.end = min(ran.end, ran.begin + trial.run_s)
        latest = self._latest.pop(key, None)
        if latest is not None and latest.kind in ("judging", "check"):
            self._take_outcome(latest, outcome)
        if latest is not None and (self._ended is None or latest.end >= self._ended.end):
            self._ended = latest
        self._planned.pop(key, None)

    # ---- lanes and spans --------------------------------------------------------------------

    def _lane(self, kind: LaneKind, host: str, name: str) -> _Lane:
        lane = self._lanes.get((kind, host, name))
        if lane is None:
            lane = self._lanes[kind, host, name] = _Lane(kind, host, name, self._now)
            if kind != "device":  # it was there before its first span
                lane.begin = 0.0
        return lane

    def _device(self, name: str) -> _Lane:
        return self._lane("device", host_of(name), name)

    def _find_free(self, kind: LaneKind, host: str, begin: float) -> _Lane:
        """The lane of a kind that was busy last before that time, or a new one."""
        lanes = [one for one in self._lanes.values() if (one.kind, one.host) == (kind, host)]
        free = [one for one in lanes if one.end <= begin + JITTER_S and not one.building]
        if free:
            return max(free, key=lambda one: one.end)
        return self._lane(kind, host, f"{kind} {len(lanes)}")

    def _add(  # noqa: PLR0913 - the fields of a span
        self,
        lane: _Lane,
        kind: SpanKind,
        begin: float,
        end: float,
        cases: list[str],
        after: Iterable[_Span] = (),
    ) -> _Span:
        begin = max(begin, lane.end)
        span = _Span(len(self._spans), lane, kind, begin, max(begin, end), cases)
        span.after += after
        for before in reversed(lane.spans):
            if before.kind != "paused":
                span.after.append(before)
                break
        lane.spans.append(span)
        self._spans.append(span)
        return span

    def _close(self, span: _Span) -> None:
        span.end, span.is_open = max(span.begin, self._now), False

    def _take_outcome(self, span: _Span, outcome: Outcome) -> None:
        if span.outcome is None or span.outcome in WELL:
            span.outcome = outcome

    # ---- the end ----------------------------------------------------------------------------

    def close(self, skipped: int) -> Timeline:
        """The timeline; what is still open ends now."""
        about = self.view.about
        for lane in self._lanes.values():
            if lane.building:
                cases, after = (
                    [*lane.building],
                    [one for each in lane.building.values() for one in each],
                )
                self._add(lane, "building", lane.asked, self._now, cases, after)
        for span in self._spans:
            if span.is_open:
                self._close(span)
            span.begin, span.end = _round(span.begin), _round(span.end)
        for lane in self._lanes.values():
            lane.spans = [one for one in lane.spans if one.kind in WORK or one.end > one.begin]
        order: dict[LaneKind, int] = {"author": 0, "steps": 1, "worker": 2, "device": 3, "judge": 4}
        lanes = sorted(self._lanes.values(), key=lambda one: (one.host, order[one.kind]))
        places = {
            id(span): (number, place)
            for number, lane in enumerate(lanes)
            for place, span in enumerate(lane.spans)
        }
        return Timeline(
            run=about.run,
            title=about.title,
            at=self._began or 0.0,
            seconds=_round(self._now),
            reason=self.view.reason,
            lanes=tuple(_finish(lane, _round(self._now)) for lane in lanes),
            path=tuple(_find_path(self._spans, places, _round(self._now))),
            counts=tuple(self._counts),
            skipped=skipped,
        )


def _round(seconds: float) -> float:
    """Whole microseconds: a clock says no more, and the text is half as long."""
    return round(seconds, 6)


def _finish(lane: _Lane, now: float) -> Lane:
    spans = tuple(
        LaneSpan(
            kind=one.kind,
            begin=one.begin,
            end=one.end,
            cases=tuple(one.cases),
            outcome=one.outcome,
            why=one.why,
        )
        for one in lane.spans
    )
    took: defaultdict[SpanKind, float] = defaultdict(float)
    for span in spans:
        took[span.kind] += span.seconds
    whole_s = now - _round(lane.begin)
    shares = {kind: min(took_s / whole_s, 1.0) for kind, took_s in took.items() if whole_s > 0}
    busy = sum(share for kind, share in shares.items() if kind in WORK)
    return Lane(
        kind=lane.kind,
        name=lane.name,
        host=lane.host,
        begin=_round(lane.begin),
        spans=spans,
        shares=shares,
        idle=max(0.0, 1.0 - busy) if whole_s > 0 else 0.0,
    )


def _find_path(
    spans: list[_Span], places: dict[int, tuple[int, int]], now: float
) -> list[PathStep]:
    """The critical path, from the start on. Each step back goes to a span that began earlier."""
    steps: list[PathStep] = []
    by_end = sorted((one for one in spans if one.kind in WORK), key=lambda one: one.end)
    ends = [one.end for one in by_end]
    at = now
    span = max(by_end, key=lambda one: (one.end, one.order), default=None)
    while span is not None:
        end = min(span.end, at)
        if end < at:
            steps.append(PathStep(begin=end, end=at))
        if span.begin < end:
            lane, place = places[id(span)]
            steps.append(PathStep(begin=span.begin, end=end, lane=lane, span=place))
        at, current = min(span.begin, at), span
        earlier = (one for one in span.after if one.order < current.order and id(one) in places)
        span = max(earlier, key=lambda one: (min(one.end, at), one.order), default=None)
        if span is None or at - span.end > GAP_S:
            number = bisect_right(ends, at) - 1
            while number >= 0 and by_end[number].order >= current.order:
                number -= 1
            if number >= 0 and (span is None or by_end[number].end > span.end):
                span = by_end[number]
    if at > 0:
        steps.append(PathStep(begin=0.0, end=at))
    return steps[::-1]
