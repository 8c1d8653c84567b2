"""Decides what happens next: facts in, commands out. No tasks, no processes, no clock.

One module because every rule of scheduling stands here, where each can be read beside the others.

A case goes waiting -> preparing -> prepared -> building -> built -> running (-> judging) -> ended. A batch is
ready once each of its cases is built or has ended. Only then is a device asked for, and whichever
comes first gets it. Cores are the one thing that building and timing compete for: a device that
owns cores gets them to itself while a batch is timed on it.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import ceil
from typing import assert_never

from tileyard.engine.builds import BuildQueue
from tileyard.engine.commands import (
    Acquire,
    Ask,
    AuthorFreed,
    BatchesPlanned,
    Build,
    BuildFailed,
    CaseBuilt,
    CaseFinished,
    CaseLost,
    CasePrepared,
    CaseRanWell,
    Command,
    CompilerFreed,
    Drop,
    Fact,
    GiveUp,
    LeaseAwaited,
    Leased,
    LeaseFailed,
    Linger,
    LingerOver,
    LookAfter,
    LookUp,
    NothingKnown,
    Prepare,
    Readmitted,
    Release,
    Released,
    Run,
    RunOver,
    StopAsked,
    Strand,
    TrimAsked,
)
from tileyard.engine.lending import Borrowing, Lease, Lending
from tileyard.engine.ready import Ready, ReadyQueue
from tileyard.engine.stages import LEGAL_MOVES, UNSTARTED, Site, Stage
from tileyard.model import Batch, Case, Outcome

MAX_RETRIES = 2
"""How often a case that its device or host failed is run again."""
RUN_S = 0.25
"""Cases are handed to a device together, as many as run in about this time, but at most half of
its share of what is ready: hand-over costs a few milliseconds, in which the device does nothing."""
MAX_RUN = 64
"""The most cases that are handed over together."""
HOT_S = 0.02
"""Cases so short that several run in this time are also prepared and planned in numbers."""
MAX_PREPARED = 16
"""How many of such cases are prepared in one go, so that they become ready together."""


@dataclass
class _BatchState:
    batch: Batch
    timed: bool
    expected_s: float | None = 0.0
    looking: bool = False
    looked_up: bool = False
    avoid: frozenset[str] = frozenset()

    @property
    def interleaved(self) -> bool:
        return self.batch.order == "interleaved"


@dataclass
class EngineState:
    """The whole state of a run; ``step`` is the only way it changes."""

    site: Site
    stages: dict[str, Stage] = field(default_factory=dict)
    _batches: dict[str, _BatchState] = field(default_factory=dict)
    _batch_of: dict[str, str] = field(default_factory=dict)
    _lost: dict[str, int] = field(default_factory=dict)
    _waiting: deque[str] = field(default_factory=deque)
    _to_build: BuildQueue = field(default_factory=BuildQueue)
    _ready: ReadyQueue = field(default_factory=ReadyQueue)
    _dropped: set[str] = field(default_factory=set)
    _trimmed: set[str] = field(default_factory=set)
    _asking: int = 0
    _building: set[int] = field(default_factory=set)
    _due: list[Command] = field(default_factory=list)
    _pace_s: float = RUN_S
    _exhausted: bool = False
    _stopping: bool = False
    _asked: bool = False
    _looked_after: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self._devices = Lending(self.site.devices)
        self._last_failed = ""

    @property
    def is_idle(self) -> bool:
        """Nothing is planned, prepared, built or run at the moment."""
        return not self._batches and not self._asking and not self._asked

    @property
    def is_stopping(self) -> bool:
        """A stop was asked for."""
        return self._stopping

    def start(self) -> list[Command]:
        """The first commands."""
        return self._decide()

    def step(self, *facts: Fact) -> list[Command]:
        """Take in facts, in order, and say what to do next."""
        for fact in facts:
            self._take_in(fact)
        return self._decide()

    def _take_in(self, fact: Fact) -> None:
        match fact:
            case BatchesPlanned():
                self._plan(fact)
            case CasePrepared():
                self._prepared(fact)
            case CaseBuilt(case=case):
                for name in self._to_build.end(case):
                    self._move(name, Stage.BUILT)
            case BuildFailed(case=case):
                self._exhausted = False
                self._to_build.fail(case)
                self._move(case, Stage.ENDED)
            case CompilerFreed(worker=worker):
                self._building.remove(worker)
            case CaseFinished():
                self._finished(fact)
            case CaseRanWell(case=case, device=device, seconds=seconds):
                self._ran(device, seconds)
                self._move(case, Stage.JUDGING)
            case CaseLost(case=case, device=device):
                self._case_lost(case, device)
            case AuthorFreed():
                self._asking -= 1
            case NothingKnown(batch=batch):
                self._batches[batch].looked_up = True
                self._settle(batch)
            case Leased() | LeaseAwaited() | LeaseFailed() | RunOver() | LingerOver() | Released():
                self._device_step(fact)
            case Readmitted(device=device):
                self._devices[device].take_back()
            case StopAsked():
                self._stopping = True
            case TrimAsked():
                self._give_up_unstarted("")
                self._trimmed = self.stages.keys() - self._dropped
            case _:
                assert_never(fact)

    # ---- facts about cases -----------------------------------------------------------------------

    def _plan(self, fact: BatchesPlanned) -> None:
        self._asked = False
        self._exhausted = fact.exhausted
        for batch in fact.batches:
            timed = any(case.timing is not None for case in batch.cases)
            self._batches[batch.id] = _BatchState(batch, timed)
            for case in batch.cases:
                self.stages[case.id] = Stage.WAITING
                self._batch_of[case.id] = batch.id
                self._waiting.append(case.id)

    def _prepared(self, fact: CasePrepared) -> None:
        state = self._batches[self._batch_of[fact.case]]
        known = fact.expected_s is not None and state.expected_s is not None
        state.expected_s = (state.expected_s or 0.0) + (fact.expected_s or 0.0) if known else None
        if fact.built:
            self._move(fact.case, Stage.BUILT)
            return
        self._move(fact.case, Stage.PREPARED)
        if fact.case not in self._dropped:
            self._to_build.add(fact.case, fact.build)

    def _finished(self, fact: CaseFinished) -> None:
        self._exhausted = False
        if fact.device:
            self._ran(fact.device, fact.seconds)
        self._move(fact.case, Stage.ENDED)

    def _ran(self, device: str, seconds: float) -> None:
        self._devices[device].strikes = 0
        self._pace_s += (seconds - self._pace_s) / 4

    def _case_lost(self, case: str, device: str) -> None:
        """Have a case run again, elsewhere if there is another device, or give it up."""
        self._lost[case] = self._lost.get(case, 0) + 1
        batch = self._batches[self._batch_of[case]]
        batch.avoid |= {device}
        if self._lost[case] > MAX_RETRIES or self._stopping or case in self._trimmed:
            self._dropped.add(case)
            self._due.append(GiveUp(case=case))

    def _move(self, case: str, stage: Stage) -> None:
        if stage not in LEGAL_MOVES[self.stages[case]]:
            raise AssertionError(f"case {case} cannot go from {self.stages[case]} to {stage}")
        self.stages[case] = stage
        if case in self._trimmed and case not in self._dropped and stage in UNSTARTED:
            self._dropped.add(case)
            self._due.append(Drop(case=case))
        if stage in (Stage.BUILT, Stage.ENDED):
            self._settle(self._batch_of[case])

    def _settle(self, batch: str) -> None:
        """Make a batch ready once none of its cases is still being prepared, built or run."""
        state = self._batches[batch]
        stages = {self.stages[case.id] for case in state.batch.cases}
        if not stages <= {Stage.BUILT, Stage.ENDED}:
            return
        if Stage.BUILT not in stages:
            self._forget(batch)
        elif not self._runnable(state):
            return
        elif state.looked_up or not state.interleaved:
            self._ready.add(self._ready_entry(state))
        elif not state.looking:
            state.looking = True
            self._due.append(LookUp(batch=batch))

    def _runnable(self, state: _BatchState) -> list[Case]:
        return [
            case
            for case in state.batch.cases
            if self.stages[case.id] is Stage.BUILT and case.id not in self._dropped
        ]

    def _ready_entry(self, state: _BatchState) -> Ready:
        batch = state.batch
        return Ready(
            batch=batch.id,
            memory_bytes=batch.cases[0].limits.memory_bytes,
            expected_s=state.expected_s,
            interleaved=state.interleaved,
            alone=batch.order != "any" or batch.process == "fresh",
            avoid=state.avoid,
        )

    def _forget(self, batch: str) -> None:
        state = self._batches.pop(batch)
        self._ready.discard(batch)
        for case in state.batch.cases:
            del self.stages[case.id], self._batch_of[case.id]
            self._to_build.forget(case.id)
            self._lost.pop(case.id, None)
            self._dropped.discard(case.id)
            self._trimmed.discard(case.id)

    # ---- facts about devices ---------------------------------------------------------------------

    def _device_step(
        self, fact: Leased | LeaseAwaited | LeaseFailed | RunOver | LingerOver | Released
    ) -> None:
        device = self._devices[fact.device]
        match fact:
            case Leased():
                # A release may have crossed with it; then Released is on the way.
                if device.lease is Lease.ASKED:
                    device.move(Lease.HELD)
            case LeaseAwaited():
                device.awaited = True
            case LeaseFailed(outcome=outcome):
                self._lease_failed(device, outcome)
            case RunOver(held=held):
                self._take_back(device)
                if not held:
                    device.move(Lease.FREE)
            case LingerOver():
                if device.lingering:
                    self._release(device)
            case Released():
                device.move(Lease.FREE)
            case _:
                assert_never(fact)

    def _take_back(self, device: Borrowing) -> None:
        """Put at the front of the queue again what a device was given and did not end."""
        left, device.running = device.running, ()
        unfinished = [c for c in left if self.stages.get(c) is Stage.RUNNING]
        behind = list(self._ready)
        for case in unfinished:
            self._move(case, Stage.BUILT)
        known = {entry.batch for entry in behind}
        self._ready.put_back([entry for entry in self._ready if entry.batch not in known])

    def _lease_failed(self, device: Borrowing, outcome: Outcome) -> None:
        self._take_back(device)
        if device.lease is Lease.RELEASING:
            return
        if outcome is not Outcome.QUEUE_TIMEOUT:
            device.strike()
            self._last_failed = device.name
            return
        device.move(Lease.FREE)
        if not self._devices.is_any_held:
            for entry in [entry for entry in self._ready if entry.asked]:
                self._ready.discard(entry.batch)
                self._strand(self._runnable(self._batches[entry.batch]), device.name)

    def _release(self, device: Borrowing) -> None:
        device.move(Lease.RELEASING)
        self._due.append(Release(device=device.name))

    # ---- decisions -----------------------------------------------------------------------------

    def _decide(self) -> list[Command]:
        if self._stopping:
            self._give_up_unstarted("")
        elif not self._devices.usable:
            self._give_up_unstarted(self._last_failed)
        self._start_runs()
        self._ask_for_devices()
        self._start_builds()
        self._start_preparing()
        self._look_after_sick()
        if not (self._stopping or self._exhausted or self._asked):
            window = max(self.site.window, 4 * self._hot * len(self.site.devices))
            if (room := window - len(self._batches)) > 0:
                self._asked = True
                self._due.append(Ask(limit=room))
        commands, self._due = self._due, []
        return commands

    @property
    def _hot(self) -> int:
        """How many of the cases at hand run in about HOT_S."""
        return self._fit_into(HOT_S)

    def _fit_into(self, span_s: float) -> int:
        return max(1, min(MAX_RUN, int(span_s / max(self._pace_s, 1e-6))))

    @property
    def _is_more_to_come(self) -> bool:
        """Something is on its way to being ready."""
        return bool(self._waiting or self._to_build or self._building or self._asking)

    def _start_runs(self) -> None:
        usable = self._devices.usable
        for device in self._devices:
            if device.lease is not Lease.HELD or device.is_busy:
                continue
            entry = self._ready.peek(device.name, usable)
            if entry is None:
                self._idle(device)
            elif entry.memory_bytes != device.memory_bytes:
                self._release(device)  # for a runner with another limit
            else:
                device.lingering = False
                device.exclusive = entry.interleaved
                if self._is_quiet(device, entry):
                    self._run(device)

    def _idle(self, device: Borrowing) -> None:
        """Keep a device for a moment only if more may come that does not need its cores first."""
        if self._shares(device) or not (self._is_more_to_come or self._asked):
            self._release(device)
        elif not device.lingering:
            device.lingering = True
            self._due.append(Linger(device=device.name))

    def _run(self, device: Borrowing) -> None:
        usable = self._devices.usable
        share = ceil(len(self._ready) / (2 * len(usable)))
        room = max(min(self._fit_into(RUN_S), share), device.site.appetite)
        taken = self._ready.take(device.name, usable, room)
        states = [self._batches[entry.batch] for entry in taken]
        cases = tuple(case.id for state in states for case in self._runnable(state))
        device.running = cases
        device.timed = any(state.timed for state in states)
        for case in cases:
            self._move(case, Stage.RUNNING)
        self._due.append(Run(device=device.name, cases=cases))

    def _ask_for_devices(self) -> None:
        """Ask for as many devices as can be used now: inputs, references and binaries are made."""
        usable = self._devices.usable
        turns = ceil(len(self._ready) / self._hot)
        coming = sum(device.is_coming for device in self._devices)
        for device in self._devices:
            is_done = not self._ready and not self._is_more_to_come
            if device.lease is Lease.ASKED and (is_done or self._stopping) and not self._asked:
                self._release(device)
            if device.lease is not Lease.FREE or coming >= turns:
                continue
            entry = self._ready.peek(device.name, usable)
            if entry is None or (self._shares(device) and not self._is_burst()):
                continue
            coming += 1
            for waiting in self._ready:
                waiting.asked = True
            device.move(Lease.ASKED)
            device.memory_bytes = entry.memory_bytes
            case = self._runnable(self._batches[entry.batch])[0]
            self._due.append(Acquire(device=device.name, case=case.id))

    def _look_after_sick(self) -> None:
        """Have devices that were given up come back while there is something for them to run."""
        is_wanted = not self._stopping and (self._ready or self._is_more_to_come)
        given_up = self._devices.given_up if is_wanted else ()
        if given_up != self._looked_after:
            self._looked_after = given_up
            self._due.append(LookAfter(devices=given_up))

    def _is_burst(self) -> bool:
        """Enough is ready to pause building, or there is nothing left that could be built."""
        enough = self.site.overlap and len(self._ready) >= self.site.burst
        return enough or not self._is_more_to_come

    def _shares(self, device: Borrowing) -> bool:
        cores = device.site.cores
        return (
            not self.site.overlap
            or not cores.isdisjoint(self.site.workers)
            or not cores.isdisjoint(self.site.author)
        )

    def _is_quiet(self, device: Borrowing, entry: Ready) -> bool:
        """Nothing of ours runs on these cores now; anywhere, if the batch is interleaved."""
        if entry.interleaved or not self.site.overlap:
            return not self._building and not self._asking
        busy = {self.site.workers[worker] for worker in self._building}
        if self._asking:
            busy |= self.site.author
        return device.site.cores.isdisjoint(busy)

    def _held(self) -> frozenset[int]:
        """Cores on which nothing may be started: a device is timing on them, or about to."""
        held: frozenset[int] = frozenset()
        for device in self._devices:
            if device.lease is not Lease.HELD or device.lingering:
                continue
            if device.exclusive or not self.site.overlap:
                return frozenset(self.site.workers) | self.site.author
            if device.timed or not device.is_busy:
                held |= device.site.cores
        return held

    def _start_builds(self) -> None:
        held = self._held()
        for worker, core in enumerate(self.site.workers):
            if not self._to_build:
                return
            if worker in self._building or core in held:
                continue
            share = ceil(len(self._to_build) / len(self.site.workers))
            cases = self._to_build.take(min(self.site.group, share))
            for case in cases:
                self._move(case, Stage.BUILDING)
            self._building.add(worker)
            self._due.append(Build(cases=cases, worker=worker))

    def _start_preparing(self) -> None:
        if self._asking >= self.site.lanes or not self._waiting:
            return
        held = self._held()
        if held and not self.site.author.isdisjoint(held):
            return
        while self._asking < self.site.lanes and self._waiting:
            count = min(self._hot, MAX_PREPARED, ceil(len(self._waiting) / self.site.lanes))
            cases = tuple(self._waiting.popleft() for _ in range(count))
            for case in cases:
                self._move(case, Stage.PREPARING)
            self._asking += 1
            self._due.append(Prepare(cases=cases))

    def _give_up_unstarted(self, device: str) -> None:
        """Give up every case that no process works on, for want of ``device`` if that is given."""
        names = [case for case, stage in self.stages.items() if stage in UNSTARTED]
        for case in names:
            if case not in self._dropped:
                self._dropped.add(case)
                self._due.append(Strand(case=case, device=device) if device else Drop(case=case))
        self._waiting.clear()
        self._to_build.clear()
        self._ready.clear()

    def _strand(self, cases: Iterable[Case], device: str) -> None:
        for case in cases:
            self._dropped.add(case.id)
            self._due.append(Strand(case=case.id, device=device))
