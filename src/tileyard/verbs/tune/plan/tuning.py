"""The verb ``tune``: one study."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec

from tileyard.artifacts.bundle_file import Expected
from tileyard.artifacts.bundles import open_bundle
from tileyard.artifacts.objects import ObjectStore, canonical_json
from tileyard.base.decoding import decode_json
from tileyard.base.errors import BundleError, UsageError
from tileyard.base.events import Note, RunStarted, describe_lost, is_final
from tileyard.base.model import BuildKey, Case, Device, KernelWork, Record, TimingPolicy, Value
from tileyard.base.wording import count_of
from tileyard.devices.classes import find_class
from tileyard.devices.holding import HeldLease, QueueTimeoutError
from tileyard.engine.authors import Authors
from tileyard.engine.programs import Programs
from tileyard.engine.yard import Workplace
from tileyard.service.bench import HERE, Bench
from tileyard.service.choosing import find_devices, require_timed
from tileyard.service.runs import Ending, Plan
from tileyard.store.base import TrialQuery
from tileyard.store.choices import Choice, add_choices
from tileyard.targets.registry import count_units, find_needs
from tileyard.verbs.test.plan.packed import PackedSuite, check_suite, unpack_suite
from tileyard.verbs.tune.options import StartTune, TuneRequest
from tileyard.verbs.tune.plan.finals import judge_finals, select_last
from tileyard.verbs.tune.plan.foresight import (
    MOST_TIMES,
    Count,
    Foresight,
    count_built,
    list_subjects,
)
from tileyard.verbs.tune.plan.goals import Goals, cache_facts, find_facts
from tileyard.verbs.tune.plan.space import OpenSpace, check_numbers, choose_strategy, open_space
from tileyard.verbs.tune.plan.starting import Recall, begin_with_known, recall_in, split_recorded
from tileyard.verbs.tune.plan.strategies.ahead import Ahead
from tileyard.verbs.tune.plan.strategies.base import Foresees, Points, Work, weigh
from tileyard.verbs.tune.plan.study import Place, Study
from tileyard.verbs.tune.result import CompileResult, StudyResult
from tileyard.workers.protocol import CountWork, Failed, MakeGolden, RunEntry
from tileyard.workers.run_records import find_run


async def open_study(
    start: StartTune,
    bench: Bench,
    devices: Sequence[Device],
    authors: Authors,
    recall: Recall | None = None,
) -> Plan[StudyResult]:
    """Open the kernel's space, and plan its study on these devices, given how trials are recalled."""
    targets = (start.target, *start.also_build)
    space = await open_space(authors.of("", start.file), start.request, targets=targets)
    return await plan_study(start, bench, devices, authors, space, recall)


async def _begin_ahead(  # noqa: PLR0913 - as plan_study
    start: StartTune,
    bench: Bench,
    devices: Sequence[Device],
    authors: Authors,
    space: OpenSpace,
    recall: Recall,
    count: Count | None,
) -> None:
    """Start what a strategy has computed beside the trials; it ends after the screening, or with the run."""
    request, tell = start.request, bench.conversation.tell_event
    strategy: object = space.strategy
    if isinstance(strategy, Foresees) and (request.pareto or request.finals_only):
        return  # nothing is chosen by times alone, or nothing at all
    owned = {core for device in devices for core in device.cores}
    if isinstance(strategy, Ahead | Foresees) and owned.intersection(authors.cores):
        text = f"{request.strategy} disturbs times: it computes on timed cores, as no other is left"
        tell(Note(text=text, level="warning"))
    if isinstance(strategy, Foresees):
        units = {device.identity: count_units(start.target, device) for device in devices}
        recorded = recall(space.kernel) if start.reuse else []
        own, others = split_recorded(recorded, start.target, units, space)
        subjects = list_subjects(others, bench.objects, units)
        strategy.begin_with(min(units.values()), subjects)
        for trial in own[-MOST_TIMES:]:
            work = count_built(trial.keys.build, trial.arguments, bench.objects)
            strategy.foresee(trial.config, work)
        said = "of further configs the strategy does not know the work: "
        space.foresight = Foresight(
            strategy,
            space.thread,
            count or partial(_count_work, start, authors, space),
            authors.spare,
            lambda why: tell(Note(text=f"{said}{why}", level="warning")),
        )
    await space.begin_ahead(authors.cores, tell)
    bench.close_later(space.end_ahead)


async def _count_work(
    start: StartTune, authors: Authors, space: OpenSpace, config: dict[str, Value]
) -> Work | Failed:
    question = CountWork(kernel=space.kernel, arguments=space.arguments, config=config)
    limit_s = start.request.limits.elaborate_s
    reply = await authors.of("", start.file).ask(question, limit_s)
    return reply if isinstance(reply, Failed) else reply.work


async def plan_study(  # noqa: PLR0913 - the last ones if they differ
    start: StartTune,
    bench: Bench,
    devices: Sequence[Device],
    authors: Authors,
    space: OpenSpace,
    recall: Recall | None = None,
    count: Count | None = None,
) -> Plan[StudyResult]:
    """Plan a study of this space on these devices, which begins with what is known; ``count`` counts the work
    of configs in place of an author. Raises UsageError.
    """
    request = start.request
    recall = recall or recall_in(bench)
    also_build = tuple(dict.fromkeys(start.also_build))
    goals = Goals(
        bounds=request.bounds,
        second=request.pareto,
        find=cache_facts(partial(find_facts, objects=bench.objects)),
    )
    goals.require_known(start.target)
    if space.strategy is not None and request.pareto:
        weigh(space.strategy, goals.amount)
    await begin_with_known(start, bench, devices, space, goals=goals, recall=recall)
    await _begin_ahead(start, bench, devices, authors, space, recall, count)
    # Only now: what was awaited is part of the budget.
    place = Place(
        file=start.file, target=start.target, also_build=also_build, spent_s=bench.elapsed_s
    )
    study = Study(request, space, bench.clock, place, devices, goals=goals)
    study.watch = bench.conversation.tell_event
    kinds = len(study.contests)
    notes = []
    if kinds > 1:
        text = f"{kinds} kinds of devices: each config is timed on each kind, which has a winner of its own"
        notes.append(Note(text=text))
    texts = (space.describe_choice(), space.describe_start())
    notes += [Note(text=text) for text in texts if text]

    def fold(ending: Ending) -> StudyResult:
        result = study.result(ending.run, ending.reason, devices[0])
        for one in (result, *result.others):
            for note in _doubt_busy_runs(bench, one, request.timing.confidence):
                ending.tell(note)
            if start.chooses and one.best is not None and one.reason != "interrupted":
                _write_down(bench, study, one)
        built = [_also_built(study, target, ending) for target in also_build]
        return msgspec.structs.replace(
            result,
            also_built=tuple(built),
            unrecorded=tuple(ending.unrecorded),
            lost_hosts=describe_lost(ending.lost_hosts),
        )

    def rank(case: Case, build: BuildKey) -> float | None:
        strategy: object = space.strategy
        is_screened = study.is_screening and case.target == start.target
        if not isinstance(strategy, Foresees) or not is_screened:
            return None  # it is only built, or of the finals
        work = count_built(build, space.arguments, bench.objects)
        space.thread.tell(partial(strategy.foresee, case.config, work))
        return strategy.rank(work)

    async def finish(result: StudyResult) -> StudyResult:
        return await _time_reference(start, bench, authors, devices[0], result)

    if request.time_reference and not find_class(devices[0].kind).is_cores:
        raise UsageError(f"--time-reference: the reference runs on CPUs, not on {devices[0].name}")
    return Plan(
        source=study,
        fold=fold,
        finish=finish if request.time_reference else None,
        authors=authors,
        grounds={
            **dict.fromkeys(also_build, ()),
            **({request.sanitized: devices} if request.sanitized else {}),
            start.target: devices,
        },
        named=start.devices,
        begun=RunStarted(
            title=f"{start.title} {space.kernel}",
            target=start.target,
            cases=space.at_most * kinds,
            flops=space.flops,
        ),
        notes=notes,
        listeners=[study.hear],
        workplace=Workplace(
            reuse=start.reuse,
            fresh=start.fresh,
            overlap=start.overlap,
            queue_limit_s=start.queue_limit_s,
            compile_workers=start.compile_workers,
            group_size=start.group_size,
            check_sync=request.check_sync,
        ),
        find_reason=lambda: study.reason,
        rank=rank if space.foresight is not None else None,
        budget_s=request.budget_s,
        trim_after_s=study.budgets.screening_s,
        find_excess=lambda: study.why_ended if study.is_screening else "",
    )


async def _time_reference(
    start: StartTune, bench: Bench, authors: Authors, device: Device, result: StudyResult
) -> StudyResult:
    """Time the reference under the policy of the configs, while the device is held."""
    record = None if result.best is None else find_run(bench.objects, result.best.keys.run)
    if record is None:
        return result
    question = MakeGolden(
        kernel=result.kernel,
        arguments=result.arguments,
        specs=record.entry.specs,
        scalars=record.entry.scalars,
        threads=len(device.cores),
        reference=start.request.reference,
        make_inputs=start.request.inputs,
        timing=start.request.timing,
    )
    try:
        title = f"tileyard {start.title} {result.kernel}, run {bench.run}"
        lease = await asyncio.to_thread(HeldLease, (device,), start.queue_limit_s, title=title)
    except QueueTimeoutError as error:
        return _leave_untimed(bench, result, str(error))
    try:
        reply = await authors.of("", start.file).ask(question, start.request.limits.golden_s)
    finally:
        lease.release()
    if isinstance(reply, Failed):
        return _leave_untimed(bench, result, reply.message)
    return msgspec.structs.replace(result, reference=reply.measurement, seconds=bench.elapsed_s)


def _leave_untimed(bench: Bench, result: StudyResult, why: str) -> StudyResult:
    """A study that is complete but for the time of its reference."""
    bench.conversation.tell_event(Note(text=f"the reference was not timed: {why}", level="warning"))
    return result


def _write_down(bench: Bench, study: Study, result: StudyResult) -> None:
    best = result.best
    record = None if best is None else find_run(bench.objects, best.keys.run)
    measured = None if best is None else result.measurement_of(best)
    if best is None or record is None or measured is None:
        return
    choice = Choice(
        kernel=best.kernel,
        arguments=best.arguments,
        target=best.target,
        silicon=best.silicon or result.silicon,
        config=best.config,
        tensors=record.entry.specs,
        latency_ns=measured.median_ns,
        file=Path(study.space.file).name,
        trial=best.id,
        build=best.keys.build,
        rule=record.entry.rule,
    )
    add_choices(bench.settings.home, [choice])


def _also_built(study: Study, target: str, ending: Ending) -> CompileResult:
    """How builds of a study's configs for a further target ended."""
    sweep = study.also_built
    cases = [case for case in sweep.cases if case.target == target and case.id.startswith(target)]
    return CompileResult(
        run=ending.run,
        kernel=study.space.kernel,
        arguments=study.space.arguments,
        target=target,
        space=study.space.size,
        configs=tuple(ending.build_of(case, case.id.removeprefix(f"{target}/")) for case in cases),
        reason=ending.reason,
        seconds=ending.seconds,
    )


def _doubt_busy_runs(bench: Bench, result: StudyResult, confidence: float) -> list[Note]:
    """Report times that come from runs with a wide A/A control. Reused finals report this themselves."""
    notes: list[Note] = []
    if result.control is not None and result.control.reused:
        return notes
    known = Counter(trial.run for trial in result.trials if trial.reused and trial.measurement)
    for run, count in known.items():
        trials = bench.store.list_trials(TrialQuery(run=run, limit=0))
        finals = [
            trial
            for trial in trials
            if is_final(trial)
            and trial.arguments == result.arguments
            and trial.silicon in ("", result.silicon)
        ]
        finals = select_last(finals)
        control = judge_finals(finals, finals, confidence).control
        if control is not None and control.is_wide:
            times = f"{count_of(count, 'timing')} known from run {run}"
            text = f"{times}, in which the machine was busy; --fresh measures again"
            notes.append(Note(text=text, level="warning"))
    return notes


class PackedSpace(Record):
    """What an author knows of a kernel and no case has, as in an OpenSpace; ``file`` has no folders."""

    file: str = ""
    flops: float = 0.0
    timing: TimingPolicy | None = None
    run_s: float = 0.0
    default: dict[str, Value] | None = None


@dataclass(frozen=True, kw_only=True)
class OpenPacked:
    """The space, the target of its configs, and what a runner needs for each, by the config's text."""

    space: OpenSpace
    target: str
    entries: dict[str, RunEntry]

    def find(self, _programs: Programs | None, case: Case) -> RunEntry:
        """See ``Plan.packed``."""
        entry = self.entries[canonical_json(case.config)]
        return msgspec.structs.replace(entry, case=case.key)


async def open_packed_study(start: StartTune, bench: Bench) -> Plan[StudyResult]:
    """Open the bundle, and plan a study as of its kernel's file, with no author and no build. Raises
    UsageError, BundleError, or IncompatibleError for a bundle that does not fit this host.
    """
    objects = ObjectStore(bench.settings.make_home() / "objects")
    expected = Expected(kind="selection")
    bundle = open_bundle(Path(start.bundle), objects, expected, accept=check_suite)
    suite = unpack_suite(bundle.cases, objects)
    packed = open_packed(suite, bundle.manifest.details, start.request, start.bundle)
    timing = start.request.timing
    if (timing.flush_l2 or timing.graph) and not find_needs(packed.target).is_timed_by_policy:
        raise UsageError(f"--flush-l2 and --graph are for GPUs, and not for {packed.target}")
    require_timed(packed.target)
    start = msgspec.structs.replace(start, target=packed.target)
    _, devices = await find_devices(
        bench, start.hosts, start.devices, start.target, start.queue_limit_s
    )
    side = msgspec.structs.replace(HERE, stored=start.bundle)
    authors = bench.make_authors(devices=devices, sides=(side,))
    await packed.space.draw(1)

    async def count(config: dict[str, Value]) -> Work:
        build = packed.entries[canonical_json(config)].build
        return count_built(build, packed.space.arguments, objects)

    plan = await plan_study(start, bench, devices, authors, packed.space, count=count)
    return replace(plan, packed=packed.find)


def open_packed(packed: PackedSuite, details: str, request: TuneRequest, place: str) -> OpenPacked:
    """The space of the bundle at ``place``, with its ``details``; no config is drawn yet.

    Raises UsageError if the bundle contains anything but configs of one kernel with one set of arguments,
    and BundleError.
    """
    check_numbers(request)
    works = {case.id: case.work for case in packed.suite.cases}
    kernels = {name: work for name, work in works.items() if isinstance(work, KernelWork)}
    subjects = {
        canonical_json((work.kernel, work.arguments, packed.targets.get(name)))
        for name, work in kernels.items()
    }
    if len(kernels) != len(works) or len(subjects) != 1:
        raise UsageError(
            f"{place} does not hold the configs of one kernel for one shape and target",
            "`tileyard compile FILE::NAME --all-configs -o` packs them",
        )
    first = next(iter(kernels))
    work = kernels[first]
    try:
        known = decode_json(details.encode(), PackedSpace) if details else PackedSpace()
        entries = {canonical_json(one.config): packed.entries[id_] for id_, one in kernels.items()}
        target = packed.targets[first]
    except (msgspec.DecodeError, KeyError) as error:
        raise BundleError(f"{place} holds no space: {error}") from None
    points = Points({}, [one.config for one in kernels.values()])
    space = OpenSpace(
        kernel=work.kernel,
        arguments=work.arguments,
        size=len(kernels),
        flops=known.flops,
        tolerance=work.tolerance,
        timing=known.timing,
        run_s=known.run_s,
        file=known.file,
        wanted=request.trials,
        points=points,
        strategy=choose_strategy(request, points),
        default=None
        if known.default is None or points.find(known.default) is None
        else known.default,
    )
    return OpenPacked(space=space, target=target, entries=entries)
