"""The state of a run: one fold of its events, read by every report on a run in progress. Pure: the
caller passes the time, in seconds of a clock that never goes back. Ended cases are counted; failed
ones keep name and message. Unplanned cases' events change nothing, but their end.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, assert_never

import msgspec

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
    HostLost,
    JudgeAnswered,
    Note,
    PairsCounted,
    PreparationEnded,
    RepetitionStarted,
    RunEnded,
    RunStarted,
    StepEnded,
    StopReason,
    StudyAdvanced,
    TargetsBuilt,
    is_final,
    is_meeting,
)
from tileyard.base.model import WELL, Case, Outcome, Record, Trial, is_retried, median_ns
from tileyard.base.wording import say_end
from tileyard.show.words import format_share, leave_out_numbers, why

USUAL = frozenset({Outcome.PASSED, Outcome.UNCHECKED, Outcome.MISMATCH})
"""Outcomes of cases that ran for their usual time. A crash or a hang predicts nothing of other cases."""
DOUBT = 3
"""Number of measured cases that weigh as much as the expectation itself."""
NO_RUN = RunStarted(run="", at=0.0, title="", target="", devices=())
LOSSES: Mapping[Outcome, str] = {
    Outcome.MISMATCH: "wrong",
    Outcome.COMPILE_ERROR: "not built",
    Outcome.RUNTIME_ERROR: "failed to run",
    Outcome.CRASHED: "crashed",
    Outcome.TIMEOUT: "timed out",
    Outcome.OUT_OF_MEMORY: "out of memory",
    Outcome.QUEUE_TIMEOUT: "without a device",
    Outcome.INFRA_ERROR: "lost to the host",
}
"""How cases fail, in a few words."""
Verdict = Literal["passed", "flaky", "retried", "failed", "not_run"]


class Judged(Record):
    """An attempt that ended, and its case's verdict: ``passed``, ``flaky``, ``failed`` and
    ``not_run`` are final, ``retried`` is not. ``alike`` counts configs that failed before with the
    same message, but for numbers.
    """

    verdict: Verdict
    trial: Trial
    alike: int = 0


Change = RunStarted | DeviceAwaited | Judged | Note | HostLost | HostJoined | RunEnded
"""A change that reports print. Of the waits for a device only the first counts."""


@dataclass(frozen=True, kw_only=True)
class Running:
    """A case on a device, for ``ran_s``. ``left_s`` is negative if it is overdue, None if unknown;
    ``limit_s`` is the time until its limit ends it.
    """

    device: str
    case: Case
    ran_s: float
    left_s: float | None
    limit_s: float

    @property
    def remaining_s(self) -> float:
        """A guess at its remaining time: a case a minute over its time takes a minute more."""
        left_s = self.left_s or 0.0
        return left_s if left_s >= 0 else min(-left_s, max(self.limit_s, 0.0))


@dataclass(kw_only=True)
class HostUse:
    """Another host: its ``devices``, how many are busy, builds under way, and cases that ended there."""

    devices: int = 0
    busy: int = 0
    building: int = 0
    ended: int = 0


@dataclass(kw_only=True)
class RunView:
    """A run at one moment, changed by ``take`` alone. Cases in progress are named by keys, others by ids.
    ``about`` is the first event, ``reason`` why it ended or None, ``changed`` the last event's effect.
    ``open`` cases have not ended; some are ``building``, ``ready``, or began at ``started_s``. ``on_device``
    and ``device_of`` map both ways; others hold ``awaited`` devices. ``counts`` has final outcomes; ``again``
    will be tried again, ``failures`` not, ``messages`` counts how; ``spared`` ones do not gate. ``best`` is
    the lowest median on each silicon, of the finals once begun. ``fresh`` cases were not known before, the
    first ended at ``fresh_s``. ``planned`` cases, retries apart, are to take ``planned_s``; ``further`` of
    them are finals and controls. ``measured`` ones took ``measured_s``, not ``foreseen_s``; ``steps`` golden
    and check steps took ``steps_s``. ``pairs`` and ``targets``: progress of a comparison, a build;
    ``study``: of a tuning run, as heard at ``study_s``; ``repetition``: of a strategy on a recorded
    space, since ``repetition_s``; those ``repeated`` before took ``repeated_s``, by strategy.
    ``building`` names the hosts that build, ``ended_on`` counts by hosts that ran; those ``lost`` do nothing.
    """

    about: RunStarted = NO_RUN
    begun_s: float = 0.0
    reason: StopReason | None = None
    changed: Change | None = None
    spared: frozenset[str] = frozenset()
    planned: int = 0
    planned_s: float = 0.0
    open: dict[str, CasePlanned] = field(default_factory=dict)
    building: dict[str, str] = field(default_factory=dict)
    ready: set[str] = field(default_factory=set)
    started_s: dict[str, float] = field(default_factory=dict)
    on_device: dict[str, str] = field(default_factory=dict)
    device_of: dict[str, str] = field(default_factory=dict)
    awaited: dict[str, None] = field(default_factory=dict)
    counts: Counter[Outcome] = field(default_factory=Counter)
    again: dict[str, Outcome] = field(default_factory=dict)
    failures: dict[str, Outcome] = field(default_factory=dict)
    messages: Counter[tuple[Verdict, str]] = field(default_factory=Counter)
    flaky: list[str] = field(default_factory=list)
    reused: int = 0
    further: Counter[Literal["planned", "ended", "reused"]] = field(default_factory=Counter)
    fresh: int = 0
    fresh_s: float = 0.0
    best: dict[str, Trial] = field(default_factory=dict)
    exceeded: Counter[str] = field(default_factory=Counter)
    measured: int = 0
    measured_s: float = 0.0
    foreseen_s: float = 0.0
    steps: int = 0
    steps_s: float = 0.0
    pairs: PairsCounted | None = None
    targets: TargetsBuilt | None = None
    study: StudyAdvanced | None = None
    study_s: float = 0.0
    repetition: RepetitionStarted | None = None
    repetition_s: float = 0.0
    repeated: Counter[str] = field(default_factory=Counter)
    repeated_s: dict[str, float] = field(default_factory=dict)
    ended_on: Counter[str] = field(default_factory=Counter)
    lost: dict[str, HostLost] = field(default_factory=dict)

    # ---- the fold ----------------------------------------------------------------------------

    def take(self, event: Event, at_s: float) -> None:
        """Process the next event, received at that time. A first event resets the view."""
        self.changed = None
        match event:  # the most frequent ones first
            case CasePlanned():
                self._plan(event)
            case PreparationEnded() | JudgeAnswered() | DeviceAsked() | DevicePaused():
                pass
            case BuildStarted(case=key, host=host):
                if key in self.open:
                    self.building[key] = host
            case BuildEnded(case=key):
                self._end_build(key)
            case CaseStarted(case=key, device=device):
                if key in self.open:
                    self._start(key, device, at_s)
            case CaseEnded(trial=trial):
                self._end(trial, at_s)
            case DeviceAwaited() | DeviceLeased() | DeviceReleased() | CaseLeft():
                self._lend(event)
            case StepEnded(seconds=seconds):
                self.steps += 1
                self.steps_s += seconds
            case PairsCounted() | TargetsBuilt() | StudyAdvanced() | RepetitionStarted():
                self._count(event, at_s)
            case Note() | HostLost() | HostJoined():
                self._tell(event)
            case RunStarted(spared=spared):
                begun = RunView(about=event, begun_s=at_s, spared=frozenset(spared), changed=event)
                vars(self).update(vars(begun))
            case RunEnded():
                self._stop(event)
            case _:
                assert_never(event)

    def _plan(self, planned: CasePlanned) -> None:
        case = planned.case
        self.open[case.key] = planned
        if case.attempt == 1:
            self.planned += 1
            is_further = case.control or is_final(planned) or is_meeting(planned)
            self.further["planned"] += is_further
            self.planned_s += case.expected_s or 0.0
        elif (outcome := self.failures.pop(case.id, None)) is not None:
            self.counts[outcome] -= 1  # an attempt that no event had announced
            self.again[case.id] = outcome

    def _count(
        self, counted: PairsCounted | TargetsBuilt | StudyAdvanced | RepetitionStarted, at_s: float
    ) -> None:
        if isinstance(counted, PairsCounted):
            self.pairs = counted
        elif isinstance(counted, RepetitionStarted):
            self._repeat(counted, at_s)
        elif isinstance(counted, StudyAdvanced):
            self.study, self.study_s = counted, at_s
        else:
            self.targets = counted

    def _repeat(self, begun: RepetitionStarted, at_s: float) -> None:
        if self.repetition is not None:
            name = self.repetition.strategy
            self.repeated[name] += 1
            self.repeated_s[name] = self.repeated_s.get(name, 0.0) + at_s - self.repetition_s
        self.repetition, self.repetition_s = begun, at_s

    def _tell(self, told: Note | HostLost | HostJoined) -> None:
        self.changed = told
        if isinstance(told, HostLost):
            self.lost[told.host] = told
        elif isinstance(told, HostJoined):
            self.lost.pop(told.host, None)
            devices = (*self.about.devices, *told.devices)
            self.about = msgspec.structs.replace(self.about, devices=devices)

    def _end_build(self, key: str) -> None:
        self.building.pop(key, None)
        if key in self.open:
            self.ready.add(key)

    def _lend(self, event: DeviceAwaited | DeviceLeased | DeviceReleased | CaseLeft) -> None:
        device = event.device
        if isinstance(event, CaseLeft):
            if self.on_device.get(device) == event.case:
                self._leave(device)
        elif isinstance(event, DeviceAwaited):
            if device not in self.awaited:
                self.changed = event
            self.awaited[device] = None
        else:
            self.awaited.pop(device, None)
            if isinstance(event, DeviceReleased):
                self._leave(device)

    def _start(self, key: str, device: str, at_s: float) -> None:
        """A device starts a case, which no other device runs any more."""
        self._leave(self.device_of.get(key, device))
        self._leave(device)
        self.lost.pop(host_of(device), None)
        self.on_device[device], self.device_of[key] = key, device
        self.started_s[key] = at_s

    def _leave(self, device: str) -> None:
        key = self.on_device.pop(device, None)
        if key is not None:
            del self.device_of[key]

    def _end(self, trial: Trial, at_s: float) -> None:
        key = trial.key
        if not trial.reused:
            self.fresh_s = self.fresh_s if self.fresh else at_s
            self.fresh += 1
            self.ended_on[host_of(trial.device)] += 1
        if key in self.device_of:
            self._leave(self.device_of[key])
        self.started_s.pop(key, None)
        self.building.pop(key, None)
        self.ready.discard(key)
        self.reused += trial.reused
        is_further = trial.control or is_final(trial) or is_meeting(trial)
        self.further["ended"] += is_further
        self.further["reused"] += is_further and trial.reused
        planned = self.open.pop(key, None)
        expected_s = planned.case.expected_s if planned is not None else None
        if expected_s and trial.run_s and not trial.reused and trial.outcome in USUAL:
            self.measured += 1
            self.measured_s += trial.run_s
            self.foreseen_s += expected_s
        verdict, alike = self._judge(trial), 0
        if verdict in ("failed", "retried"):
            said = (verdict, kind_of(trial))
            alike, self.messages[said] = self.messages[said], self.messages[said] + 1
        self.changed = Judged(verdict=verdict, trial=trial, alike=alike)

    def _stop(self, ended: RunEnded) -> None:
        self.reason, self.changed = ended.reason, ended
        self.counts.update(self.again.values())  # nothing is tried again now
        self.failures.update(self.again)
        self.again.clear()

    def _judge(self, trial: Trial) -> Verdict:
        """Decide whether an outcome is final. A run that was stopped tries nothing again."""
        case, outcome = trial.case, trial.outcome
        is_stopped = bool(self.counts[Outcome.NOT_RUN])
        self.again.pop(case, None)
        if not is_stopped and is_retried(outcome, trial.attempt, self.about.retries):
            self.again[case] = outcome
            return "retried"
        self.counts[outcome] += 1
        if outcome is Outcome.NOT_RUN:
            return "not_run"
        if outcome not in WELL:
            self.failures[case] = outcome
            self.exceeded[trial.exceeds] += bool(trial.exceeds)
            return "failed"
        best = self.best.get(trial.silicon)
        if (
            trial.measurement is not None
            and not trial.control
            and (best is None or _is_better(trial, best))
        ):
            self.best[trial.silicon] = trial
        if trial.attempt > 1:
            self.flaky.append(case)
            return "flaky"
        return "passed"

    # ---- derived ------------------------------------------------------------------------------

    @property
    def ended(self) -> int:
        """Number of cases that have their outcome."""
        return self.counts.total()

    @property
    def built(self) -> int:
        """Number of cases that need no build any more."""
        return self.ended + len(self.ready)

    @property
    def losses(self) -> dict[str, int]:
        """The numbers of cases that failed, and of configs rejected untried, by reason, most first."""
        failed = Counter({word: self.counts[outcome] for outcome, word in LOSSES.items()})
        failed[LOSSES[Outcome.COMPILE_ERROR]] -= self.exceeded.total()
        large = {say_end("", limit): count for limit, count in self.exceeded.items()}
        rejected = {} if self.study is None else self.study.rejected
        by_reason = failed + Counter(
            large | {f"rejected by {why}": n for why, n in rejected.items()}
        )
        return dict(by_reason.most_common())

    @property
    def hosts(self) -> dict[str, HostUse]:
        """The use of each other host, in the order of their devices."""
        found: dict[str, HostUse] = {}
        for device in self.about.devices:
            found.setdefault(host_of(device.name), HostUse()).devices += 1
        for name in self.on_device:
            found.setdefault(host_of(name), HostUse()).busy += 1
        for host in self.building.values():
            found.setdefault(host, HostUse()).building += 1
        for host, use in found.items():
            use.ended = self.ended_on[host]
        found.pop("", None)
        return found

    @property
    def ratio(self) -> float:
        """Measured times relative to expected ones; 1 as long as little is measured."""
        if not self.measured:
            return 1.0
        doubt_s = DOUBT * self.foreseen_s / self.measured
        return (self.measured_s + doubt_s) / (self.foreseen_s + doubt_s)

    def running(self, now_s: float) -> list[Running]:
        """The cases on devices, the one with most time left first."""
        ratio = self.ratio
        found = []
        for device, key in self.on_device.items():
            case, ran_s = self.open[key].case, now_s - self.started_s[key]
            left_s = None if case.expected_s is None else ratio * case.expected_s - ran_s
            limit_s = case.limits.run_s - ran_s
            found.append(
                Running(device=device, case=case, ran_s=ran_s, left_s=left_s, limit_s=limit_s)
            )
        return sorted(found, key=lambda one: (-one.remaining_s, -one.ran_s))

    def pace_left_s(self, now_s: float) -> float | None:
        """Time until a study ends, as it says; else until the last announced case, or repetition, ends at the
        past pace, or the budget does. None if unknown.
        """
        if self.repetition is not None:
            return self._repetitions_left_s(self.repetition.left, now_s - self.repetition_s)
        if self.study is not None:
            told_s = self.study.left_s
            return None if told_s is None else max(told_s - (now_s - self.study_s), 0.0)
        left = self.about.cases - self.ended
        if self.fresh < 2 or left <= 0:
            return None
        left_s = left * (now_s - self.fresh_s) / (self.fresh - 1)
        budget_s = self.about.budget_left_s
        return (
            left_s if budget_s is None else min(left_s, max(budget_s - (now_s - self.begun_s), 0.0))
        )

    def _repetitions_left_s(self, left: Mapping[str, int], spent_s: float) -> float | None:
        """As many of each strategy as are left; one that has not ended yet takes as long as the others."""
        if not self.repeated:
            return None
        usual_s = sum(self.repeated_s.values()) / self.repeated.total()
        each_s = {name: took_s / self.repeated[name] for name, took_s in self.repeated_s.items()}
        left_s = sum(count * each_s.get(name, usual_s) for name, count in left.items())
        return max(left_s - spent_s, 0.0)

    def left_s(self, now_s: float) -> float | None:
        """Time until the last case ends, its check included; None if no expectation is known."""
        devices_s = self._devices_left_s(now_s)
        return None if devices_s is None else max(devices_s, self._steps_left_s())

    def _steps_left_s(self) -> float:
        about = self.about
        left = min(about.steps - self.steps, 2 * (len(self.open) + self._unplanned))
        if left <= 0 or not about.lanes:
            return 0.0
        each_s = (self.steps_s + DOUBT * about.steps_s / about.steps) / (self.steps + DOUBT)
        return left * each_s / about.lanes

    @property
    def _unplanned(self) -> int:
        return max(0, self.about.cases - self.planned)

    def _devices_left_s(self, now_s: float) -> float | None:
        ratio, running = self.ratio, self.running(now_s)
        batches: dict[str, float] = {}  # the work left in each, in the order of planning
        for key, planned in self.open.items():
            batch = planned.batch or key
            batches[batch] = batches.get(batch, 0.0) + (planned.case.expected_s or 0.0)
        work_s = ratio * (sum(batches.values()) + self._unplanned_s())
        if work_s <= 0:
            return None
        slots = max(len(self.about.devices) - len(self.awaited), len(running), 1)
        begun = set()
        ends_s = []  # when each of the slots in use has ended its batch, whose cases run one by one
        for one in running:
            batch = self.open[one.case.key].batch or one.case.key
            begun.add(batch)
            if one.case.expected_s is not None:
                grown_s = one.remaining_s - ratio * one.case.expected_s
                work_s += grown_s
                ends_s.append(ratio * batches[batch] + grown_s)
        next_s = next((left_s for batch, left_s in batches.items() if batch not in begun), 0.0)
        next_s = min(ends_s) + ratio * next_s if len(ends_s) >= slots else 0.0
        return max(0.0, work_s / slots, max(ends_s, default=0.0), next_s)

    def _unplanned_s(self) -> float:
        unplanned = self._unplanned
        if not unplanned or not self.planned:
            return self.about.expected_s if unplanned else 0.0
        if self.about.expected_s:
            return max(0.0, self.about.expected_s - self.planned_s)
        return unplanned * self.planned_s / self.planned


def host_of(device: str) -> str:
    """The other host that a device is of; empty for one of this host."""
    return device.partition("@")[2]


def kind_of(trial: Trial) -> str:
    """The part of a message that failures share which are alike: those of configs differ in numbers."""
    if trial.testcase:
        return why(trial)
    wrong = trial.mismatch
    if wrong is None:
        return leave_out_numbers(why(trial))
    return f"{wrong.output}, {format_share(wrong.wrong / max(wrong.total, 1))} wrong"


def _is_better(trial: Trial, best: Trial) -> bool:
    """Whether a trial's time counts more than that of the best one so far, or is lower."""
    return (not is_final(trial), median_ns(trial)) < (not is_final(best), median_ns(best))
