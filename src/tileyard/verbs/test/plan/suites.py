"""The verb ``test``, and ``bundle`` of a suite: reads it, selects, plans, and judges the results."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from tileyard.artifacts.bundle_file import Expected as BundleExpected
from tileyard.artifacts.bundles import Packing, open_bundle, read_manifest, write_bundle
from tileyard.artifacts.compat import Requirements
from tileyard.artifacts.footprint import Footprint, describe_changes
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.errors import HomeError, UsageError
from tileyard.base.events import Note, RunStarted, StepKind, describe_lost
from tileyard.base.model import CommandWork, Device, KernelWork, Outcome, Side, Trial, find_case
from tileyard.base.settings import Settings
from tileyard.base.wording import name_some
from tileyard.devices.base import class_of
from tileyard.devices.classes import find_class
from tileyard.devices.declared import is_masked
from tileyard.devices.foreign import find_queue, is_queue
from tileyard.engine.hosting import KIND, make_slots
from tileyard.engine.ledger import ANY_RUN
from tileyard.engine.programs import ProgramSite
from tileyard.engine.yard import Workplace
from tileyard.service.bench import HERE, Bench
from tileyard.service.choosing import (
    More,
    add_joined,
    choose_devices,
    require_fit,
    require_one_cpu,
    settle_for,
    share_cores,
    use_hosts,
)
from tileyard.service.revision import find_side
from tileyard.service.runs import Ending, Plan
from tileyard.store.base import RunTime, Store, TrialQuery
from tileyard.targets.command.given import StepSite, find_site, tell_site
from tileyard.targets.registry import COMMAND, find_needs, is_timed
from tileyard.verbs.test.options import StartTest, Wish
from tileyard.verbs.test.plan.budget import (
    Bounds,
    Outlook,
    expect_all,
    hold_one,
    look_ahead,
    target_of,
)
from tileyard.verbs.test.plan.choosing import find_policy
from tileyard.verbs.test.plan.durations import (
    Goldens,
    add_steps,
    learn_imported,
    learn_steps,
    note_strangers,
)
from tileyard.verbs.test.plan.imports import read_times
from tileyard.verbs.test.plan.kernel_cases import read_suite_with_kernels
from tileyard.verbs.test.plan.lanes import Memory, read_memory, update_memory
from tileyard.verbs.test.plan.packed import (
    PackedSuite,
    check_suite,
    find_packed,
    pack_suite,
    require_prerequisites,
    unpack_suite,
)
from tileyard.verbs.test.plan.pieces import parse_shard
from tileyard.verbs.test.plan.plan import make_plan
from tileyard.verbs.test.plan.side_suites import open_site
from tileyard.verbs.test.plan.source import Part, SuiteSource, find_pythons, find_targets, list_held
from tileyard.verbs.test.result.achieved import (
    Achieved,
    Startup,
    join_makespans,
    join_shared,
    measure_makespans,
    measure_startup,
)
from tileyard.verbs.test.result.result import (
    Expected,
    Makespan,
    Suite,
    SuiteCase,
    SuiteResult,
    count_devices,
    fails_run,
    judge_cases,
    skip_unbegun,
)
from tileyard.workers.protocol import RunEntry
from tileyard.workers.run_records import RunRecord, find_runs

PASSES = 20
"""Number of passes in the same suite that are examined to find the latest one before this run."""
NAMED = 4


def warn_of_mask(cases: Iterable[SuiteCase], devices: Iterable[Device], settings: Settings) -> str:
    """The warning, empty if none of the cases names its device, or none of the devices is masked."""
    masks = {_find_mask(device, settings) for device in devices} - {""}
    if not (
        masks
        and any(_names_device(case.work) for case in cases if isinstance(case.work, CommandWork))
    ):
        return ""
    return (
        f"{{device}} and TASK_DEVICE count from 0 what {' and '.join(sorted(masks))} leaves visible; "
        "{device_physical} is the number on the host, and `mask = false` of a class hides "
        "nothing (told once for a suite)"
    )


def _find_mask(device: Device, settings: Settings) -> str:
    """The variable that will mask a device, or the one that a queue gives."""
    if not is_queue(device.name):
        return device.mask
    kind = class_of(find_queue(device.name.partition("/")[0].partition("*")[0], settings).device)
    return find_class(kind).masks[0] if is_masked(kind, settings) else ""


def _names_device(work: CommandWork) -> bool:
    return any(
        "{device}" in text
        for step in list_held(work)
        for text in (*step.argv, *step.env.values(), step.cwd)
    )


def explain_cases(
    trials: Mapping[str, Sequence[Trial]], by: str, store: Store, objects: ObjectStore
) -> dict[str, str]:
    """For each case, by its id, what decided; ``by`` is the run that should prove them, empty for any."""
    firsts = {case: found[0] for case, found in trials.items() if found}
    open_cases = {c: trial for c, trial in firsts.items() if trial.outcome is not Outcome.SKIPPED}
    before = {case: _find_pass(trial, by, store) for case, trial in open_cases.items()}
    keys = {t.keys.run for t in (*open_cases.values(), *filter(None, before.values()))}
    records = find_runs(objects, keys - {""})
    said = {case: trial.message for case, trial in firsts.items()}
    for case, trial in open_cases.items():
        said[case] = _explain(trial, before[case], records, objects)
    return said


def _find_pass(trial: Trial, by: str, store: Store) -> Trial | None:
    query = TrialQuery(
        case=trial.case, suite=trial.suite, run=by, outcome=Outcome.PASSED, limit=PASSES
    )
    earlier = store.list_trials(query)
    return next((t for t in earlier if t.case == trial.case and t.run != trial.run), None)


def _explain(
    trial: Trial, before: Trial | None, records: Mapping[str, RunRecord], objects: ObjectStore
) -> str:
    now = records.get(trial.keys.run)
    if now is None:
        return f"not proven: it ended before it was known what it depends on ({trial.outcome})"
    golden = now.entry.golden
    if golden.footprint.doubts:
        return f"cannot be proven: {_name(golden.footprint.doubts)}"
    if golden.is_partial:
        return "cannot be proven: what was built for it could not be looked at"
    if before is None:
        return "not proven: no run is known in which it passed"
    old = records.get(before.keys.run)
    known = Footprint() if old is None else old.entry.golden.footprint
    if not known.parts:
        return f"not proven: it is not known any more what run {before.run} depended on"
    if known.doubts:
        return f"not proven: run {before.run} proves nothing: {_name(known.doubts)}"
    changed = describe_changes(known, golden.footprint, objects)
    what = _name(changed) if changed else "what is built for it"
    return f"not proven: changed since run {before.run}: {what}"


def _name(texts: Sequence[str]) -> str:
    return name_some(texts, NAMED, "; ")


async def open_suite(start: StartTest, bench: Bench) -> Plan[SuiteResult]:
    """Plan the run of a suite. Raises TileyardError if the request is invalid."""
    packed: PackedSuite | None = None
    if start.is_bundle:
        packed = _open_bundle(start, bench)
        suite, side = packed.suite, Side(stored=start.path)
    else:
        side, suite = await asyncio.gather(find_side(start.path), _read_suite(start, bench))
    hosted: tuple[Device, ...] = ()
    if start.hosts and start.pack_to:  # nothing runs: they build
        await use_hosts(bench, start.hosts)
    elif start.hosts:
        target, hosted = await _find_hosted(start, bench, suite, packed)
        start = msgspec.structs.replace(start, target=target)
    opened = _OpenSuite(start, bench, suite, packed, hosted)
    if bench.hosts is not None and hosted:
        await bench.hosts.require_pythons(opened.pythons)
    if bench.hosts is not None and hosted and start.toolchain:
        await bench.hosts.open_toolchain(Path(start.toolchain), start.commit)
    return opened.plan(side)


async def _find_hosted(
    start: StartTest, bench: Bench, suite: Suite, packed: PackedSuite | None
) -> tuple[str, tuple[Device, ...]]:
    """The target and the devices of other hosts: slots for programs unless devices are named. Raises
    UsageError if these cannot run a kernel.
    """
    built = packed.targets if packed is not None else {}
    targets = {built.get(one.id) or target_of(one, start.target) for one in suite.cases}
    kernels = sorted(targets - {COMMAND})
    if len(kernels) > 1:
        raise UsageError(f"--hosts: kernels are for {' and '.join(kernels)}, not for one")
    target = kernels[0] if kernels else start.target
    names = start.devices or tuple(find_needs(one).device_class for one in kernels)
    if start.slots and COMMAND not in targets:
        raise UsageError("--slots has no effect with --hosts: kernels run on devices")
    slots = 0 if start.devices or COMMAND not in targets else start.slots or -1
    more = More(slots=slots, counts=count_devices(suite.cases) if start.devices else ())
    found = await use_hosts(bench, start.hosts, names, start.queue_limit_s, more)
    if kernels:
        devices = [device for device in found if device.kind != KIND]
        if packed is not None:
            require_one_cpu(devices, "a bundle is built for one kind")
        target = settle_for(target, devices)
        for device in devices:
            require_fit(target, device)
        if bench.hosts is not None:
            bench.hosts.also_require(partial(_require_fit, target))
    return target, found


def _require_fit(target: str, device: Device) -> None:
    if device.kind != KIND:
        require_fit(target, device)


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
    is_here = start.devices and not start.hosts
    return choose_devices(start.devices, COMMAND, bench.settings) if is_here else ()


class _OpenSuite:
    """A suite that was read, and what is known of it before it runs."""

    def __init__(
        self,
        start: StartTest,
        bench: Bench,
        suite: Suite,
        packed: PackedSuite | None,
        hosted: tuple[Device, ...] = (),
    ) -> None:
        self._start = start
        self._hosted = hosted
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
            named = hosted or _choose_named(start, bench)
            require_prerequisites(suite.path, needed, bench.settings, more=more, named=named)
        self._memory = read_memory(bench.settings.home, suite.remembered_as)
        lanes, has_devices = bench.settings.lanes, bool(start.devices or hosted)
        self._costs = self._memory.costs(lanes, has_devices=has_devices)
        self._goldens = Goldens(Path(suite.folder))
        self._outlook, devices = self._look_ahead()
        selected = self._outlook.selection.cases
        joined = () if start.pack_to else selected
        self._devices = {
            target: add_joined(found, count_devices(joined), bench.hosts if hosted else None)
            for target, found in devices.items()
        }
        self._mask_warning = self._warn_of_mask(selected)
        self._parts = tuple(self._divide())
        self._achieved = Achieved()
        self._halted = ""

    @property
    def pythons(self) -> list[str]:
        """The interpreters that steps name which hold a device."""
        return find_pythons(self._outlook.selection.cases)

    def plan(self, side: Side) -> Plan[SuiteResult]:
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
            authors=self._bench.make_authors(devices=devices, sides=(side,)),
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
                f"{what}: what a step uses on its far side cannot be looked at"
                for what in (
                    *(f"queue {name}" for name in self._start.devices if is_queue(name)),
                    *([f"--hosts {self._start.hosts}"] if self._hosted else []),
                )
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
            notes=(*describe_lost(ending.lost_hosts), *selection.notes),
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
        joined_s = self._add_joined(ending.began_at)
        late = {device.name for event in self._achieved.joined for device in event.devices}
        slots = self._count_slots()
        for part in self._parts:
            mine, held = {case.id for case in part.cases}, part.cases[0].work.devices
            spans = [span for span in self._achieved.spans if span.case in mine]
            steps = [one for one in self._achieved.steps if find_case(one.case) in mine]
            plan = msgspec.structs.replace(part.plan, slots=slots[part.target, held])
            late_s = joined_s.get(part.target, 0.0)
            for one in measure_makespans(spans, plan, ending.began_at, steps, late_s):
                found.setdefault(part.target, []).append((one, held))
            started = measure_startup(
                [span for span in spans if span.device not in late],
                part.plan,
                lead_s,
                has_waited=self._achieved.has_waited,
                rivals=self._achieved.steps if self._costs.shares_cores else (),
            )
        return [join_shared(parts, slots[target, 1]) for target, parts in found.items()], started

    def _add_joined(self, began_at: float) -> dict[str, float]:
        """Count the devices of hosts that have joined before all had run; the seconds until the last of these
        did, by target.
        """
        joined_s: dict[str, float] = {}
        last_at = max((span.end for span in self._achieved.spans), default=began_at)
        for event in (one for one in self._achieved.joined if one.at < last_at):
            for target, devices in self._devices.items():
                kinds = {device.kind for device in devices}
                if more := tuple(device for device in event.devices if device.kind in kinds):
                    self._devices[target] = (*devices, *more)
                    joined_s[target] = event.at - began_at
        return joined_s

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
        if self._hosted:
            of_slots = target == COMMAND and not start.devices
            return tuple(one for one in self._hosted if (one.kind == KIND) == of_slots)
        if (target == COMMAND and not start.devices) or start.pack_to:
            return make_slots(start.slots or len(settings.cores))
        names = start.devices or share_cores(target, start.slots or 0, settings)
        return choose_devices(names, target, settings)
