"""Holds the planned cases: the stage of each, and what its batch still waits for.
Stages: waiting, preparing, prepared, building, built, running, judging (kernels), ended.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tileyard.base.model import Batch, Case
from tileyard.engine.builds import BuildQueue
from tileyard.engine.commands import (
    BatchesPlanned,
    CasePrepared,
    Command,
    Drop,
    GiveUp,
    Keep,
    LookUp,
    Strand,
)
from tileyard.engine.ready import Ready, ReadyQueue
from tileyard.engine.stages import LEGAL_MOVES, UNREADY, UNSTARTED, Ground, Stage, ground_of

MAX_RETRIES = 2
"""Number of further runs of a case that its device or host failed."""


@dataclass
class _BatchState:
    batch: Batch
    entry: Ready
    timed: bool
    looked_up: bool = False
    output_bytes: dict[str, int] = field(default_factory=dict)

    @property
    def is_run(self) -> bool:
        return self.batch.cases[0].until == "judged"


class PlannedCases:
    """Moves cases from stage to stage; the direct consequences are put into ``due``. ``stages`` is
    by case; ``grounds`` are the devices of each target and number of devices at once.
    """

    def __init__(self, due: list[Command], grounds: Mapping[Ground, frozenset[str]]) -> None:
        self._grounds = grounds
        self.waiting: deque[str] = deque()
        self.to_build = BuildQueue()
        self.ready = ReadyQueue()
        self.looked_up_now: set[str] = set()
        self._due = due
        self.stages: dict[str, Stage] = {}
        self._batches: dict[str, _BatchState] = {}
        self._batch_of: dict[str, str] = {}
        self._lost: dict[str, int] = {}
        self._dropped: set[str] = set()
        self._trimmed: set[str] = set()

    @property
    def batches(self) -> int:
        """Number of batches that have not ended."""
        return len(self._batches)

    def plan(self, fact: BatchesPlanned) -> None:
        """Add the batches that the source has planned."""
        for batch in fact.batches:
            timed = any(case.timing is not None for case in batch.cases)
            grounds = [self._grounds.get(ground_of(case), frozenset()) for case in batch.cases]
            grounds += [frozenset(batch.devices)] if batch.devices else []
            entry = Ready(
                batch=batch.id,
                memory_bytes=batch.cases[0].runner_bytes,
                devices=frozenset.intersection(*grounds),
                expected_s=0.0,
                interleaved=batch.order == "interleaved",
                alone=batch.order != "any" or batch.process == "fresh",
            )
            self._batches[batch.id] = _BatchState(batch, entry, timed)
            for case in batch.cases:
                self.stages[case.key] = Stage.WAITING
                self._batch_of[case.key] = batch.id
                self.waiting.append(case.key)

    def prepare(self, fact: CasePrepared) -> None:
        """A case is prepared: it is built already, or is queued for its build."""
        state = self._batches[self._batch_of[fact.case]]
        entry, state.output_bytes[fact.case] = state.entry, fact.output_bytes
        known = fact.expected_s is not None and entry.expected_s is not None
        entry.expected_s = (entry.expected_s or 0.0) + (fact.expected_s or 0.0) if known else None
        entry.output_bytes += fact.output_bytes
        is_divisible = state.batch.order == "any"
        entry.least_bytes = (
            max(entry.least_bytes, fact.output_bytes) if is_divisible else entry.output_bytes
        )
        if fact.built:
            self.move(fact.case, Stage.BUILT)
            return
        self.move(fact.case, Stage.PREPARED)
        if fact.case not in self._dropped:
            self.to_build.add(fact)

    def fail_build(self, case: str) -> None:
        """A case could not be built; the cases that share its build are reported by builds of their own."""
        self.to_build.fail(case)
        self.move(case, Stage.ENDED)

    def end_build(self, case: str) -> None:
        """A case was built, and those that share its build; it may have been ready before that."""
        if self.stages.get(case) is Stage.BUILDING:
            for name in self.to_build.end(case):
                self.move(name, Stage.BUILT)

    def lose(self, case: str, device: str, *, may_retry: bool) -> None:
        """Have a case run again, on another device if there is one, or give it up."""
        self._lost[case] = self._lost.get(case, 0) + 1
        self._batches[self._batch_of[case]].entry.avoid |= {device}
        if self._lost[case] > MAX_RETRIES or not may_retry or case in self._trimmed:
            self._dropped.add(case)
            self._due.append(GiveUp(case=case))

    def look_up(self, batch: str) -> None:
        """Nothing is known of this batch from earlier runs."""
        self._batches[batch].looked_up = True
        self.looked_up_now.discard(batch)
        self._settle(batch)

    def are_pairs_coming(self, devices: frozenset[str]) -> bool:
        """Whether an interleaved batch for some of these devices is prepared, built or looked up."""
        return any(
            state.entry.interleaved
            and not devices.isdisjoint(state.entry.devices)
            and (
                name in self.looked_up_now
                or any(self.stages[case.key] in UNREADY for case in state.batch.cases)
            )
            for name, state in self._batches.items()
        )

    def is_running(self, case: str) -> bool:
        """Whether a case was given to a device and has not ended."""
        return self.stages.get(case) is Stage.RUNNING

    def is_timed(self, batch: str) -> bool:
        """Whether any case of a batch is timed."""
        return self._batches[batch].timed

    def runnable(self, batch: str) -> list[Case]:
        """The cases of a batch that can be run."""
        return [
            case
            for case in self._batches[batch].batch.cases
            if self.stages[case.key] is Stage.BUILT and case.key not in self._dropped
        ]

    def start(self, entry: Ready, room_bytes: int) -> list[str]:
        """Start a batch from the queue; return the cases that run: up to ``room_bytes`` of outputs, if
        any.
        """
        state = self._batches[entry.batch]
        started: list[str] = []
        used_bytes = 0
        for case in self.runnable(entry.batch):
            used_bytes += state.output_bytes[case.key]
            if started and 0 < room_bytes < used_bytes and state.batch.order == "any":
                self.ready.put_back([entry])
                break
            self.move(case.key, Stage.RUNNING)
            started.append(case.key)
        return started

    def take_back(self, cases: Iterable[str]) -> None:
        """Put cases that were given to a device and did not end back at the front of the queue."""
        behind = {entry.batch for entry in self.ready}
        for case in cases:
            if self.is_running(case):
                self.move(case, Stage.BUILT)
        self.ready.put_back([entry for entry in self.ready if entry.batch not in behind])

    def move(self, case: str, stage: Stage) -> None:
        """Change the stage of a case; its batch may become ready or end by that."""
        if stage not in LEGAL_MOVES[self.stages[case]]:
            raise AssertionError(f"case {case} cannot go from {self.stages[case]} to {stage}")
        self.stages[case] = stage
        if case in self._trimmed and case not in self._dropped and stage in UNSTARTED:
            self._dropped.add(case)
            self._due.append(Drop(case=case))
        if stage in (Stage.BUILT, Stage.ENDED):
            self._settle(self._batch_of[case])

    def trim(self) -> None:
        """Drop the cases on which no process works, and the others as soon as none does."""
        self.give_up_unstarted()
        self._trimmed = self.stages.keys() - self._dropped

    def give_up_unstarted(self) -> None:
        """Give up every case that no process works on."""
        for case in [case for case, stage in self.stages.items() if stage in UNSTARTED]:
            if case not in self._dropped:
                self._dropped.add(case)
                self._due.append(Drop(case=case))
        self.waiting.clear()
        self.to_build.clear()
        self.ready.clear()

    def strand_without(self, usable: frozenset[str], device: str) -> None:
        """Give up the cases that no usable device can run and none works on: ``device`` was the last."""
        for state in list(self._batches.values()):
            if not state.is_run or state.entry.devices & usable:
                continue
            self.ready.discard(state.batch.id)
            for case in state.batch.cases:
                stage = self.stages[case.key]
                if stage in UNSTARTED and case.key not in self._dropped:
                    self._dropped.add(case.key)
                    if stage is Stage.WAITING:
                        self.waiting.remove(case.key)
                    self.to_build.discard(case.key)
                    self._due.append(Strand(case=case.key, device=device))

    def strand(self, batch: str, device: str) -> None:
        """Give up a batch that is ready, for lack of a device."""
        self.ready.discard(batch)
        for case in self.runnable(batch):
            self._dropped.add(case.key)
            self._due.append(Strand(case=case.key, device=device))

    def _settle(self, batch: str) -> None:
        """Make a batch ready if none of its cases is still being prepared, built or run."""
        state = self._batches[batch]
        stages = {self.stages[case.key] for case in state.batch.cases}
        if not stages <= {Stage.BUILT, Stage.ENDED}:
            return
        if Stage.BUILT not in stages:
            self._forget(batch)
        elif not (runnable := self.runnable(batch)):
            return
        elif not state.is_run:
            self._dropped.update(case.key for case in runnable)
            self._due.extend(Keep(case=case.key) for case in runnable)
        elif state.looked_up or not (state.entry.interleaved or state.batch.alike):
            self.ready.add(state.entry)
        elif batch not in self.looked_up_now:
            self.looked_up_now.add(batch)
            self._due.append(LookUp(batch=batch))

    def _forget(self, batch: str) -> None:
        state = self._batches.pop(batch)
        self.ready.discard(batch)
        self.looked_up_now.discard(batch)
        for case in state.batch.cases:
            del self.stages[case.key], self._batch_of[case.key]
            self.to_build.forget(case.key)
            self._lost.pop(case.key, None)
            self._dropped.discard(case.key)
            self._trimmed.discard(case.key)
