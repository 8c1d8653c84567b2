"""How long a run's cases took on their devices, beside what was possible, and where the rest went."""

from collections.abc import Iterable, Mapping, Sequence

from tileyard.events import BuildStarted, CaseEnded, CaseStarted, Event
from tileyard.model import Record
from tileyard.suite.records import Plan
from tileyard.suite.result import Makespan

NOTICED = 0.01
"""A part of the gap is told of if it is at least this share of the whole."""


class Span(Record):
    """When a case ran on which device, in seconds since the epoch."""

    case: str
    device: str
    begin: float
    end: float


class Startup(Record):
    """What starting cost, in seconds; None is what could not be told.

    ``startup_s`` is that of a piece, ``launch_s`` the part of it in which no other could start, and
    ``lead_s`` what lay before the first case of the run.
    """

    startup_s: float
    launch_s: float | None
    lead_s: float | None


class Achieved:
    """A listener that keeps when every case ran. ``has_built`` says that something had to be built."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.has_built = False
        self._begun: dict[str, tuple[str, float]] = {}

    def __call__(self, event: Event) -> None:
        """Note the begin and the end of a case on its device."""
        match event:
            case BuildStarted():
                self.has_built = True
            case CaseStarted(case=case, device=device, at=at):
                self._begun[case] = (device, at)
            case CaseEnded(trial=trial) if trial.key in self._begun:
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


def measure_makespans(spans: Iterable[Span], plan: Plan, began: float) -> list[Makespan]:
    """What these spans come to under a plan that was begun at that time; none where nothing ran."""
    ordered = sorted(spans, key=lambda span: span.begin)
    if not ordered:
        return []
    took: dict[str, float] = {}
    for span in ordered:
        took[span.case] = took.get(span.case, 0.0) + span.end - span.begin
    total_s = sum(took.values())
    longest_s = max(sum(took.get(case, 0.0) for case in piece.cases) for piece in plan.pieces)
    bound_s = max(longest_s, total_s / plan.slots)
    achieved_s = max(span.end for span in ordered) - began
    return [
        Makespan(
            slots=plan.slots,
            total_s=total_s,
            bound_s=bound_s,
            predicted_s=plan.predicted_s,
            achieved_s=achieved_s,
            guessed=plan.guessed,
            reason=_explain(ordered, took, plan, began, achieved_s - bound_s),
        )
    ]


def measure_startup(spans: Sequence[Span], plan: Plan, lead_from: float | None) -> Startup | None:
    """What starting has cost in a run that was begun at that time; None where too little ran to tell.

    Of a piece it is the lower quartile of what lay between two pieces on the same device: above it, a
    device also waited for what was not ready.
    """
    piece_of = {case: piece for piece in plan.pieces for case in piece.cases}
    last: dict[str, Span] = {}
    gaps_s = []
    for span in sorted(spans, key=lambda span: span.begin):
        before = last.get(span.device)
        if before is not None and piece_of[before.case] is not piece_of[span.case]:
            gaps_s.append(max(0.0, span.begin - before.end))
        last[span.device] = span
    if not gaps_s:
        return None
    startup_s = sorted(gaps_s)[len(gaps_s) // 4]
    if lead_from is None:
        return Startup(startup_s=startup_s, launch_s=None, lead_s=None)
    lead_s = min(span.begin for span in spans) - lead_from
    return Startup(startup_s=startup_s, launch_s=_measure_launch(spans), lead_s=lead_s)


def _measure_launch(spans: Iterable[Span]) -> float | None:
    """How far apart devices were given their first cases, before any had ended its own."""
    first: dict[str, Span] = {}
    for span in sorted(spans, key=lambda span: span.begin):
        first.setdefault(span.device, span)
    until = min(span.end for span in first.values())
    begins = [span.begin for span in first.values() if span.begin <= until]
    return (begins[-1] - begins[0]) / (len(begins) - 1) if len(begins) > 1 else None


def join_makespans(makespans: Sequence[Makespan]) -> Makespan | None:
    """Parts that ran side by side, as a whole; None if there was none."""
    if len(makespans) < 2:
        return makespans[0] if makespans else None
    return Makespan(
        slots=sum(part.slots for part in makespans),
        total_s=sum(part.total_s for part in makespans),
        bound_s=max(part.bound_s for part in makespans),
        predicted_s=max(part.predicted_s for part in makespans),
        achieved_s=max(part.achieved_s for part in makespans),
        guessed=sum(part.guessed for part in makespans),
        reason="; ".join(part.reason for part in makespans if part.reason),
    )


def _explain(
    spans: list[Span], took: Mapping[str, float], plan: Plan, began: float, gap_s: float
) -> str:
    """Where the time beyond the bound went: before the first case, at the end, in between."""
    last = max(spans, key=lambda span: span.end)
    whole_s = last.end - began
    least_s = NOTICED * whole_s
    lead_s = spans[0].begin - began
    tail_at = _find_tail(spans, min(plan.slots, len(spans)))
    tail_s = last.end - tail_at
    parts = []
    is_noticed = gap_s > least_s
    if is_noticed and lead_s > least_s:
        parts.append(f"{lead_s:.1f} s before the first case could start")
    if is_noticed and tail_s > least_s:
        parts.append(
            f"{tail_s:.1f} s at the end with fewer than {plan.slots} at work, for {last.case}"
        )
    expected_s = plan.total_s - plan.startup_s * len(plan.pieces)
    if expected_s > 0 and abs(ratio := sum(took.values()) / expected_s - 1) > NOTICED:
        parts.append(f"cases took {ratio:+.0%} against what was expected")
    if is_noticed and not parts:
        parts.append("starting processes, and slots that waited for a build")
    return "; ".join(parts)


def _find_tail(spans: list[Span], slots: int) -> float:
    """From when on fewer than ``slots`` ran, until the end."""
    changes = sorted([(s.begin, 1) for s in spans] + [(s.end, -1) for s in spans])
    running, full_until = 0, spans[0].begin
    for at, change in changes:
        if running >= slots and change < 0:
            full_until = at
        running += change
    return full_until
