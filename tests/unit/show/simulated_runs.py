"""Event streams of runs with known spans of an author, compile workers, devices and a judge."""

import random
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.unit.show.run_events import WORK

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
    JudgeAnswered,
    PreparationEnded,
    RunEnded,
    RunStarted,
)
from tileyard.base.model import Case, Device, Outcome, Trial
from tileyard.show.timeline import SpanKind

EPOCH = 1_800_000_000.0


class Happened(NamedTuple):
    """A span that the fold must find: its lane, and milliseconds since the run began."""

    lane: str
    kind: SpanKind
    cases: tuple[str, ...]
    begin: int
    end: int


@dataclass
class SimulatedRun:
    """A run that is being simulated: its ``events`` with their times, and what ``happened``."""

    chance: random.Random
    workers: int = 2
    devices: tuple[str, ...] = ("cpu:0", "board:1@far")
    happened: list[Happened] = field(default_factory=list)
    timed: list[tuple[int, Event]] = field(default_factory=list)

    def add(self, at: int, event: Event) -> None:
        """An event at a time."""
        self.timed.append((at, event))

    @property
    def events(self) -> list[Event]:
        """The stream: by time, and in the order of their making where that is the same."""
        devices = tuple(Device(name=name, kind="cpu", identity="x") for name in self.devices)
        begun = RunStarted(run="r", title="tune gemm", at=EPOCH, target="cpu", devices=devices)
        ordered = [event for _, event in sorted(self.timed, key=lambda one: one[0])]
        end = RunEnded(run="r", at=EPOCH + self.end / 1000 + 0.25, reason="done")
        return [begun, *ordered, end]

    @property
    def end(self) -> int:
        """When the last thing happened."""
        return max((at for at, _ in self.timed), default=0)

    def go(self, cases: int) -> None:
        """Simulate so many cases."""
        ready = self._build(self._prepare(cases))
        self._run(ready)
        self.happened.sort(key=lambda one: (one.lane, one.begin))

    def _span(self, *values: object) -> None:
        self.happened.append(Happened(*values))  # type: ignore[arg-type]  # the fields

    def _prepare(self, cases: int) -> dict[str, int]:
        """The author prepares one case after another; when each is prepared."""
        at, done = 0, {}
        for number in range(cases):
            key = f"c{number:04}"
            self.add(at, CasePlanned(case=Case(id=key, work=WORK), batch=key))
            begin, at = at, at + self.chance.randint(3, 40)
            seconds = (at - begin) / 1000
            self.add(at, PreparationEnded(case=key, at=EPOCH + at / 1000, seconds=seconds))
            self._span("author 0", "preparing", (key,), begin, at)
            done[key] = at
        return done

    def _build(self, prepared: dict[str, int]) -> dict[str, int]:
        """Workers build one to three cases per request; when each is built. One in eight fails."""
        left, free, built = list(prepared), [0] * self.workers, dict[str, int]()
        while left:
            group = [left.pop(0) for _ in range(min(len(left), self.chance.randint(1, 3)))]
            worker = min(range(self.workers), key=lambda one: free[one])
            begin = max(free[worker], *(prepared[case] for case in group))
            free[worker] = end = begin + self.chance.randint(30, 400)
            for case in group:
                self.add(begin, BuildStarted(case=case, at=EPOCH + begin / 1000, worker=worker))
            for case in group:
                ok = self.chance.random() > 0.125
                self.add(end, BuildEnded(case=case, at=EPOCH + end / 1000, ok=ok, reused=False))
                if ok:
                    built[case] = end
                else:
                    self._end(case, Outcome.COMPILE_ERROR, end)
            self._span(f"worker {worker}", "building", tuple(group), begin, end)
        return built

    def _run(self, built: dict[str, int]) -> None:
        free = dict.fromkeys(self.devices, -1)
        judge = 0
        for case, ready in sorted(built.items(), key=lambda one: one[1]):
            device = min(free, key=lambda one: free[one])
            begin = max(free[device], ready)
            if free[device] < 0:
                begin = self._lease(device, ready)
            elif self.chance.random() < 0.3:
                self.add(
                    begin, DevicePaused(device=device, at=EPOCH + begin / 1000, reason="quiet")
                )
                waited, begin = begin, begin + self.chance.randint(1, 50)
                self._span(device, "paused", (), waited, begin)
            if self.chance.random() < 0.1:
                begin = self._begin(case, device, begin)  # its device fails it once
            left = free[device] = self._begin(case, device, begin)
            asked = max(judge, left)
            judge = asked + self.chance.randint(1, 10)
            at, seconds = EPOCH + judge / 1000, (judge - asked) / 1000
            self.add(judge, JudgeAnswered(cases=(case,), at=at, seconds=seconds))
            self._span("judge", "judging", (case,), asked, judge)
            outcome = self.chance.choice([Outcome.PASSED, Outcome.PASSED, Outcome.MISMATCH])
            self._end(case, outcome, judge)
        for device, at in free.items():
            if at >= 0:
                self.add(self.end, DeviceReleased(device=device, at=EPOCH + self.end / 1000))

    def _lease(self, device: str, at: int) -> int:
        """When a device comes that is asked for now; in half of the cases somebody else has it."""
        self.add(at, DeviceAsked(device=device, at=EPOCH + at / 1000))
        begin, at = at, at + self.chance.randint(5, 300)
        self._span(device, "starting", (), begin, at)
        if self.chance.random() < 0.5:
            self.add(at, DeviceAwaited(device=device, at=EPOCH + at / 1000, place=1, holder="ada"))
            begin, at = at, at + self.chance.randint(5, 300)
            self._span(device, "waiting", (), begin, at)
        self.add(at, DeviceLeased(device=device, at=EPOCH + at / 1000, lease=1))
        return at

    def _begin(self, case: str, device: str, begin: int) -> int:
        end = begin + self.chance.randint(5, 200)
        self.add(begin, CaseStarted(case=case, device=device, at=EPOCH + begin / 1000))
        self.add(end, CaseLeft(case=case, device=device, at=EPOCH + end / 1000))
        self._span(device, "running", (case,), begin, end)
        return end

    def _end(self, case: str, outcome: Outcome, at: int) -> None:
        trial = Trial(id=f"r.{case}", run="r", case=case, batch=case, target="cpu", outcome=outcome)
        self.add(at, CaseEnded(trial=trial, at=EPOCH + at / 1000))


def simulate(seed: int, cases: int, workers: int = 2) -> SimulatedRun:
    """A run of so many cases, always the same for a seed."""
    run = SimulatedRun(random.Random(seed), workers=workers)
    run.go(cases)
    return run
