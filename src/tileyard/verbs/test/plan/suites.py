"""The verb ``test``, and ``bundle`` of a suite: reads it, selects, plans, and judges the results."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from tileyard.artifacts.bundle_manifest import Expected as BundleExpected
from tileyard.artifacts.bundles import Packing, open_bundle, read_manifest, write_bundle
from tileyard.artifacts.compat import Requirements
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.errors import HomeError, UsageError
from tileyard.base.events import Note, RunStarted, StepKind
from tileyard.base.model import CommandWork, Device, KernelWork, Side, Trial, find_case
from tileyard.devices.queues import is_queue
from tileyard.engine.anonymous import make_slots
from tileyard.engine.ledger import ANY_RUN
from tileyard.engine.programs import ProgramSite
from tileyard.engine.yard import Workplace
from tileyard.service.bench import HERE, Bench
from tileyard.service.choosing import add_joined, choose_devices, share_cores
from tileyard.service.runs import Ending, Plan
from tileyard.store.base import RunTime, TrialQuery
from tileyard.targets.command.step_site import StepSite, find_site, tell_site
from tileyard.targets.registry import COMMAND, is_timed
from tileyard.verbs.test.options.suites import Wish
from tileyard.verbs.test.options.test import StartTest
from tileyard.verbs.test.plan.choosing import find_policy
from tileyard.verbs.test.plan.durations import learn_imported, note_strangers
from tileyard.verbs.test.plan.imports import read_times
from tileyard.verbs.test.plan.kernel_cases import read_suite_with_kernels
from tileyard.verbs.test.plan.masks import warn_of_mask
from tileyard.verbs.test.plan.memory import Memory, read_memory, update_memory
from tileyard.verbs.test.plan.outlook import (
    Bounds,
    Outlook,
    expect_all,
    hold_one,
    look_ahead,
    target_of,
)
from tileyard.verbs.test.plan.packed import (
    PackedSuite,
    check_suite,
    find_packed,
    pack_suite,
    unpack_suite,
)
from tileyard.verbs.test.plan.plan import make_plan
from tileyard.verbs.test.plan.prerequisites import require_prerequisites
from tileyard.verbs.test.plan.proven import explain_cases
from tileyard.verbs.test.plan.shards import parse_shard
from tileyard.verbs.test.plan.side_suites import open_site
from tileyard.verbs.test.plan.source import Part, SuiteSource, find_targets
from tileyard.verbs.test.plan.step_times import Goldens, add_steps, learn_steps
from tileyard.verbs.test.result.achieved import (
    Achieved,
    Startup,
    join_makespans,
    join_shared,
    measure_makespans,
    measure_startup,
)
from tileyard.verbs.test.result.records import Expected, Suite, SuiteCase, count_devices
from tileyard.verbs.test.result.result import (
    Makespan,
    SuiteResult,
    fails_run,
    judge_cases,
    skip_unbegun,
)
from tileyard.workers.protocol import RunEntry


async def open_suite(start: StartTest, bench: Bench) -> Plan[SuiteResult]:
    """Plan the run of a suite. Raises TileyardError if the request is invalid."""
    packed = _open_bundle(start, bench) if start.is_bundle else None
    suite = packed.suite if packed is not None else await _read_suite(start, bench)
    return _OpenSuite(start, bench, suite, packed).plan()


async def _read_suite(start: StartTest, bench: Bench) -> Suite:
    authors = bench.make_authors()
    try:
        path = Path(start.path)
        suite = await read_suite_with_kernels(
            path, bench.settings, authors, parameters=start.parameters
        )
    finally:
        await authors.close()
    if not (is_timed(start.target) or any(isinstance(one.work, KernelWork) for one in suite.cases)):
        raise UsageError(
            f"--sanitize has no effect on {suite.path}: its cases are programs, not kernels"
        )
    return suite


def _open_bundle(start: StartTest, bench: Bench) -> PackedSuite:
    objects = ObjectStore(bench.settings.make_home() / "objects")
    needed = read_manifest(Path(start.path)).requires.prerequisites
    named = _choose_named(start, bench)
    require_prerequisites(start.path, needed, bench.settings, named=named)
    expected = BundleExpected(kind="selection", commit=start.commit)
    bundle = open_bundle(Path(start.path), objects, expected, accept=check_suite)
    packed = unpack_suite(bundle.cases, objects)
    for name, value in start.parameters.items():
        if (built := packed.suite.parameters.get(name)) != value:
            its = f"it was built for {name}={built}" if built else f"it has no parameter {name}"
            raise UsageError(f"{start.path}: --set {name}={value}: {its}")
    return packed


def _choose_named(start: StartTest, bench: Bench) -> tuple[Device, ...]:
    return choose_devices(start.devices, COMMAND, bench.settings) if start.devices else ()


class _OpenSuite:
    """A suite that was read, and what is known of it before it runs."""

    def __init__(
        self, start: StartTest, bench: Bench, suite: Suite, packed: PackedSuite | None
    ) -> None:
        self._start = start
        self._bench = bench
        self._settings = bench.settings
        self._suite = suite
        if not (start.devices or start.pack_to):
            cases = tuple(map(hold_one, suite.cases))
            self._suite = suite = msgspec.structs.replace(suite, cases=cases)
        self._packed = packed
        self._tree = self._tell_steps()
        if packed is None and not start.pack_to:  # a bundle was checked before it was opened
            needed, more = suite.require, find_site().env
            named = _choose_named(start, bench)
            require_prerequisites(suite.path, needed, bench.settings, more=more, named=named)
        self._memory = read_memory(bench.settings.home, suite.remembered_as)
        lanes, has_devices = bench.settings.lanes, bool(start.devices)
        self._costs = self._memory.costs(lanes, has_devices=has_devices)
        self._goldens = Goldens(Path(suite.folder))
        self._outlook, devices = self._look_ahead()
        selected = self._outlook.selection.cases
        joined = () if start.pack_to else selected
        self._devices = {
            target: add_joined(found, count_devices(joined)) for target, found in devices.items()
        }
        self._mask_warning = self._warn_of_mask(selected)
        self._parts = tuple(self._divide())
        self._achieved = Achieved()
        self._halted = ""

    def plan(self) -> Plan[SuiteResult]:
        """The plan for ``runs.drive``."""
        start, selection = self._start, self._outlook.selection
        policy = find_policy(self._suite, start.wish.policy)
        if start.is_explained and not self._proven_by:
            raise UsageError(
                f"--why needs --changed, and policy {policy.name!r} does not have changed = true"
            )
        if start.changed not in ("", ANY_RUN) and not self._bench.store.list_trials(
            TrialQuery(run=start.changed, limit=1)
        ):
            hint = "--changed any takes any run; `tileyard trials` lists runs"
            raise UsageError(f"there is no run {start.changed!r}", hint)
        retries = policy.retries if start.retries is None else start.retries
        source = SuiteSource(
            self._suite.name,
            self._parts,
            retries=retries,
            until="packed" if start.pack_to else "judged",
        )
        grounds = {
            part.target: () if start.pack_to else self._devices[part.target] for part in self._parts
        }
        devices = [device for found in grounds.values() for device in found]
        return Plan(
            source=source,
            fold=partial(self._fold, source),
            authors=self._bench.make_authors(devices=devices, sides=(self._side,)),
            grounds=grounds,
            named=start.devices,
            begun=RunStarted(
                title=(
                    f"{'bundle' if start.pack_to else 'test'} {self._suite.name} "
                    f"({', '.join((selection.policy, *self._suite.settings))})"
                ),
                cases=len(selection.cases),
                expected_s=sum(part.plan.total_s for part in self._parts),
                is_guess=2 * sum(part.plan.guessed for part in self._parts) > len(selection.cases),
                steps=sum(len(part.steps_s) for part in self._parts),
                steps_s=sum(sum(part.steps_s) for part in self._parts),
                lanes=self._costs.lanes,
                retries=retries,
                spared=tuple(selection.quarantined),
            ),
            notes=[
                Note(text=text, level="warning")
                for text in (*selection.notes, *self._strangers, self._mask_warning)
                if text
            ],
            listeners=[self._achieved],
            workplace=Workplace(
                reuse=False,
                queue_limit_s=start.queue_limit_s,
                compile_workers=start.compile_workers,
                check_sync=start.check_sync,
                proven_by=self._proven_by,
                halts=partial(self._halt, retries) if start.fail_fast else None,
            ),
            programs=self._program_site(selection.cases),
            keep_work=start.keep_work,
            packed=None if self._packed is None else partial(find_packed, self._packed),
        )

    def _halt(self, retries: int, trial: Trial) -> str:
        """Why nothing is begun after a trial; empty unless its case gates and has failed for good."""
        require_check = self._start.require_check
        if trial.case in self._outlook.selection.quarantined or not fails_run(
            trial, retries=retries, require_check=require_check
        ):
            return ""
        self._halted = f"skipped: {trial.case} failed, and --fail-fast ends the run there"
        return self._halted

    @property
    def _proven_by(self) -> str:
        policy = find_policy(self._suite, self._start.wish.policy)
        return self._start.changed or (ANY_RUN if policy.changed else "")

    @property
    def _side(self) -> Side:
        if self._packed is None:
            return HERE
        return msgspec.structs.replace(HERE, stored=self._start.path)

    def _program_site(self, cases: Sequence[SuiteCase]) -> ProgramSite | None:
        """The place where programs run; None if there are none."""
        if not any(isinstance(case.work, CommandWork) for case in cases):
            return None
        return ProgramSite(
            sites={HERE.name: StepSite(suite=self._suite.folder, tree=self._tree)},
            lanes=self._settings.lanes,
            threads=self._settings.step_threads,
            identities=tuple(
                sorted({one.identity for one in self._devices[COMMAND] if one.count == 1})
            ),
            doubts=tuple(
                f"queue {name}: what a step uses on its far side cannot be looked at"
                for name in self._start.devices
                if is_queue(name)
            ),
            targets=find_targets(cases),
        )

    # ---- after it ran --------------------------------------------------------------------------

    def _fold(self, source: SuiteSource, ending: Ending) -> SuiteResult:
        """Judge the cases, update the memory, and write the bundle if requested."""
        start, selection, home = self._start, self._outlook.selection, self._settings.home
        verdicts = judge_cases(
            selection.cases,
            source.trials,
            selection.quarantined,
            require_check=start.require_check,
        )
        if self._halted:
            verdicts = skip_unbegun(verdicts, self._halted)
        if start.is_explained:
            by = "" if self._proven_by == ANY_RUN else self._proven_by
            bench = self._bench
            proofs = explain_cases(source.trials, by, bench.store, bench.objects)
            verdicts = tuple(
                msgspec.structs.replace(v, proof=proofs.get(v.case, "")) for v in verdicts
            )
        makespans, started = self._measure(ending)
        if start.pack_to and ending.reason == "done" and ending.shelf:
            self._write_bundle(ending.shelf)
        elif not start.pack_to:
            try:
                update_memory(home, self._suite.remembered_as, verdicts, started, self._learn)
            except HomeError as error:
                text = f"{error}; --rerun-failed knows nothing of this run"
                ending.tell(Note(text=text, level="warning"))
        return SuiteResult(
            run=ending.run,
            suite=self._suite.name,
            path=self._suite.path,
            policy=selection.policy,
            home=str(home),
            verdicts=verdicts,
            left_out=selection.left_out,
            uncovered=selection.uncovered,
            notes=selection.notes,
            plans=tuple(part.plan for part in self._parts),
            makespan=join_makespans(makespans),
            reason=ending.reason,
            seconds=ending.seconds,
            unrecorded=tuple(ending.unrecorded),
        )

    def _measure(self, ending: Ending) -> tuple[list[Makespan], Startup | None]:
        """The times of the parts on their devices, and the cost of starting."""
        found: dict[str, list[tuple[Makespan, int]]] = {}
        started: Startup | None = None
        lead_s = self._achieved.measure_lead(ending.began_at)
        for part in self._parts:
            mine = {case.id for case in part.cases}
            spans = [span for span in self._achieved.spans if span.case in mine]
            steps = [one for one in self._achieved.steps if find_case(one.case) in mine]
            for one in measure_makespans(spans, part.plan, ending.began_at, steps):
                found.setdefault(part.target, []).append((one, part.cases[0].work.devices))
            started = measure_startup(
                spans,
                part.plan,
                lead_s,
                has_waited=self._achieved.has_waited,
                rivals=self._achieved.steps if self._costs.shares_cores else (),
            )
        slots = self._count_slots()
        return [join_shared(parts, slots[target, 1]) for target, parts in found.items()], started

    def _learn(self, known: Memory) -> Memory:
        testcases = {case.id: case.testcase for case in self._outlook.selection.cases}
        seconds: dict[tuple[str, StepKind], list[float]] = {}
        for one in self._achieved.steps:
            testcase = testcases[find_case(one.case)]
            seconds.setdefault((testcase, one.step), []).append(one.end - one.begin)
        made = (
            self._goldens.identify(case)
            for case in self._outlook.selection.cases
            if case.id in self._achieved.made
        )
        knows_mask = known.knows_mask or bool(self._mask_warning)
        steps = learn_steps(known.steps, seconds, made)
        return msgspec.structs.replace(known, steps=steps, knows_mask=knows_mask)

    def _write_bundle(self, entries: Mapping[str, RunEntry]) -> None:
        suite = self._suite
        targets = {case.id: self._target_of(case) for case in suite.cases}
        packing = Packing(
            kind="selection",
            commit=self._start.commit,
            target=" and ".join(sorted({targets[case] for case in entries})),
            requires=Requirements(prerequisites=suite.require),
        )
        cases = pack_suite(suite, entries, targets, self._bench.objects)
        write_bundle(packing, self._bench.objects, Path(self._start.pack_to), cases)

    # ---- before anything runs ------------------------------------------------------------------

    def _tell_steps(self) -> str:
        """Report where steps find what they share; the toolchain's digest. Raises IncompatibleError."""
        start, folder = self._start, self._suite.folder
        if not start.toolchain:
            tell_site(StepSite(suite=folder))
            return ""
        site = open_site(start.toolchain, start.commit, folder, self._settings)
        tell_site(site)
        return site.tree

    def _warn_of_mask(self, cases: Sequence[SuiteCase]) -> str:
        if self._start.pack_to or not self._start.devices or self._memory.knows_mask:
            return ""
        return warn_of_mask(cases, self._devices.get(COMMAND, ()), self._settings)

    def _find_wish(self) -> Wish:
        wish = self._start.wish
        if not self._start.rerun_failed:
            return wish
        failing = self._memory.failing
        if not failing:
            raise UsageError(f"{self._suite.path}: no case of it failed when it was last run")
        return msgspec.structs.replace(wish, rerun=failing)

    def _look_ahead(self) -> tuple[Outlook, dict[str, tuple[Device, ...]]]:
        """The cases that will run, and the devices for each target."""
        start, suite = self._start, self._suite
        wish = self._find_wish()
        targets = dict.fromkeys(map(self._target_of, suite.cases))
        devices = {target: self._choose_devices(target) for target in targets}
        times = self._bench.store.list_run_times()
        file, pattern = start.durations, start.durations_pattern
        told = read_times(Path(file), pattern) if file else ()
        imported = learn_imported(told, suite.cases)
        self._strangers = note_strangers(told, suite.cases)
        if told and not imported:
            raise UsageError(f"{start.durations}: names no case of {suite.path}")
        kinds = {target: found[0].kind for target, found in devices.items()}
        bounds = Bounds(
            shard=parse_shard(start.shard) if start.shard else None,
            budget_s=start.budget_s,
            slots=max(map(len, devices.values()), default=1),
            costs=self._costs,
        )

        def expect(known: Sequence[RunTime]) -> dict[str, Expected]:
            return expect_all(suite, known, kinds, self._target_of, imported)

        return look_ahead(suite, wish, expect, bounds, times), devices

    def _target_of(self, case: SuiteCase) -> str:
        built = self._packed.targets if self._packed is not None else {}
        return built.get(case.id) or target_of(case, self._start.target)

    def _divide(self) -> Iterator[Part]:
        selected = self._outlook.selection.cases
        for (target, count), slots in self._count_slots().items():
            cases = tuple(
                case
                for case in selected
                if (self._target_of(case), case.work.devices) == (target, count)
            )
            if cases:
                expected = add_steps(
                    cases, self._outlook.of(cases), self._memory.steps, self._goldens
                )
                plan = make_plan(expected, slots, self._start.split, self._costs)
                expected_s = {one.case: one.seconds for one in expected}
                steps_s = [s for one in expected for s in (one.golden_s, one.check_s) if s]
                yield Part(
                    target=target,
                    cases=cases,
                    plan=plan,
                    expected_s=expected_s,
                    steps_s=steps_s,
                )

    def _count_slots(self) -> dict[tuple[str, int], int]:
        """How many cases run at once, by target and number of devices that each holds."""
        found = {}
        selected = self._outlook.selection.cases
        for target, devices in self._devices.items():
            held = {c.work.devices for c in selected if self._target_of(c) == target}
            counts = Counter(device.count for device in devices)
            for count in {1} | held:
                own = [device for device in devices if device.count == count]
                is_shared = not own or bool(own[0].members)
                found[target, count] = max(1, counts[1] // count) if is_shared else counts[count]
        return found

    def _choose_devices(self, target: str) -> tuple[Device, ...]:
        start, settings = self._start, self._settings
        if (target == COMMAND and not start.devices) or start.pack_to:
            return make_slots(start.slots or len(settings.cores))
        names = start.devices or share_cores(target, start.slots or 0, settings)
        return choose_devices(names, target, settings)
