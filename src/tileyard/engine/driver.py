"""Carries out what the state decides. The only part of the engine with tasks and processes."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
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
from tileyard.engine.compilers import CompilePool
from tileyard.engine.ledger import Ledger, Progress, RanOn
from tileyard.engine.preparation import Preparation, run_entry
from tileyard.engine.runners import RunnerSlot
from tileyard.engine.source import CaseSource
from tileyard.engine.state import EngineState, Site
from tileyard.engine.yard import Yard
from tileyard.model import CasePlanned, CaseStarted, Outcome, Trial
from tileyard.workers.protocol import CaseRan


class Driver:
    """One run of one source: ``open`` it, iterate over ``trials``, and ``close`` it."""

    def __init__(self, source: CaseSource, yard: Yard, run: str) -> None:
        self._source = source
        self._yard = yard
        owned = {core for device in yard.devices for core in device.cores}
        free = tuple(core for core in yard.settings.cores if core not in owned)
        self._pool = CompilePool(yard, free or yard.settings.cores)
        self._slots = {device.name: RunnerSlot(yard, device) for device in yard.devices}
        self._ledger = Ledger(yard, run)
        self._preparation = Preparation(yard, self._ledger, self._pool)
        self._state = EngineState(
            Site(
                workers=self._pool.cores,
                devices={device.name: frozenset(device.cores) for device in yard.devices},
                author=frozenset(yard.author.cores),
                overlap=yard.overlap,
            )
        )
        self._facts: asyncio.Queue[Fact] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self._drop_reason = ""

    async def open(self) -> None:
        """Make sure that the target can be used. Raises ToolMissingError; leaves nothing behind."""
        try:
            await self._preparation.open()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End every process of the run; cases that are still open are recorded as not run."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(self._pool.close(), *(slot.close() for slot in self._slots.values()))
        self._ledger.abandon("the run was ended while this case was under way")

    def stop(self) -> None:
        """Start nothing new; what runs is finished, and the rest is recorded as not run."""
        self._drop_reason = "the run was stopped before this case was reached"
        self._facts.put_nowait(StopAsked())

    def trim(self, reason: str) -> None:
        """Drop what is planned and not begun, and go on with what the source asks from now on."""
        self._drop_reason = reason
        self._facts.put_nowait(TrimAsked())

    async def trials(self) -> AsyncIterator[Trial]:
        """Drive the source to its end. Every planned case yields exactly one trial."""
        commands = self._state.start()
        while True:
            # Told before anything is asked: the source may have been waiting for just this.
            for trial in self._ledger.take():
                self._source.tell(trial)
                yield trial
            for command in commands:
                self._carry_out(command)
            if self._facts.empty() and self._state.is_idle:
                if self._source.done() or self._state.is_stopping:
                    return
                raise AssertionError("the source has nothing to ask, and is not done")
            commands = self._state.step(await self._facts.get())
            if self._failure is not None:
                raise self._failure

    # ---- commands ------------------------------------------------------------------------------

    def _carry_out(self, command: Command) -> None:
        match command:
            case Ask(limit=limit):
                self._ask(limit)
            case Prepare(case=case):
                self._start(self._prepare(self._ledger.progress(case)))
            case Build(case=case, worker=worker):
                self._start(self._build(self._ledger.progress(case), worker))
            case Run():
                self._start(self._run(command))
            case Drop(case=case):
                progress = self._ledger.progress(case)
                self._ledger.finish(progress, Outcome.NOT_RUN, self._drop_reason)
                self._facts.put_nowait(CaseFinished(case=case))
            case _:
                assert_never(command)

    def _start(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._failure = task.exception()
            self._facts.put_nowait(StopAsked())

    def _ask(self, limit: int) -> None:
        batches = tuple(self._source.ask(limit))
        for batch in batches:
            for case in batch.cases:
                self._ledger.open(case, batch)
                self._yard.emit(CasePlanned(case=case))
        exhausted = len(batches) < limit or self._source.done()
        self._facts.put_nowait(BatchesPlanned(batches=batches, exhausted=exhausted))

    async def _prepare(self, progress: Progress) -> None:
        case = progress.case.id
        if await self._preparation.prepare(progress):
            key, built = progress.keys.build, self._preparation.is_built(progress)
            self._facts.put_nowait(CasePrepared(case=case, build=key, built=built))
        else:
            self._facts.put_nowait(CaseFinished(case=case))
        self._facts.put_nowait(AuthorFreed())

    async def _build(self, progress: Progress, worker: int) -> None:
        case = progress.case.id
        if await self._preparation.build(progress, worker):
            self._facts.put_nowait(CaseBuilt(case=case, worker=worker))
        else:
            self._facts.put_nowait(BuildFailed(case=case, worker=worker))

    async def _run(self, command: Run) -> None:
        members = [self._ledger.progress(case) for case in command.cases]
        batch, device = members[0].batch, command.device

        def began(case: str) -> None:
            at = self._yard.clock.wall_s()
            self._yard.emit(CaseStarted(case=case, device=device, at=at))

        def ran(reply: CaseRan, lease: int) -> None:
            progress = self._ledger.progress(reply.case)
            where = RanOn(device=device, lease=lease, reply=reply)
            self._ledger.finish(progress, reply.outcome, reply.message, where)
            self._facts.put_nowait(CaseFinished(case=reply.case))

        if batch.order == "interleaved" and self._ledger.recall_paired(members):
            for case in command.cases:
                self._facts.put_nowait(CaseFinished(case=case))
        else:
            entries = [run_entry(member) for member in members]
            await self._slots[device].run(batch, entries, began, ran)
        self._facts.put_nowait(BatchRun(batch=command.batch, device=device))
