"""How long cases took on their devices, against the best possible, and where the other time went."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

import msgspec

from tileyard.base.events import (
    BuildEnded,
    BuildStarted,
    CaseEnded,
    CaseStarted,
    Event,
    HostJoined,
    StepEnded,
    StepKind,
)
from tileyard.base.model import Record
from tileyard.base.wording import count_of
from tileyard.verbs.test.result.result import Makespan, Plan

NOTICED = 0.01
"""Share of the whole above which a part of the gap, or an error of the prediction, is reported."""


class Span(Record):
    """The device and the time at which a case ran, in seconds since the epoch."""

    case: str
    device: str
    begin: float
    end: float


class StepSpan(Record):
    """When a golden or check step ran on a lane, in seconds since the epoch; ``case`` is an attempt's key."""

    case: str
    step: StepKind
    begin: float
    end: float


class Startup(Record):
    """The cost of starting, in seconds, None if unknown: ``startup_s`` of a piece, in whose ``launch_s`` no
    other could start, and ``lead_s`` before the run's first case.
    """

    startup_s: float | None
    launch_s: float | None
    lead_s: float | None


class Achieved:
    """Records when cases and steps ran, and builds ended. ``made``: ids of cases with golden results;
    ``joined``: hosts that came while it went on.
    """

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.steps: list[StepSpan] = []
        self.made: set[str] = set()
        self.joined: list[HostJoined] = []
        self._builds: list[tuple[float, float]] = []
        self._building: dict[str, float] = {}
        self._begun: dict[str, tuple[str, float]] = {}

    def __call__(self, event: Event) -> None:
        """Record the start and the end of a case on its device."""
        match event:
            case BuildStarted(case=case, at=at):  # again if a build for several targets failed
                self._building.setdefault(case, at)
            case BuildEnded(case=case, at=at) if case in self._building:
                self._builds.append((self._building.pop(case), at))
            case HostJoined():
                self.joined.append(event)
            case StepEnded(case=case, step=step, at=at, seconds=seconds):
                self.steps.append(StepSpan(case=case, step=step, begin=at - seconds, end=at))
            case CaseStarted(case=case, device=device, at=at):
                self._begun[case] = (device, at)
            case CaseEnded(trial=trial):
                if trial.keys.golden:
                    self.made.add(trial.case)
                if trial.key not in self._begun:
                    return
                device, begin = self._begun.pop(trial.key)
                self.spans.append(
                    Span(
                        case=trial.case,
                        device=device,
                        begin=begin,
                        end=begin + trial.run_s,
                    )
                )
            case _:
                pass

    @property
    def has_waited(self) -> bool:
        """Whether something had to be built, or golden data had to be made."""
        return bool(self._builds) or any(one.step == "golden" for one in self.steps)

    def measure_lead(self, began: float) -> float | None:
        """Seconds until the run's first case, without builds and golden steps; None if none ran."""
        if not self.spans:
            return None
        first = min(span.begin for span in self.spans)
        busy = [*self._builds, *((one.begin, one.end) for one in self.steps)]
        done, waited_s = began, 0.0
        for begin, end in sorted(busy):
            waited_s += max(0.0, min(begin, first) - done)
            done = max(done, min(end, first))
        return waited_s + max(0.0, first - done)


def measure_makespans(
    spans: Iterable[Span],
    plan: Plan,
    began: float,
    steps: Sequence[StepSpan] = (),
    joined_s: float = 0.0,
) -> list[Makespan]:
    """The makespan of these spans under a plan that started then; empty if nothing ran. ``steps`` are those
    of the same cases beside their devices. The last of the plan's slots joined after ``joined_s``, 0 if none
    did; pieces were then divided.
    """
    ordered = sorted(spans, key=lambda span: span.begin)
    if not ordered:
        return []
    took: dict[str, float] = {}
    for span in ordered:
        took[span.case] = took.get(span.case, 0.0) + span.end - span.begin
    total_s = sum(took.values())
    pieces = [[case] for case in took] if joined_s else [piece.cases for piece in plan.pieces]
    longest_s = max(sum(took.get(case, 0.0) for case in cases) for cases in pieces)
    bound_s = max(longest_s, total_s / plan.slots)
    ends = [*(span.end for span in ordered), *(step.end for step in steps)]
    found = Makespan(
        slots=plan.slots,
        total_s=total_s,
        bound_s=bound_s,
        predicted_s=plan.predicted_s,
        achieved_s=max(ends) - began,
        guessed=plan.guessed,
        low_s=plan.low_s,
        high_s=plan.high_s,
    )
    reasons = (
        _explain(found, ordered, plan, began, joined_s),
        _explain_steps(steps, ordered, found.achieved_s),
    )
    return [msgspec.structs.replace(found, reason="; ".join(filter(None, reasons)))]


def measure_startup(
    spans: Sequence[Span],
    plan: Plan,
    lead_s: float | None,
    *,
    has_waited: bool = False,
    rivals: Sequence[StepSpan] = (),
) -> Startup | None:
    """The cost of starting in a run that waited ``lead_s`` for its first case; None if too little ran. A
    piece's is the lower quartile of the gaps between pieces on a device, as in longer ones it waited for work
    too; gaps with a step of ``rivals``, which share the cores, do not count. If cases ``has_waited`` for
    builds or golden steps, first starts show no cost of launches.
    """
    piece_of = {case: piece for piece in plan.pieces for case in piece.cases}
    last: dict[str, Span] = {}
    begins = sorted(step.begin for step in rivals)
    ends = sorted(step.end for step in rivals)
    gaps_s = []
    has_gaps = False
    for span in sorted(spans, key=lambda span: span.begin):
        before = last.get(span.device)
        if before is not None and piece_of[before.case] is not piece_of[span.case]:
            has_gaps = True
            if bisect_left(begins, span.begin) == bisect_right(ends, before.end):
                gaps_s.append(max(0.0, span.begin - before.end))
        last[span.device] = span
    if not has_gaps:
        return None
    startup_s = sorted(gaps_s)[len(gaps_s) // 4] if gaps_s else None
    launch_s = None if has_waited else _measure_launch(spans)
    return Startup(startup_s=startup_s, launch_s=launch_s, lead_s=lead_s)


def _measure_launch(spans: Iterable[Span]) -> float | None:
    """Mean interval between the first cases of devices, before any device had ended its own."""
    first: dict[str, Span] = {}
    for span in sorted(spans, key=lambda span: span.begin):
        first.setdefault(span.device, span)
    until = min(span.end for span in first.values())
    begins = [span.begin for span in first.values() if span.begin <= until]
    return (begins[-1] - begins[0]) / (len(begins) - 1) if len(begins) > 1 else None


def join_shared(parts: Sequence[tuple[Makespan, int]], slots: int) -> Makespan:
    """Combines parts that shared ``slots`` devices; each case of a part held that many of them."""
    total_s = sum(part.total_s * count for part, count in parts)
    longest_s = max(part.bound_s for part, _ in parts)
    joined = join_makespans([part for part, _ in parts])
    if joined is None:
        raise AssertionError("nothing was shared")
    return msgspec.structs.replace(
        joined,
        slots=slots,
        total_s=total_s,
        bound_s=max(longest_s, total_s / slots),
        predicted_s=sum(part.predicted_s for part, _ in parts),
        low_s=sum(part.low_s for part, _ in parts),
        high_s=sum(part.high_s for part, _ in parts),
    )


def join_makespans(makespans: Sequence[Makespan]) -> Makespan | None:
    """Combines parts that ran side by side; None if there was none."""
    if len(makespans) < 2:
        return makespans[0] if makespans else None
    return Makespan(
        slots=sum(part.slots for part in makespans),
        total_s=sum(part.total_s for part in makespans),
        bound_s=max(part.bound_s for part in makespans),
        predicted_s=max(part.predicted_s for part in makespans),
        achieved_s=max(part.achieved_s for part in makespans),
        guessed=sum(part.guessed for part in makespans),
        low_s=max(part.low_s for part in makespans),
        high_s=max(part.high_s for part in makespans),
        reason="; ".join(part.reason for part in makespans if part.reason),
    )


def _explain(found: Makespan, spans: list[Span], plan: Plan, began: float, joined_s: float) -> str:
    """Where the time beyond the bound went: before the first case, before the last slot had joined, at the
    end, in between.
    """
    last = max(spans, key=lambda span: span.end)
    whole_s = last.end - began
    least_s = NOTICED * whole_s
    lead_s = spans[0].begin - began
    tail_at = _find_tail(spans, min(plan.slots, len(spans)))
    tail_s = last.end - tail_at
    parts = []
    is_noticed = found.achieved_s - found.bound_s > least_s
    if is_noticed and lead_s > least_s:
        parts.append(f"{lead_s:.1f} s before the first case could start")
    if is_noticed and joined_s > least_s:
        parts.append(f"{joined_s:.1f} s before the last of {plan.slots} slots had joined")
    if is_noticed and tail_s > least_s:
        parts.append(
            f"fewer than {plan.slots} slots busy for the last {tail_s:.1f} s, for {last.case}"
        )
    expected_s = plan.total_s - plan.startup_s * len(plan.pieces)
    error_s = found.total_s - expected_s
    if expected_s > 0 and not plan.guessed and abs(error_s) > least_s * plan.slots:
        parts.append(_describe_error(error_s / expected_s))
    if is_noticed and not parts:
        parts.append("starting processes, and slots that waited for a build")
    return "; ".join(parts)


def _describe_error(ratio: float) -> str:
    """The time that cases took, relative to the predicted time."""
    if ratio > 1:
        return f"cases took {1 + ratio:.1f} times as long as predicted"
    return (
        f"cases took {abs(100 * ratio):.0f} % {'more' if ratio > 0 else 'less'} time than predicted"
    )


def _explain_steps(steps: Sequence[StepSpan], spans: Sequence[Span], whole_s: float) -> str:
    """The time of golden and check steps, if it is a notable part of the whole."""
    took = {
        kind: [one.end - one.begin for one in steps if one.step == kind]
        for kind in ("golden", "check")
    }
    total_s = sum(map(sum, took.values()))
    if total_s <= NOTICED * whole_s:
        return ""
    shown = " and ".join(
        f"{count_of(len(all_s), f'{kind} step')} took {sum(all_s):.1f} s"
        for kind, all_s in took.items()
        if all_s
    )
    after_s = max(one.end for one in steps) - max(span.end for span in spans)
    tail = f", {after_s:.1f} s of it after the last run" if after_s > NOTICED * whole_s else ""
    return f"beside the runs {shown}{tail}"


def _find_tail(spans: list[Span], slots: int) -> float:
    """The time from which on fewer than ``slots`` ran, until the end."""
    changes = sorted([(s.begin, 1) for s in spans] + [(s.end, -1) for s in spans])
    running, full_until = 0, spans[0].begin
    for at, change in changes:
        if running >= slots and change < 0:
            full_until = at
        running += change
    return full_until
