"""One run of a suite inside the engine process: reads it, chooses, plans, drives it, and judges."""

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from tileyard.artifacts.bundle_manifest import Expected as BundleExpected
from tileyard.artifacts.bundles import Packing, open_bundle, write_bundle
from tileyard.artifacts.objects import ObjectStore
from tileyard.artifacts.toolchains import open_toolchain
from tileyard.clock import SystemClock
from tileyard.devices.locks import prepare_locks
from tileyard.engine.anonymous import make_slots
from tileyard.engine.yard import Listener
from tileyard.errors import UsageError
from tileyard.events import Event, Note, RunEnded, RunStarted, StopReason
from tileyard.model import Device, Trial
from tileyard.service.choosing import choose_devices, share_cores
from tileyard.service.conversation import Conversation
from tileyard.service.messages import StartTest
from tileyard.service.naming import claim_run_name
from tileyard.service.suite_parts import Part, PartDriver, Ways, find_retries, make_author
from tileyard.settings import Settings
from tileyard.store.events import EventLog
from tileyard.store.run_times import RunTime, RunTimeQuery
from tileyard.store.trials import TrialStore
from tileyard.suite.achieved import Startup, add_makespans, measure_makespans, measure_startup
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
from tileyard.suite.packed import PackedSuite, check_suite, pack_suite, unpack_suite
from tileyard.suite.plan import make_plan
from tileyard.suite.records import Expected, Selection, Suite, SuiteCase, Wish
from tileyard.suite.result import Makespan, SuiteResult, judge_cases
from tileyard.suite.shards import parse_shard
from tileyard.targets.command.step_site import StepSite, tell_site
from tileyard.workers.protocol import RunEntry


class SuiteRun:
    """A run of a suite that can be stopped from outside."""

    def __init__(self, start: StartTest, settings: Settings, conversation: Conversation) -> None:
        self._start = start
        self._settings = settings
        self._conversation = conversation
        self._clock = SystemClock()
        self._run = ""
        self._listeners: list[Listener] = []
        self._toolchain = ""
        self._packed: PackedSuite | None = None

    async def run(self, stopping: asyncio.Event) -> SuiteResult:
        """Carry the run out; once ``stopping`` is set nothing new is started.

        Raises TileyardError where the request makes no sense.
        """
        started_s = self._clock.monotonic_s()
        home, path = self._settings.home, Path(self._start.path)
        packed = self._packed = self._open_bundle(path) if self._start.is_bundle else None
        make = partial(make_author, self._settings)
        suite = (
            await read_suite_with_kernels(path, self._settings, make)
            if packed is None
            else packed.suite
        )
        self._tell_steps(suite)
        with TrialStore.open(self._settings.make_home()) as store:
            memory = read_memory(home, suite.path)
            outlook, devices = self._look_ahead(suite, store, memory)
            selection = outlook.selection
            self._run = claim_run_name(home, store)
            parts = tuple(self._divide(outlook, devices, memory))
            with EventLog(home, self._run) as log:
                self._listeners = [log.add, self._conversation.tell_event]
                self._tell_start(suite, selection, parts)
                ways = Ways(
                    store=store,
                    log=log,
                    listeners=self._listeners,
                    toolchain=self._toolchain,
                    packed=packed,
                )
                driver = PartDriver(self._start, self._settings, suite, ways)
                entries: dict[str, RunEntry] = {}
                trials: dict[str, list[Trial]] = {}
                makespans: list[Makespan] = []
                started: Startup | None = None
                for part in parts:
                    if not stopping.is_set():
                        driven = await driver.drive(part, stopping)
                        trials.update(driven.trials)
                        entries.update(driven.entries)
                        makespans += measure_makespans(driven.spans, part.plan, driven.began)
                        started = measure_startup(driven.spans, part.plan, driven.lead_from)
                reason: StopReason = "interrupted" if stopping.is_set() else "done"
                if skipped := store.describe_skipped():
                    self._tell(Note(text=skipped, level="warning"))
                at = self._clock.wall_s()
                self._tell(RunEnded(run=self._run, at=at, reason=reason))
                log.flush()
        verdicts = judge_cases(
            selection.cases,
            trials,
            selection.quarantined,
            require_check=self._start.require_check,
        )
        if self._start.pack_to and reason == "done":
            self._write_bundle(suite, entries)
        elif not self._start.pack_to:
            update_memory(home, suite.path, verdicts, started)
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
            plans=tuple(part.plan for part in parts),
            makespan=add_makespans(makespans),
            reason=reason,
            seconds=self._clock.monotonic_s() - started_s,
        )

    def _tell_steps(self, suite: Suite) -> None:
        """Say where steps find what they share. Raises IncompatibleError and others."""
        start = self._start
        site = StepSite(suite=suite.folder)
        if start.toolchain:
            found = open_toolchain(Path(start.toolchain), start.commit, self._settings.make_home())
            whole = found.environment(os.environ)
            added = {name: text for name, text in whole.items() if os.environ.get(name) != text}
            site = StepSite(suite=suite.folder, toolchain=str(found.folder), env=added)
            self._toolchain = found.tree
        tell_site(site)

    def _open_bundle(self, path: Path) -> PackedSuite:
        objects = ObjectStore(self._settings.make_home() / "objects")
        expected = BundleExpected(kind="selection", commit=self._start.commit)
        bundle = open_bundle(path, objects, expected, accept=check_suite)
        return unpack_suite(bundle.cases, objects)

    def _write_bundle(self, suite: Suite, entries: dict[str, RunEntry]) -> None:
        """Pack what was built for the cases that got so far. Raises UsageError where none did."""
        if not entries:
            raise UsageError(f"{suite.path}: no case of it could be built, so there is no bundle")
        objects = ObjectStore(self._settings.home / "objects")
        targets = {case.id: self._target_of(case) for case in suite.cases}
        packing = Packing(
            kind="selection",
            commit=self._start.commit,
            target=" and ".join(sorted({targets[case] for case in entries})),
        )
        cases = pack_suite(suite, entries, targets, objects)
        write_bundle(packing, objects, Path(self._start.pack_to), cases)

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
        if told and not imported:
            raise UsageError(f"{start.durations}: names no case of {suite.path}")
        kinds = {target: found[0].kind for target, found in devices.items()}
        bounds = Bounds(
            shard=parse_shard(start.shard) if start.shard else None,
            budget_s=start.budget_s,
            slots=max(map(len, devices.values()), default=1),
            costs=memory.costs,
        )

        def expect(known: Sequence[RunTime]) -> dict[str, Expected]:
            return expect_all(suite, known, kinds, self._target_of, imported)

        return look_ahead(suite, wish, expect, bounds, times), devices

    def _target_of(self, case: SuiteCase) -> str:
        built = self._packed.targets if self._packed is not None else {}
        return built.get(case.id) or target_of(case, self._start.target)

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
                plan=make_plan(expected, len(found), self._start.split, memory.costs),
            )

    def _choose_devices(self, target: str) -> tuple[Device, ...]:
        start, settings = self._start, self._settings
        if (target == COMMAND and not start.devices) or start.pack_to:
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
                expected_s=sum(part.plan.total_s for part in parts),
                retries=find_retries(self._start, suite),
                spared=tuple(selection.quarantined),
            )
        )
        for text in selection.notes:
            self._tell(Note(text=text, level="warning"))

    def _tell(self, event: Event) -> None:
        for listener in self._listeners:
            listener(event)
