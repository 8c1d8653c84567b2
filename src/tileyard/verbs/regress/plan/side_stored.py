"""Sides that are already built: a bundle, or the builds of a recorded run that the store still has."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from tileyard.artifacts.bundle_manifest import Expected
from tileyard.artifacts.bundles import open_bundle
from tileyard.artifacts.keys import canonical_json, digest_parts
from tileyard.artifacts.manifest import find_artifact
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.errors import UsageError
from tileyard.base.model import Case, KernelWork, Side, Trial
from tileyard.engine.programs import Programs
from tileyard.service.bench import Bench
from tileyard.store.base import TrialQuery
from tileyard.targets.registry import COMMAND
from tileyard.verbs.regress.plan.sides import RUN
from tileyard.verbs.test.plan.kernel_cases import ONLY
from tileyard.verbs.test.plan.packed import check_suite, unpack_suite
from tileyard.verbs.test.plan.side_suites import choose_cases
from tileyard.verbs.test.result.records import Suite, SuiteCase
from tileyard.verbs.tune.plan.sweep import name_config
from tileyard.workers.protocol import RunEntry
from tileyard.workers.run_records import RunRecord, find_runs


@dataclass(frozen=True, kw_only=True)
class StoredSide:
    """The selected ``cases`` of a built suite, and by case what a runner needs for it, and its target.
    ``gone`` says why cases are not available. ``quarantined`` ones are left out.
    """

    suite: Suite
    cases: tuple[SuiteCase, ...]
    entries: Mapping[str, RunEntry]
    targets: Mapping[str, str]
    gone: Mapping[str, str] = field(default_factory=dict)
    quarantined: int = 0


def open_stored(side: Side, select: tuple[str, ...], bench: Bench) -> StoredSide:
    """Find the content of a stored side. Raises UsageError, BundleError, or IncompatibleError for a bundle
    that does not fit this host.
    """
    if side.stored.startswith(RUN):
        opened = _read_run(side.stored.removeprefix(RUN), bench)
    else:
        objects = ObjectStore(bench.settings.make_home() / "objects")
        accepted = Expected(kind="selection")
        bundle = open_bundle(Path(side.stored), objects, accepted, accept=check_suite)
        packed = unpack_suite(bundle.cases, objects)
        suite = msgspec.structs.replace(packed.suite, path=side.stored)
        opened = StoredSide(suite=suite, cases=(), entries=packed.entries, targets=packed.targets)
    cases, quarantined = choose_cases(opened.suite, select)
    return StoredSide(**{**vars(opened), "cases": cases, "quarantined": quarantined})


def find_target(stored: Mapping[str, StoredSide], target: str) -> str:
    """The common target of all stored sides; ``target`` is the requested one, if any. Raises UsageError."""
    built = {
        name: sorted({one.targets[case.id] for case in one.cases}) for name, one in stored.items()
    }
    told = " and ".join(
        f"{name} is built for {' and '.join('programs' if one == COMMAND else one for one in own)}"
        for name, own in built.items()
    )
    found = {one for own in built.values() for one in own}
    if len(found) > 1:
        is_mixed = any(len(own) > 1 for own in built.values())
        hint = "--select chooses cases of one target" if is_mixed else ""
        raise UsageError(f"nothing can be compared: {told}", hint)
    if target and target not in found:
        raise UsageError(f"--target {target} has no effect: {told}")
    return found.pop()


def find_entries(
    stored: Mapping[str, StoredSide], cases: Mapping[str, Sequence[Case]]
) -> "FindStored":
    """A function that finds the entries of these cases, under whatever id they run."""
    entries = {
        _identify(case): stored[name].entries[case.id]
        for name, own in cases.items()
        if name in stored
        for case in own
    }
    return FindStored(frozenset(stored), entries)


class FindStored:
    """Finds what a runner needs for a case of a stored side, None for another side; for programs only the
    build, as steps are those of that side now.
    """

    def __init__(self, sides: Collection[str], entries: Mapping[str, RunEntry]) -> None:
        self._sides = sides
        self._entries = entries

    def __call__(self, programs: Programs | None, case: Case) -> RunEntry | None:
        """See ``Plan.packed``."""
        if case.side not in self._sides:
            return None
        return msgspec.structs.replace(self._entries[_identify(case)], case=case.key, command=None)


def _identify(case: Case) -> str:
    """What a case shares with the ones that build and time it."""
    return canonical_json((case.side, case.seed, case.work))


# ---- recorded runs -------------------------------------------------------------------------------


def _read_run(run: str, bench: Bench) -> StoredSide:
    trials = bench.store.list_trials(TrialQuery(run=run, limit=0))
    if not trials:
        raise UsageError(f"there is no run {run}", "`tileyard trials` lists runs with their trials")
    if any(trial.side for trial in trials):
        raise UsageError(f"run {run} is itself a comparison of two sides", "name one of these")
    if not any(trial.kernel for trial in trials):
        raise UsageError(
            f"run {run} ran programs, and what their steps read is not kept with a run",
            "`tileyard bundle` packs a suite with all of it",
        )
    if not any(trial.keys.run for trial in trials):
        raise UsageError(f"run {run} has only built, so there are no inputs to time with")
    records = find_runs(bench.objects, {trial.keys.run for trial in trials})
    cases: dict[str, SuiteCase] = {}
    entries: dict[str, RunEntry] = {}
    targets: dict[str, str] = {}
    gone: dict[str, str] = {}
    # The newest first: of several attempts, and of a finalist that was timed twice, the last one counts.
    for trial in trials:
        testcase, name = _name_trial(trial)
        id_ = f"{testcase}/{name}"
        if not trial.kernel or trial.control or id_ in cases:
            continue
        record = records.get(trial.keys.run)
        work = KernelWork(
            kernel=trial.kernel,
            arguments=trial.arguments,
            config=trial.config,
            shape=trial.shape,
            tolerance=None if record is None else record.case.check.tolerance,
        )
        cases[id_] = SuiteCase(testcase=testcase, name=name, work=work, family=testcase)
        targets[id_] = trial.target
        if message := _find_loss(trial, record, bench.objects):
            gone[id_] = message
        elif record is not None:
            entries[id_] = record.entry
    where = f"{RUN}{run}"
    suite = Suite(name=where, path=where, folder="", cases=tuple(reversed(cases.values())))
    return StoredSide(suite=suite, cases=(), entries=entries, targets=targets, gone=gone)


def _name_trial(trial: Trial) -> tuple[str, str]:
    """A trial's testcase and its name in it: a suite's own, else the kernel with arguments and config."""
    if trial.testcase:
        return trial.testcase, trial.case.removeprefix(f"{trial.testcase}/")
    if not (values := {**trial.arguments, **trial.config}):
        return trial.kernel, ONLY
    sound = name_config(values, 0)
    return trial.kernel, digest_parts(canonical_json(values))[:10] if sound == "config-0" else sound


def _find_loss(trial: Trial, record: RunRecord | None, objects: ObjectStore) -> str:
    """Why the build of a trial cannot be timed, empty if it can."""
    if not trial.keys.run:
        return f"run {trial.run} could not build it: {trial.outcome}: {trial.message}"
    golden = None if record is None else record.entry.golden
    if record is None or find_artifact(record.entry.build, objects) is None:
        lost = "binary"
    elif golden is None or not all(map(objects.has, (*golden.inputs, *golden.outputs))):
        lost = "inputs or results"
    else:
        return ""
    return f"the {lost} of run {trial.run} is no longer in the store: `cache collect` removed it"
