"""Carries out the commands of the state. The only part of the engine with tasks and processes."""

import asyncio
import contextlib
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from typing import assert_never

import msgspec

from tileyard.artifacts.manifest import TREE_FILE, find_artifact
from tileyard.artifacts.objects import run_key
from tileyard.artifacts.pins import hold
from tileyard.base.errors import HOST_FAULTS, UsageError
from tileyard.base.events import CasePlanned, DevicePaused, PreparationEnded
from tileyard.base.model import (
    BuildKey,
    Case,
    CommandWork,
    Device,
    Elaborated,
    Kernel,
    Keys,
    Outcome,
    Trial,
)
from tileyard.base.modes import make_folder
from tileyard.engine.borrowing import Borrower
from tileyard.engine.cases import Ground, Site
from tileyard.engine.commands import (
    Acquire,
    Ask,
    AuthorFreed,
    BatchesPlanned,
    Build,
    BuildFailed,
    BuildLost,
    CaseBuilt,
    CaseFinished,
    CasePrepared,
    Command,
    CompilerFreed,
    Drop,
    Fact,
    GiveUp,
    Joined,
    Judge,
    Keep,
    Linger,
    LookAfter,
    LookUp,
    NothingKnown,
    PartBuilt,
    Place,
    Prepare,
    Release,
    Run,
    StopAsked,
    Strand,
    TrimAsked,
    Withdraw,
)
from tileyard.engine.compilers import Builder, Builders, CompilePool, choose_cores
from tileyard.engine.judge import READY
from tileyard.engine.judging import Judging
from tileyard.engine.ledger import Ledger, Progress
from tileyard.engine.lending import DeviceSite, find_parts
from tileyard.engine.preparation import (
    Preparation,
    builder_of,
    own_build,
    place,
    programs_of,
    require_host,
    run_entry,
)
from tileyard.engine.provider import CaseSource, Join, LeaseLostError, LeaseProvider, Slot
from tileyard.engine.readmission import Readmission
from tileyard.engine.runners import LocalDevices
from tileyard.engine.state import EngineState
from tileyard.engine.yard import FindEntry, Yard
from tileyard.workers.protocol import CommandRun, Failed, Golden, RunEntry, TargetInfo

AHEAD = 2
"""Batches planned ahead per compile worker and per device: the current one and the next one."""
BURST = 16
"""Cases that are built before building pauses for a device with the same cores, whose runner then starts."""
UNBUILDABLE = LeaseLostError("no host is left that builds for its kind of CPU")
SHELVED = "built to be run elsewhere"
AUTO_GROUP = 4
"""Number of kernels per build request if the target benefits from building several together."""


class PackedPreparation(Preparation):
    """Takes what runners need for cases of stored sides from packed artifacts; prepares others as usual."""

    def __init__(self, yard: Yard, ledger: Ledger, pool: Builders, find: FindEntry) -> None:
        super().__init__(yard, ledger, pool)
        self._find = find

    async def describe(self, builder: Builder) -> TargetInfo:
        """The target's information. That of a stored side need not be able to build here."""
        if self._yard.authors.sides[builder[0]].stored:
            return TargetInfo(fingerprint="", needs_tir=False)
        return await super().describe(builder)

    async def prepare(self, progress: Progress) -> bool:
        """Complete a case's keys; False if it is proven already. Raises HOST_FAULTS."""
        case = progress.case
        entry = self._find(case)
        if entry is None:
            return await super().prepare(progress)
        command, golden = entry.command, entry.golden
        is_proven_here = command is None or case.timing is None
        if is_proven_here and isinstance(case.work, CommandWork):
            described = await self._describe_steps(case, case.work, entry)
            if isinstance(described, Failed):
                require_host(described)
                self._ledger.write_log(progress, described.log)
                self._ledger.finish(progress, described.outcome, described.message)
                return False
            command, golden = described
        progress.elaborated = Elaborated(
            kernel=Kernel(name=case.testcase),
            specs=entry.specs,
            scalars=entry.scalars,
            lines=entry.lines,
            rule=entry.rule,
        )
        progress.golden, progress.command = golden, command
        progress.keys = Keys(build=entry.build, golden=golden.key)
        run = run_key(own_build(progress), golden.key, case.check)
        progress.keys = msgspec.structs.replace(progress.keys, run=run)
        if golden.is_partial and case.timing is None:
            await self.look_at_built(progress)
        if self.is_known(progress):
            return False
        self.keep(progress)
        return True

    async def _describe_steps(
        self, case: Case, work: CommandWork, entry: RunEntry
    ) -> tuple[CommandRun, Golden] | Failed:
        """The late steps of a case on its side: what they use is looked at here."""
        programs = programs_of(self._yard)
        late = msgspec.structs.replace(work, build=None, golden=None)
        golden = await programs.make_golden(case, late, entry.golden.tree)
        if isinstance(golden, Failed):
            return golden
        if (
            entry.command is not None
        ):  # the packed content decides, not what it was made from elsewhere
            artifact = find_artifact(entry.build, self._yard.objects)
            built = "" if artifact is None else artifact.manifest.files.get(TREE_FILE, "")
            return msgspec.structs.replace(entry.command, own_build=built), golden
        described = await programs.elaborate(case, late)
        if isinstance(described, Failed):
            return described
        if described.command is None:
            raise AssertionError(f"{case.key} is a case of programs and runs none")
        return msgspec.structs.replace(described.command, own_build=entry.build), golden


def make_pool(yard: Yard) -> CompilePool:
    """The compile workers of this host for a run."""
    cores = choose_cores(yard.settings, yard.devices, yard.compile_workers)
    return CompilePool(yard.settings, yard.authors.sides, cores, yard.group_size)


def prepare_for(yard: Yard, ledger: Ledger, pool: Builders) -> Preparation:
    """The Preparation for the cases of this yard."""
    if yard.packed is not None:
        return PackedPreparation(yard, ledger, pool, yard.packed)
    return Preparation(yard, ledger, pool)


class Driver:
    """One run of one source: ``open``, iterate over ``trials``, ``close``. ``halted_by`` is what ended it;
    it ``is_trimmed`` if planned cases were dropped.
    """

    def __init__(
        self, source: CaseSource, yard: Yard, run: str, provider: LeaseProvider | None = None
    ) -> None:
        """``provider`` lends the devices; by default this host lends those of the yard."""
        self._source = source
        self._yard = yard
        self._provider = provider or LocalDevices(yard, yard.devices)
        self._slots = [*self._provider.slots]
        self._pool = yard.compilers or make_pool(yard)
        self._ledger = Ledger(yard, run)
        self._preparation = prepare_for(yard, self._ledger, self._pool)
        self._pins = contextlib.ExitStack()
        self._facts: deque[Fact] = deque()
        self._woken = asyncio.Event()
        self._judging = Judging(yard, self._ledger, yard.authors.cores)
        self._borrower = Borrower(
            yard, self._provider.slots, self._ledger, self._tell, self._judging.take
        )
        yard.authors.lanes.tell = self._tell
        self._readmission = Readmission(self._provider.slots, yard.reprobe_s, self._tell)
        self._tasks: set[asyncio.Task[None]] = set()
        self._warming: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._drop_reason = ""
        self.halted_by = ""
        self.is_trimmed = False

    async def open(self) -> None:
        """Check that target and devices can be used. Raises ToolMissingError; leaves nothing behind."""
        root = self._yard.objects.root
        make_folder(root)
        self._pins.enter_context(hold(root))
        try:
            await self._provider.open()
            await self._preparation.open()
            await self._check_group()
        except BaseException:
            await self.close()
            raise

    async def _check_group(self) -> None:
        """Raise UsageError if kernels are to be built together by a target that builds them one by one."""
        if (self._yard.group_size or 1) == 1:
            return
        for target in self._yard.grounds:
            for side in self._yard.authors.sides:
                if not (await self._preparation.describe(Builder(side, target))).groups:
                    raise UsageError(
                        f"--group-size has no effect: {target} builds kernels one by one"
                    )

    async def close(self) -> None:
        """End every process of the run; cases that are still open are recorded as not run."""
        await self._readmission.close()
        for task in self._tasks:
            if not task.cancelling():  # a second cancellation would disturb its clean-up
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(
            self._pool.close(),
            self._borrower.close(),
            self._provider.close(),
            self._judging.close(),
        )
        self._yard.handed_over.close()
        self._ledger.abandon("the run was ended while this case was under way")
        for trial in self._ledger.take():
            self._source.tell(trial)
        self._ledger.record()
        self._pins.close()

    @property
    def unrecorded(self) -> tuple[str, ...]:
        """The trials that the store has not taken, in the order in which they ended."""
        return tuple(trial.id for trial in self._ledger.unrecorded)

    @property
    def window(self) -> int:
        """The most batches that are planned and not ended, if cases take more than milliseconds."""
        slots = self._slots
        owned = {core for slot in slots for core in slot.device.cores}
        groups = self._yard.group_size or AUTO_GROUP
        building = AHEAD * len(self._pool.cores) * groups
        burst = BURST if owned & {*self._pool.cores, *self._yard.authors.cores} else 0
        return max(building, burst) + AHEAD * len(slots)

    def follow(self, coming: Callable[[Join], Coroutine[object, object, None]]) -> None:
        """Have further devices and compile workers join while the run goes on, as ``coming`` finds them."""
        self._start(coming(self._join))

    def _join(self, slots: Sequence[Slot], grounds: Mapping[str, Sequence[Device]]) -> None:
        self._slots += slots
        self._borrower.add(slots)
        self._readmission.add(slots)
        self._yard.grounds = {
            target: (*devices, *grounds.get(target, ()))
            for target, devices in self._yard.grounds.items()
        }
        self._ledger.forget_identities()
        self._tell(
            Joined(
                devices={slot.device.name: self._describe_slot(slot) for slot in slots},
                grounds=_list_grounds(grounds),
                kinds=self._list_kinds(),
                workers=self._pool.cores,
                window=self.window if self._yard.overlap else sys.maxsize,
            )
        )

    def stop(self, reason: str = "the run was stopped before this case was reached") -> None:
        """Start nothing new; finish what runs, and record the rest as not run for ``reason``."""
        self._drop(reason, StopAsked())

    def _halt_after(self, trials: Sequence[Trial]) -> None:
        halts = self._yard.halts
        for trial in trials:
            if halts is not None and not self.halted_by and (reason := halts(trial)):
                self.halted_by = trial.id
                self.stop(reason)

    def trim(self, reason: str) -> None:
        """Drop what is planned and not begun; batches that the source plans from now on still run."""
        self.is_trimmed = True
        self._drop(reason, TrimAsked())

    async def trials(self) -> AsyncIterator[Trial]:
        """Drive the source to its end. Every planned case yields exactly one trial."""
        state = EngineState(self._site())
        commands = state.start()
        while True:
            # Devices and compilers first: what they wait for must not wait for the disk.
            for command in commands:
                if not isinstance(command, Ask):
                    self._carry_out(command)
            if commands:
                await asyncio.sleep(0)  # lets the tasks send their first messages
            # Recorded before it is reported, and reported before the source is asked for more: the source may
            # have waited for just this trial.
            taken = self._ledger.take()
            self._halt_after(taken)
            for trial in taken:
                if self._ledger.has_followed(trial):
                    self._tell(CaseFinished(case=trial.key))
                self._source.tell(trial)
                yield trial
            for command in commands:
                if isinstance(command, Ask):
                    self._carry_out(command)
            if not self._facts and state.is_idle:
                if self._source.done() or state.is_stopping:
                    return
                raise AssertionError("the source has nothing to ask, and is not done")
            if not self._facts:
                self._woken.clear()
                await self._woken.wait()
            self._halt_after(self._ledger.fresh)  # before the freed resources get other work
            facts, self._facts = self._facts, deque()
            commands = state.step(*facts)
            for device, reason in state.take_pauses().items():
                at = self._yard.clock.wall_s()
                self._yard.emit(DevicePaused(device=device, at=at, reason=reason))
            if self._failure is not None:
                raise self._failure

    # ---- commands ------------------------------------------------------------------------------

    def _carry_out(self, command: Command) -> None:
        match command:
            case Ask(limit=limit):
                self._start(self._ask(limit))
            case Place(cases=cases, kind=kind):
                for case in cases:
                    place(self._ledger.progress(case), kind)
            case Prepare(cases=cases):
                self._start(self._prepare([self._ledger.progress(case) for case in cases]))
            case Build(cases=cases, worker=worker):
                members = [self._ledger.progress(case) for case in cases]
                self._start(self._build(members, worker))
                self._start(self._borrower.warm(len(members)))
            case LookUp(batch=batch):
                self._look_up(batch)
            case Acquire(device=device, case=case):
                memory_bytes = self._ledger.progress(case).case.runner_bytes
                self._start(self._borrower.acquire(device, memory_bytes))
            case Run(device=device, cases=cases):
                members = [self._ledger.progress(case) for case in cases]
                self._start(self._borrower.run(device, members))
            case Withdraw():
                self._withdraw()
            case Judge(cases=cases):
                self._start(self._judge(cases))
            case Linger(device=device):
                self._borrower.linger(device)
            case Release(device=device):
                self._start(self._borrower.release(device))
            case LookAfter(devices=devices):
                self._readmission.look_after(devices)
            case Keep(case=case):
                self._keep(case)
            case Drop(case=case):
                self._end(case, Outcome.NOT_RUN, self._drop_reason)
            case Strand(case=case, device=device):
                refusal = self._borrower.refusal(device) if device else UNBUILDABLE
                self._end(case, refusal.outcome, refusal.message)
            case GiveUp(case=case):
                self._borrower.give_up(self._ledger.progress(case))
            case _:
                assert_never(command)

    def _drop(self, reason: str, fact: StopAsked | TrimAsked) -> None:
        self._drop_reason = reason
        self._tell(fact)
        self._withdraw()

    def _withdraw(self) -> None:
        # Not at once: a run that was ordered a moment ago is about to be submitted.
        asyncio.get_running_loop().call_soon(self._provider.withdraw)

    def _tell(self, fact: Fact) -> None:
        self._facts.append(fact)
        self._woken.set()

    def _end(self, case: str, outcome: Outcome, message: str) -> None:
        if self._ledger.is_open(case):
            self._ledger.finish(self._ledger.progress(case), outcome, message)
            self._tell(CaseFinished(case=case))

    def _keep(self, case: str) -> None:
        progress = self._ledger.progress(case)
        try:
            self._preparation.identify(progress)
        except HOST_FAULTS as error:
            self._end(case, Outcome.INFRA_ERROR, str(error))
            return
        self._yard.shelf[case] = run_entry(progress)
        self._end(case, Outcome.SKIPPED, SHELVED)

    def _start(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._failure = task.exception()
            self._tell(StopAsked())

    async def _ask(self, limit: int) -> None:
        batches = tuple(await self._source.ask(limit))
        for batch in batches:
            for case in batch.cases:
                self._ledger.open(case, batch)
                self._yard.emit(CasePlanned(case=case, batch=batch.id))
        exhausted = len(batches) < limit or self._source.done()
        self._tell(BatchesPlanned(batches=batches, exhausted=exhausted))

    async def _prepare(self, members: Sequence[Progress]) -> None:
        clock = self._yard.clock
        for progress in members:
            began_s = clock.monotonic_s()
            fact = await self._prepare_case(progress)
            seconds = clock.monotonic_s() - began_s
            case, at = progress.case.key, clock.wall_s()
            self._yard.emit(PreparationEnded(case=case, at=at, seconds=seconds))
            self._tell(fact)
        if self._warming is not None:  # nothing may be timed on the cores where the judge starts
            await self._warming
        self._tell(AuthorFreed())

    async def _prepare_case(self, progress: Progress) -> CasePrepared | CaseFinished:
        """Prepare a case; try again if the host has failed it."""
        while True:
            try:
                if not await self._preparation.prepare(progress):
                    break
                await self._expect_outputs(progress)
                return await self._describe(progress)
            except HOST_FAULTS as error:
                if not self._ledger.may_retry(progress, str(error)):
                    self._ledger.finish(progress, Outcome.INFRA_ERROR, str(error))
                    break
        return CaseFinished(case=progress.case.key)

    async def _expect_outputs(self, progress: Progress) -> None:
        """Get memory for a case's outputs and what comes beside them, and begin to start the judge."""
        batch, output_bytes = progress.batch, self._preparation.output_bytes(progress)
        is_whole = batch.order == "interleaved"
        may_be_known = is_whole or batch.alike  # such a case is looked up once it is built
        if output_bytes and not may_be_known and self._warming is None:
            self._warming = self._start(self._judging.warm())
        count = len(batch.cases) if is_whole else min(READY, self._ledger.open_cases)
        await self._yard.handed_over.make_ready(output_bytes, count)

    async def _describe(self, progress: Progress) -> CasePrepared:
        builder = builder_of(progress)
        groups = (await self._preparation.describe(builder)).groups
        is_built = self._preparation.is_built(progress)
        if is_built:
            await self._preparation.complete(progress.keys.build)
        return CasePrepared(
            case=progress.case.key,
            build=progress.keys.build,
            built=is_built,
            cache=self._preparation.joint.cache_of(progress),
            builder=builder,
            group=(self._yard.group_size or AUTO_GROUP) if groups else 1,
            expected_s=self._preparation.expected_s(progress),
            output_bytes=self._preparation.output_bytes(progress),
        )

    async def _build(self, members: Sequence[Progress], worker: int) -> None:
        builder = builder_of(members[0])

        def tell(build: BuildKey) -> None:
            self._tell(PartBuilt(builder=builder, build=build))

        async for progress, is_built in self._preparation.build(members, worker, tell):
            case = progress.case.key
            if is_built is None:
                self._tell(BuildLost(case=case))
            else:
                self._tell(CaseBuilt(case=case) if is_built else BuildFailed(case=case))
        self._tell(CompilerFreed(worker=worker))

    async def _judge(self, cases: Sequence[str]) -> None:
        async for case in self._judging.judge(cases):
            self._tell(CaseFinished(case=case))

    def _look_up(self, batch: str) -> None:
        members = self._ledger.members(batch)
        is_known, rank = False, None
        with contextlib.suppress(*HOST_FAULTS):  # what cannot be looked up is run
            if (first := members[0]).batch.alike:
                self._preparation.identify(first)
                if excess := self._preparation.find_excess(first):
                    self._end(first.case.key, Outcome.NOT_RUN, excess.message)
                    return
                is_known = self._ledger.follow(first)  # and is reported once it has ended
                if self._yard.rank is not None and not is_known:
                    rank = self._yard.rank(first.case, first.keys.build)
            elif is_known := self._ledger.recall_paired(members):
                for member in members:
                    self._tell(CaseFinished(case=member.case.key))
        if not is_known:
            self._tell(NothingKnown(batch=batch, rank=rank))

    def _site(self) -> Site:
        yard = self._yard
        return Site(
            workers=self._pool.cores,
            devices={slot.device.name: self._describe_slot(slot) for slot in self._slots},
            author=frozenset(yard.authors.cores),
            judge=frozenset(yard.authors.cores),
            grounds=_list_grounds(yard.grounds),
            kinds=self._list_kinds(),
            lanes=yard.programs.lanes if yard.programs is not None else 1,
            # Without overlap everything is built before anything is run.
            window=self.window if yard.overlap else sys.maxsize,
            burst=BURST,
            overlap=yard.overlap,
        )

    def _list_kinds(self) -> dict[str, dict[str, frozenset[str]]]:
        """The names of each target's devices by kind of CPU, where there are several."""
        found = {target: self._yard.find_kinds(target) for target in self._yard.grounds}
        return {
            target: {kind: frozenset(one.name for one in own) for kind, own in kinds.items()}
            for target, kinds in found.items()
            if kinds
        }

    def _describe_slot(self, slot: Slot) -> DeviceSite:
        return DeviceSite(
            cores=frozenset(slot.device.cores),
            appetite=slot.appetite,
            room_bytes=self._yard.handed_over.room_bytes(slot.device.name),
            count=slot.device.count,
            parts=find_parts(slot.device),
        )


def _list_grounds(devices: Mapping[str, Sequence[Device]]) -> dict[Ground, frozenset[str]]:
    """The names of each target's devices, by the number that a case holds at once."""
    return {
        (target, count): frozenset(one.name for one in found if one.count == count)
        for target, found in devices.items()
        for count in {one.count for one in found}
    }
