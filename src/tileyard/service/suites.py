"""One run of a suite inside the engine process: reads it, chooses, plans, drives it, and judges."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tileyard.artifacts.objects import ObjectStore
from tileyard.clock import SystemClock
from tileyard.devices.locks import prepare_locks
from tileyard.engine.anonymous import KIND, AnonymousSlots, make_slots
from tileyard.engine.authors import Author, WorkerAuthor
from tileyard.engine.driver import Driver
from tileyard.engine.foreign_queue.slots import Lenders
from tileyard.engine.hosting import StepHost
from tileyard.engine.ledger import ANY_RUN
from tileyard.engine.provider import LeaseProvider
from tileyard.engine.remembered import RememberedAuthor
from tileyard.engine.yard import Listener, Yard
from tileyard.errors import UsageError
from tileyard.model import Device, Event, Note, RunEnded, RunStarted, StopReason, Trial
from tileyard.service.choosing import choose_devices, choose_queues, share_cores
from tileyard.service.conversation import Conversation
from tileyard.service.messages import StartTest
from tileyard.service.naming import new_run_name
from tileyard.service.stopping import stop_when
from tileyard.settings import Settings
from tileyard.store.events import EventLog
from tileyard.store.run_times import RunTimeQuery
from tileyard.store.trials import TrialStore
from tileyard.suite.achieved import (
    Achieved,
    Span,
    add_makespans,
    measure_makespans,
    measure_startup,
)
from tileyard.suite.author import SuiteAuthor
from tileyard.suite.choosing import find_policy
from tileyard.suite.durations import learn_imported
from tileyard.suite.imports import read_times
from tileyard.suite.kernel_cases import read_suite_with_kernels
from tileyard.suite.memory import Memory, read_memory, update_memory
from tileyard.suite.outlook import (
    COMMAND,
    Bounds,
    Outlook,
    expect_all,
    look_ahead,
    target_of,
)
from tileyard.suite.pieces import Costs
from tileyard.suite.plan import make_plan
from tileyard.suite.records import Plan, Selection, Suite, SuiteCase, Wish
from tileyard.suite.result import Makespan, SuiteResult, judge_cases
from tileyard.suite.shards import parse_shard
from tileyard.suite.site import SuiteSite
from tileyard.suite.source import SuiteSource


@dataclass(frozen=True, kw_only=True)
class Part:
    """The cases of one target, the devices on which they run, and in what pieces."""

    run: str
    target: str
    cases: tuple[SuiteCase, ...]
    devices: tuple[Device, ...]
    expected_s: dict[str, float]
    plan: Plan


class SuiteRun:
    """A run of a suite that can be stopped from outside."""

    def __init__(self, start: StartTest, settings: Settings, conversation: Conversation) -> None:
        self._start = start
        self._settings = settings
        self._conversation = conversation
        self._clock = SystemClock()
        self._run = new_run_name()
        self._listeners: list[Listener] = []

    async def run(self, stopping: asyncio.Event) -> SuiteResult:
        """Carry the run out; once ``stopping`` is set nothing new is started.

        Raises TileyardError where the request makes no sense.
        """
        started_s = self._clock.monotonic_s()
        home, path = self._settings.home, Path(self._start.path)
        suite = await read_suite_with_kernels(path, self._settings, self._make_author)
        with TrialStore.open(home) as store:
            memory = read_memory(home, suite.path)
            outlook, devices = self._look_ahead(suite, store, memory)
            selection = outlook.selection
            parts = tuple(self._divide(outlook, devices, memory))
            with EventLog(home, self._run) as log:
                self._listeners = [log.add, self._conversation.tell_event]
                self._tell_start(suite, selection, parts)
                trials: dict[str, list[Trial]] = {}
                makespans: list[Makespan] = []
                startup_s: float | None = None
                for part in parts:
                    if not stopping.is_set():
                        told, spans, began = await self._drive(suite, part, store, log, stopping)
                        trials.update(told)
                        makespans += measure_makespans(spans, part.plan, began)
                        startup_s = measure_startup(spans, part.plan)
                reason: StopReason = "interrupted" if stopping.is_set() else "done"
                at = self._clock.wall_s()
                self._tell(RunEnded(run=self._run, at=at, reason=reason))
                log.flush()
        verdicts = judge_cases(selection.cases, trials, selection.quarantined)
        update_memory(home, suite.path, verdicts, startup_s)
        return SuiteResult(
            run=self._run,
            suite=suite.name,
            path=suite.path,
            policy=selection.policy,
            home=str(home),
            verdicts=verdicts,
            left_out=selection.left_out,
            uncovered=selection.uncovered,
            notes=selection.notes,
            plan=parts[0].plan,
            makespan=add_makespans(makespans),
            reason=reason,
            seconds=self._clock.monotonic_s() - started_s,
        )

    # ---- before anything runs ------------------------------------------------------------------

    def _find_wish(self, suite: Suite, memory: Memory) -> Wish:
        wish = self._start.wish
        if not self._start.rerun_failed:
            return wish
        failing = memory.failing
        if not failing:
            raise UsageError(f"{suite.path}: no case of it failed when it was last run")
        return msgspec.structs.replace(wish, rerun=failing)

    def _look_ahead(
        self, suite: Suite, store: TrialStore, memory: Memory
    ) -> tuple[Outlook, dict[str, tuple[Device, ...]]]:
        """What will run, and the devices for each target."""
        start = self._start
        wish = self._find_wish(suite, memory)
        targets = dict.fromkeys(map(self._target_of, suite.cases))
        devices = {target: self._choose_devices(target) for target in targets}
        times = store.list_run_times(RunTimeQuery())
        told = read_times(Path(start.durations)) if start.durations else ()
        imported = learn_imported(told, suite.cases)
        kinds = {target: found[0].kind for target, found in devices.items()}
        expected = expect_all(suite, times, kinds, self._target_of, imported)
        bounds = Bounds(
            shard=parse_shard(start.shard) if start.shard else None,
            budget_s=start.budget_s,
            slots=max(map(len, devices.values()), default=1),
        )
        return look_ahead(suite, wish, expected, bounds, times), devices

    def _target_of(self, case: SuiteCase) -> str:
        return target_of(case, self._start.target)

    def _divide(
        self, outlook: Outlook, devices: Mapping[str, tuple[Device, ...]], memory: Memory
    ) -> Iterator[Part]:
        """The selected cases of each target, with their plan."""
        number = 0
        for target, found in devices.items():
            selected = outlook.selection.cases
            cases = tuple(case for case in selected if self._target_of(case) == target)
            if not cases:
                continue
            number += 1
            expected = outlook.of(cases)
            yield Part(
                run=self._run if number == 1 else f"{self._run}-{number}",
                target=target,
                cases=cases,
                devices=found,
                expected_s={one.case: one.seconds for one in expected},
                plan=make_plan(
                    expected, len(found), self._start.split, Costs(startup_s=memory.startup_s)
                ),
            )

    def _choose_devices(self, target: str) -> tuple[Device, ...]:
        start, settings = self._start, self._settings
        if target == COMMAND and not start.devices:
            return make_slots(start.slots or len(settings.cores))
        names = start.devices or share_cores(target, start.slots, settings)
        devices = choose_devices(names, target, settings)
        for device in devices:
            prepare_locks(device)
        return devices

    def _tell_start(self, suite: Suite, selection: Selection, parts: Sequence[Part]) -> None:
        devices = {device.name: device for part in parts for device in part.devices}
        self._tell(
            RunStarted(
                run=self._run,
                at=self._clock.wall_s(),
                title=f"test {suite.name} ({selection.policy})",
                target=" and ".join(part.target for part in parts),
                devices=tuple(devices.values()),
                cases=len(selection.cases),
            )
        )
        for text in selection.notes:
            self._tell(Note(text=text, level="warning"))

    def _tell(self, event: Event) -> None:
        for listener in self._listeners:
            listener(event)

    # ---- running ---------------------------------------------------------------------------------

    async def _drive(
        self, suite: Suite, part: Part, store: TrialStore, log: EventLog, stopping: asyncio.Event
    ) -> tuple[dict[str, list[Trial]], list[Span], float]:
        """Run a part to its end: its trials by case, when each case ran, and when it was begun."""
        began, achieved = self._clock.wall_s(), Achieved()
        async with AsyncExitStack() as stack:
            site = self._site(suite, part)
            host = StepHost(site.home, self._settings.cores, site.threads)
            stack.push_async_callback(host.close)
            author = SuiteAuthor(part.cases, site, host, self._make_author)
            stack.push_async_callback(author.close)
            policy = find_policy(suite, self._start.wish.policy)
            yard = self._make_yard(part, author, store)
            yard.proven_by = self._start.changed or (ANY_RUN if policy.changed else "")
            yard.listeners += [*self._listeners, achieved]
            yard.flushes.append(log.flush)
            asked = self._start.retries
            retries = policy.retries if asked is None else asked
            source = SuiteSource(part.cases, part.plan.pieces, part.expected_s, retries)
            driver = Driver(source, yard, part.run, self._make_provider(part, yard, host))
            await driver.open()
            stack.push_async_callback(driver.close)
            watching = asyncio.create_task(stop_when(stopping, driver))
            stack.callback(watching.cancel)
            async for _ in driver.trials():
                pass
        return source.trials, achieved.spans, began

    def _site(self, suite: Suite, part: Part) -> SuiteSite:
        """Programs answer in as many lanes as there are cores; kernels' authors keep off the devices."""
        cores = self._settings.cores
        owned = {core for device in part.devices for core in device.cores}
        lanes = len(cores) if part.target == COMMAND else 1
        return SuiteSite(
            home=self._settings.home,
            run=part.run,
            folder=Path(suite.folder),
            cores=tuple(core for core in cores if core not in owned) or cores,
            lanes=lanes,
            threads=self._start.golden_threads or max(1, len(cores) // lanes),
        )

    def _make_provider(self, part: Part, yard: Yard, host: StepHost) -> LeaseProvider:
        slots = [device for device in part.devices if device.kind == KIND]
        others = (AnonymousSlots(host, slots, part.target),) if slots else ()
        return Lenders(yard, choose_queues(self._start.devices, self._settings), *others)

    def _make_yard(self, part: Part, author: Author, store: TrialStore) -> Yard:
        start, settings = self._start, self._settings
        return Yard(
            settings=settings,
            store=store,
            objects=ObjectStore(settings.home / "objects"),
            author=author,
            target=part.target,
            devices=part.devices,
            reuse=False,
            queue_limit_s=start.queue_limit_s,
            compile_workers=start.compile_workers,
            build_threads=len(settings.cores) if part.target == COMMAND else 0,
            clock=self._clock,
        )

    def _make_author(self, file: str) -> Author:
        author = WorkerAuthor(Path(file), self._settings.home, self._settings.cores)
        objects = ObjectStore(self._settings.home / "objects")
        return RememberedAuthor(author, Path(file), objects, recall=True)
