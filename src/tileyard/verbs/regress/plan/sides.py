"""The two sides of a static comparison: the current environment, another one, or other pass options."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from tileyard.artifacts.bundle_file import Expected
from tileyard.artifacts.bundles import open_bundle
from tileyard.artifacts.manifest import Build, find_artifact
from tileyard.artifacts.objects import ObjectStore, canonical_json, digest_parts
from tileyard.base.decoding import decode_json
from tileyard.base.errors import KernelFileError, ToolMissingError, UsageError
from tileyard.base.model import (
    Case,
    CheckPolicy,
    KernelWork,
    Limits,
    Outcome,
    Record,
    Side,
    Trial,
    Work,
)
from tileyard.base.settings import Settings
from tileyard.base.wording import count_of
from tileyard.engine.authors import Authors
from tileyard.engine.programs import Programs
from tileyard.service.bench import Bench
from tileyard.show.words import format_config
from tileyard.store.base import TrialQuery
from tileyard.targets.cuda.packages import ANY_TILELANG
from tileyard.targets.cuda.shortcuts import SWITCH as PLAIN
from tileyard.targets.registry import COMMAND
from tileyard.verbs.regress.options.start import StartRegress
from tileyard.verbs.test.plan.choosing import find_meant
from tileyard.verbs.test.plan.kernel_cases import ONLY, read_suite_with_kernels
from tileyard.verbs.test.plan.packed import check_suite, unpack_suite
from tileyard.verbs.test.plan.side_suites import choose_cases
from tileyard.verbs.test.result.result import Suite, SuiteCase
from tileyard.verbs.tune.plan.deciding import name_config
from tileyard.workers.protocol import RunEntry
from tileyard.workers.run_records import RunRecord, find_runs

HERE = "."
RUN = "run:"
"""Prefix of a recorded run's name as a side."""
NEEDED = (
    *("cuda.bindings", "elftools", "ml_dtypes", "msgspec", "numpy", "packaging"),
    *("scipy", "sqlalchemy", "tilelang", "torch", "zstandard"),
)
"""Packages that a side's Python must have: Tileyard's own except Tileyard, TileLang, the extra cuda."""
PROBE_LIMIT_S = 60.0
_PROBE = """
import importlib.metadata, importlib.util, json, sys
def find(name):
    try:
        return importlib.util.find_spec(name)
    except ImportError:
        return None
try:
    version = importlib.metadata.version("tilelang")
except importlib.metadata.PackageNotFoundError:
    version = ""
print(json.dumps({
    "python": list(sys.version_info[:2]),
    "tilelang": version,
    "missing": [name for name in sys.argv[1:] if find(name) is None],
}))
"""


class Installed(Record):
    """A side's Python's report on itself."""

    python: tuple[int, int]
    tilelang: str
    missing: tuple[str, ...]


def find_side(named: str) -> Side:
    """The side of ``.``, a Python or a virtual environment's folder, with that name. Raises UsageError."""
    if named == HERE:
        return Side(name=named)
    path = Path(named).absolute()
    program = path / "bin" / "python" if path.is_dir() else path
    if not (program.is_file() and os.access(program, os.X_OK)):
        raise UsageError(
            f"{named} is neither a Python, nor a virtual environment, nor pass options KEY=VALUE,...",
            f"{HERE} is what is installed here",
        )
    return Side(name=named, python=str(program))


def probe_side(side: Side, variables: dict[str, str]) -> Installed:
    """Ask a side's Python for its packages. Raises ToolMissingError if they are not enough."""
    python = side.python or sys.executable
    argv = [python, "-P", "-c", _PROBE, *NEEDED]
    try:
        done = subprocess.run(
            argv,
            env={**os.environ, **variables},
            capture_output=True,
            check=False,
            timeout=PROBE_LIMIT_S,
        )
        found = decode_json(done.stdout, Installed)
    except (OSError, subprocess.TimeoutExpired, msgspec.DecodeError) as error:
        raise ToolMissingError(f"{side.name}: {python} is no Python that works") from error
    if found.python < (3, 11):
        has = ".".join(map(str, found.python))
        raise ToolMissingError(f"{side.name} has Python {has}", "it takes 3.11 or later")
    if found.missing:
        raise ToolMissingError(
            f"{side.name} lacks {', '.join(found.missing)}",
            "install tileyard with its extra cuda there, beside that TileLang",
        )
    return found


def side_variables(side: Side, scratch: Path, *, is_plain: bool) -> dict[str, str]:
    """The environment in which a side runs this very Tileyard and its own version of all else. A folder with
    a link goes first, as Tileyard's own may also hold a TileLang. With ``is_plain`` TileLang's passes run
    without version-bound shortcuts.
    """
    # Nothing is imported from the current folder: it may be TileLang's own.
    variables = {"PYTHONSAFEPATH": "1", ANY_TILELANG: "1"}
    if is_plain:
        variables[PLAIN] = "1"
    if side.python:
        folder = scratch / "tileyard-only"
        folder.mkdir(exist_ok=True)
        link = folder / "tileyard"
        if not link.is_symlink():
            link.symlink_to(Path(__file__).parents[3])
        variables["PYTHONPATH"] = str(folder)
    return variables


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


@dataclass(frozen=True, kw_only=True)
class StoredKernels:
    """The cases of kernels of both sides, and those that a side cannot begin."""

    cases: dict[str, list[Case]]
    refused: dict[str, list[Build]]


async def open_kernels(
    stored: Mapping[str, StoredSide],
    start: StartRegress,
    target: str,
    authors: Authors,
    settings: Settings,
) -> StoredKernels:
    """The kernels of the stored sides, and of the other side's files if there is only one. Raises UsageError
    if two files have a case of one name, or the sides have none in common.
    """
    files = {"base": start.base_files, "head": start.head_files}
    texts = [kernel for own in files.values() for _, kernel in own]
    found = {
        name: {case.id: case for case in one.cases if not texts or _is_meant(case, texts)}
        for name, one in stored.items()
    }
    refused = {
        name: [_refuse(case, stored[name].gone[case]) for case in own if case in stored[name].gone]
        for name, own in found.items()
    }
    for name in files.keys() - stored.keys():
        (beside,) = found.values()
        reader = _Beside(authors, name, settings)
        refused[name] = [failed for file in files[name] async for failed in reader.read(*file)]
        found[name] = reader.choose(beside, start.request.select)
    base, head = found["base"], found["head"]
    if not base.keys() & head.keys() and not any(refused.values()):
        raise UsageError(
            f"nothing can be compared: base has {count_of(len(base), 'case')} and head has "
            f"{count_of(len(head), 'case')}, and none is in both"
        )
    for case in base.keys() & head.keys():
        if difference := _find_difference(base[case].work, head[case].work):
            refused["head"].append(_refuse(case, difference))
    lost = {one.case for own in refused.values() for one in own}
    cases = {
        name: [
            _make_case(case, name, target, start.request.limits)
            for case in found[name].values()
            if case.id not in lost
        ]
        for name in files
    }
    return StoredKernels(cases=cases, refused=refused)


class _Beside:
    """The kernels of a side's files, as ``tileyard bundle`` would build them."""

    def __init__(self, authors: Authors, side: str, settings: Settings) -> None:
        self._authors = authors
        self._side = side
        self._settings = settings
        self._cases: dict[str, SuiteCase] = {}

    async def read(self, file: str, kernel: str) -> AsyncIterator[Build]:
        """Read a file, or only its named kernel; a file that this side cannot read is a failed kernel."""
        try:
            suite = await read_suite_with_kernels(
                Path(file), self._settings, self._authors, self._side
            )
        except KernelFileError as error:
            yield Build(case=Path(file).name, outcome=Outcome.COMPILE_ERROR, message=str(error))
            return
        cases, _ = choose_cases(suite, ())
        found = {case.id: case for case in cases if _is_meant(case, [kernel])}
        if twice := self._cases.keys() & found.keys():
            raise UsageError(f"{file} has a case {min(twice)}, and so has another file")
        self._cases |= found

    def choose(
        self, stored: Mapping[str, SuiteCase], select: tuple[str, ...]
    ) -> dict[str, SuiteCase]:
        """Its selected cases to compare with a stored side's. A kernel without a case of the same name there
        gets that side's cases, with their arguments and configs.
        """
        own = tuple(self._cases.values())
        if select:
            meant = frozenset[str]().union(*(find_meant(text, own) for text in select))
            own = tuple(case for case in own if case.id in meant)
        kernels = {_kernel_of(case): case for case in self._cases.values()}
        named = {_kernel_of(case) for case in own if case.id in stored}
        alike = {
            case.id: msgspec.structs.replace(case, work=_move(case.work, kernels[name].work))
            for case in stored.values()
            if (name := _kernel_of(case)) in kernels.keys() - named
        }
        replaced = {_kernel_of(case) for case in alike.values()}
        return {case.id: case for case in own if _kernel_of(case) not in replaced} | alike


def _make_case(case: SuiteCase, side: str, target: str, limits: Limits) -> Case:
    tolerance = case.work.tolerance if isinstance(case.work, KernelWork) else None
    return Case(
        id=case.id,
        work=case.work,
        target=target,
        side=side,
        check=CheckPolicy(tolerance=tolerance),
        limits=limits,
    )


def _refuse(case: str, message: str) -> Build:
    return Build(case=case, outcome=Outcome.NOT_RUN, message=message)


def _kernel_of(case: SuiteCase) -> str:
    return case.work.kernel if isinstance(case.work, KernelWork) else ""


def _is_meant(case: SuiteCase, texts: Collection[str]) -> bool:
    """Whether one of these texts is empty, or names the kernel or the kernel and shape of a case."""
    kernel = _kernel_of(case)
    return not {"", kernel, f"{kernel}/{case.name}"}.isdisjoint(texts)


def _move(work: Work, own: Work) -> Work:
    """The kernel of ``own`` with the arguments and the config of ``work``."""
    if not (isinstance(work, KernelWork) and isinstance(own, KernelWork)):
        return work
    return msgspec.structs.replace(
        work, file=own.file, tolerance=own.tolerance or work.tolerance, reference=own.reference
    )


def _find_difference(base: Work, head: Work) -> str:
    """Why head's case is not base's, empty if it is."""
    if not (isinstance(base, KernelWork) and isinstance(head, KernelWork)):
        return ""
    if base.arguments == head.arguments:
        return ""
    return (
        f"cannot be compared: it has {format_config(head.arguments)}, "
        f"and on base {format_config(base.arguments)}"
    )
