"""Decides what happens next: facts in, commands out. No tasks, no processes, no clock.

One module because every rule of scheduling stands here, where each can be read beside the others.

A case goes waiting -> preparing -> prepared -> building -> built -> running -> ended. A batch is
ready once each of its cases is built or has ended. Cores are the one thing that building and
timing compete for: a device that owns cores gets them to itself while a batch is timed on it.
"""

import enum
from collections import deque
from dataclasses import dataclass, field
from typing import assert_never

from tileyard.engine.commands import (
    Ask,
    AuthorFreed,
    BatchesPlanned,
    BatchRun,
    Build,
    BuildFailed,
    CaseBuilt,
    CaseFinished,
    CasePrepared,
    Command,
    Drop,
    Fact,
    Prepare,
    Run,
    StopAsked,
    TrimAsked,
)
from tileyard.model import Batch, BuildKey, Record


class Stage(enum.Enum):
    """Where a case stands."""

    WAITING = "waiting"
    PREPARING = "preparing"
    PREPARED = "prepared"
    BUILDING = "building"
    BUILT = "built"
    RUNNING = "running"
    ENDED = "ended"


LEGAL_MOVES: dict[Stage, frozenset[Stage]] = {
    Stage.WAITING: frozenset({Stage.PREPARING, Stage.ENDED}),
    Stage.PREPARING: frozenset({Stage.PREPARED, Stage.BUILT, Stage.ENDED}),
    Stage.PREPARED: frozenset({Stage.BUILDING, Stage.BUILT, Stage.ENDED}),
    Stage.BUILDING: frozenset({Stage.BUILT, Stage.ENDED}),
    Stage.BUILT: frozenset({Stage.RUNNING, Stage.ENDED}),
    Stage.RUNNING: frozenset({Stage.ENDED}),
    Stage.ENDED: frozenset(),
}


class Site(Record):
    """The machine as the engine may use it.

    ``workers`` are compile workers, each pinned to a core. ``devices`` maps a device's name to the
    cores that it owns while timing. ``author`` is the cores on which the author may run.
    ``window`` bounds the batches that are planned and not yet run; ``burst`` is how many must be
    ready before building is paused for a device that shares its cores.
    """

    workers: tuple[int, ...]
    devices: dict[str, frozenset[int]]
    author: frozenset[int]
    window: int = 16
    burst: int = 8
    overlap: bool = True


@dataclass
class _BatchState:
    batch: Batch
    timed: bool
    running: bool = False


@dataclass
class EngineState:
    """The whole state of a run; ``step`` is the only way it changes."""

    site: Site
    stages: dict[str, Stage] = field(default_factory=dict)
    _batches: dict[str, _BatchState] = field(default_factory=dict)
    _batch_of: dict[str, str] = field(default_factory=dict)
    _key_of: dict[str, BuildKey] = field(default_factory=dict)
    _waiting: deque[str] = field(default_factory=deque)
    _to_build: deque[str] = field(default_factory=deque)
    _followers: dict[BuildKey, list[str]] = field(default_factory=dict)
    _ready: deque[str] = field(default_factory=deque)
    _dropped: set[str] = field(default_factory=set)
    _author_busy: bool = False
    _building: dict[int, str] = field(default_factory=dict)
    _running: dict[str, str] = field(default_factory=dict)
    _wanted: set[str] = field(default_factory=set)
    _exhausted: bool = False
    _stopping: bool = False
    _asked: bool = False

    @property
    def is_idle(self) -> bool:
        """Nothing is planned, prepared, built or run at the moment."""
        return not self._batches and not self._author_busy and not self._asked

    @property
    def is_stopping(self) -> bool:
        """A stop was asked for."""
        return self._stopping

    def start(self) -> list[Command]:
        """The first commands."""
        return self._decide()

    def step(self, fact: Fact) -> list[Command]:
        """Take in a fact and say what to do next."""
        match fact:
            case BatchesPlanned():
                self._plan(fact)
            case CasePrepared():
                self._prepared(fact)
            case CaseBuilt(case=case, worker=worker):
                self._building.pop(worker)
                for name in (case, *self._followers.pop(self._key_of[case], [])):
                    self._move(name, Stage.BUILT)
            case BuildFailed(case=case, worker=worker):
                self._building.pop(worker)
                self._exhausted = False
                self._retry_followers(case)
                self._move(case, Stage.ENDED)
            case CaseFinished(case=case):
                self._exhausted = False
                self._move(case, Stage.ENDED)
            case AuthorFreed():
                self._author_busy = False
            case BatchRun(batch=batch, device=device):
                self._running.pop(device)
                self._forget(batch)
            case StopAsked():
                self._stopping = True
            case TrimAsked():
                trimmed: list[Command] = []
                self._drop_unstarted(trimmed)
                return trimmed + self._decide()
            case _:
                assert_never(fact)
        return self._decide()

    # ---- facts ---------------------------------------------------------------------------------

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
        self._key_of[fact.case] = fact.build
        if fact.built:
            self._move(fact.case, Stage.BUILT)
            return
        self._move(fact.case, Stage.PREPARED)
        if fact.build in self._followers:
            self._followers[fact.build].append(fact.case)
        else:
            self._followers[fact.build] = []
            self._to_build.append(fact.case)

    def _retry_followers(self, case: str) -> None:
        """Cases with the same key as a failed build are told one by one, each by its own build.

        The driver finds the recorded failure at once, so nothing is compiled twice.
        """
        followers = self._followers.pop(self._key_of[case], [])
        if followers:
            self._followers[self._key_of[case]] = followers[1:]
            self._to_build.appendleft(followers[0])

    def _move(self, case: str, stage: Stage) -> None:
        if stage not in LEGAL_MOVES[self.stages[case]]:
            raise AssertionError(f"case {case} cannot go from {self.stages[case]} to {stage}")
        self.stages[case] = stage
        if stage in (Stage.BUILT, Stage.ENDED):
            self._settle(self._batch_of[case])

    def _settle(self, batch: str) -> None:
        """Make a batch ready once none of its cases is still being prepared or built."""
        state = self._batches[batch]
        stages = {self.stages[case.id] for case in state.batch.cases}
        if state.running or not stages <= {Stage.BUILT, Stage.ENDED}:
            return
        if Stage.BUILT in stages:
            if batch not in self._ready:
                self._ready.append(batch)
        else:
            self._forget(batch)

    def _forget(self, batch: str) -> None:
        state = self._batches.pop(batch)
        if batch in self._ready:
            self._ready.remove(batch)
        for case in state.batch.cases:
            del self.stages[case.id], self._batch_of[case.id]
            self._key_of.pop(case.id, None)
            self._dropped.discard(case.id)

    # ---- decisions -----------------------------------------------------------------------------

    def _decide(self) -> list[Command]:
        commands: list[Command] = []
        if self._stopping:
            self._drop_unstarted(commands)
        self._start_runs(commands)
        self._start_builds(commands)
        self._start_preparing(commands)
        if not (self._stopping or self._exhausted or self._asked):
            room = self.site.window - len(self._batches)
            if room > 0:
                self._asked = True
                commands.append(Ask(limit=room))
        return commands

    def _start_runs(self, commands: list[Command]) -> None:
        for device, cores in self.site.devices.items():
            if device in self._running:
                continue
            if not self._ready:
                self._wanted.discard(device)
                continue
            if self._shares(cores) and device not in self._wanted and not self._is_burst(cores):
                continue
            self._wanted.add(device)
            if self._is_quiet(cores):
                commands.append(self._run(self._ready.popleft(), device))

    def _run(self, batch: str, device: str) -> Run:
        state = self._batches[batch]
        state.running = True
        self._running[device] = batch
        cases = tuple(c.id for c in state.batch.cases if self.stages[c.id] is Stage.BUILT)
        for case in cases:
            self._move(case, Stage.RUNNING)
        return Run(batch=batch, cases=cases, device=device)

    def _is_burst(self, cores: frozenset[int]) -> bool:
        """Enough is ready to pause building, or there is nothing left that could be built."""
        if not self.site.overlap:
            return not (self._waiting or self._to_build or self._building or self._author_busy)
        more = self._waiting or self._to_build or self._building or self._author_busy
        return len(self._ready) >= self.site.burst or not more

    def _shares(self, cores: frozenset[int]) -> bool:
        return (
            not self.site.overlap
            or not cores.isdisjoint(self.site.workers)
            or not cores.isdisjoint(self.site.author)
        )

    def _is_quiet(self, cores: frozenset[int]) -> bool:
        """Nothing of ours runs on these cores now."""
        busy = {self.site.workers[worker] for worker in self._building}
        if self._author_busy:
            busy |= self.site.author
        return cores.isdisjoint(busy)

    def _held(self) -> set[int]:
        """Cores on which nothing may be started: a device is timing on them, or about to."""
        held: set[int] = set()
        for device in self._wanted | self._running.keys():
            batch = self._running.get(device)
            if batch is None or self._batches[batch].timed:
                held |= self.site.devices[device]
        return held

    def _start_builds(self, commands: list[Command]) -> None:
        held = self._held()
        for worker, core in enumerate(self.site.workers):
            if not self._to_build:
                return
            if worker in self._building or core in held:
                continue
            case = self._to_build.popleft()
            self._move(case, Stage.BUILDING)
            self._building[worker] = case
            commands.append(Build(case=case, worker=worker))

    def _start_preparing(self, commands: list[Command]) -> None:
        if self._author_busy or not self._waiting or not self.site.author.isdisjoint(self._held()):
            return
        case = self._waiting.popleft()
        self._move(case, Stage.PREPARING)
        self._author_busy = True
        commands.append(Prepare(case=case))

    def _drop_unstarted(self, commands: list[Command]) -> None:
        """Give up every case that no process works on. The driver answers CaseFinished."""
        unstarted = (Stage.WAITING, Stage.PREPARED, Stage.BUILT)
        for case, stage in self.stages.items():
            if stage in unstarted and case not in self._dropped:
                self._dropped.add(case)
                commands.append(Drop(case=case))
        for queue in (self._waiting, self._to_build, self._ready):
            queue.clear()
        self._followers.clear()
