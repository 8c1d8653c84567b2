"""Building the configs of a kernel inside the engine process: no device is asked for, nothing runs."""

import asyncio
from pathlib import Path

import msgspec

from tileyard.artifacts.bundles import Packing, write_bundle
from tileyard.artifacts.manifest import find_artifact
from tileyard.artifacts.objects import ObjectStore
from tileyard.clock import SystemClock
from tileyard.engine.authors import Author
from tileyard.engine.yard import Yard
from tileyard.errors import UsageError
from tileyard.events import BuildEnded, Event, Note, RunStarted
from tileyard.model import Case, Outcome, Trial
from tileyard.service.conversation import Conversation
from tileyard.service.messages import StartCompile
from tileyard.service.naming import claim_run_name
from tileyard.service.sweeping import build_cases, sweep_slots
from tileyard.settings import Settings
from tileyard.store.events import EventLog
from tileyard.store.trials import TrialStore
from tileyard.suite.packed import pack_suite
from tileyard.suite.records import KernelWork, Suite, SuiteCase
from tileyard.tuning.request import BuiltConfig, CompileResult
from tileyard.tuning.space import OpenSpace, open_space
from tileyard.tuning.sweep import WELL_BUILT, Sweep, make_cases
from tileyard.workers.protocol import RunEntry


class Compiling:
    """A build of configs that can be stopped from outside."""

    def __init__(
        self, start: StartCompile, settings: Settings, author: Author, conversation: Conversation
    ) -> None:
        self._start = start
        self._settings = settings
        self._author = author
        self._conversation = conversation
        self._clock = SystemClock()
        self._objects = ObjectStore(settings.home / "objects")
        self._reused: set[str] = set()
        self._notes: list[str] = []

    async def run(self, stopping: asyncio.Event) -> CompileResult:
        """Build everything, and write the bundle if one is asked for.

        Raises TileyardError where the request makes no sense.
        """
        start, started_s = self._start, self._clock.monotonic_s()
        space = await open_space(self._author, start.request)
        if not start.all_configs:
            space = msgspec.structs.replace(space, configs=space.configs[:1])
        sweep = Sweep(make_cases(space, start.request.limits))
        note = ""
        if len(space.configs) < space.size:
            note = f"{len(space.configs)} of {space.size} points of the space are built"
            note += "" if start.all_configs else "; --all-configs builds them all"
        with (
            TrialStore.open(self._settings.make_home()) as store,
            EventLog(self._settings.home, run := claim_run_name(self._settings.home, store)) as log,
        ):
            yard = Yard(
                settings=self._settings,
                store=store,
                objects=self._objects,
                author=self._author,
                target=start.target,
                devices=sweep_slots(self._settings),
                listeners=[log.add, self._conversation.tell_event, self._note],
                flushes=[log.flush],
                reuse=start.reuse,
                reference=start.request.reference,
                compile_workers=start.compile_workers,
                group_size=start.group_size,
                golden=bool(start.pack_to),
                clock=self._clock,
            )
            begin = RunStarted(
                run=run,
                at=self._clock.wall_s(),
                title=f"compile {space.kernel}",
                target=start.target,
                devices=(),
                cases=len(sweep.cases),
            )
            swept = await build_cases(sweep, yard, begin, stopping, note)
        result = CompileResult(
            run=run,
            kernel=space.kernel,
            arguments=space.arguments,
            target=start.target,
            space=space.size,
            configs=tuple(self._describe(case, sweep.trials.get(case.id)) for case in sweep.cases),
            notes=tuple(self._notes),
            reason=swept.reason,
            seconds=self._clock.monotonic_s() - started_s,
            lines=next((entry.lines for entry in swept.entries.values()), {}),
        )
        if start.pack_to and not all(e.golden.outputs for e in swept.entries.values()):
            note = f"{space.kernel} has no reference, so nobody can check what comes of the bundle"
            result = msgspec.structs.replace(
                result, notes=(*result.notes, f"{note}: --reference names one")
            )
        if start.pack_to and swept.reason == "done":
            self._write_bundle(space, sweep, swept.entries)
        return result

    def _note(self, event: Event) -> None:
        if isinstance(event, BuildEnded) and event.reused:
            self._reused.add(event.case)
        if isinstance(event, Note) and event.level == "warning":
            self._notes.append(event.text)

    def _describe(self, case: Case, trial: Trial | None) -> BuiltConfig:
        if trial is None:
            return BuiltConfig(case=case.id, config=case.config, outcome=Outcome.NOT_RUN)
        is_built = trial.outcome in WELL_BUILT
        artifact = find_artifact(trial.keys.build, self._objects) if is_built else None
        return BuiltConfig(
            case=case.id,
            config=case.config,
            outcome=Outcome.PASSED if is_built else trial.outcome,
            message="" if is_built else trial.message,
            build=trial.keys.build,
            build_s=trial.build_s,
            reused=case.id in self._reused or trial.reused,
            details="" if artifact is None else artifact.manifest.details,
            log=trial.log,
        )

    def _write_bundle(self, space: OpenSpace, sweep: Sweep, entries: dict[str, RunEntry]) -> None:
        """Pack what was built as a suite of one testcase. Raises UsageError where nothing was."""
        start, file = self._start, Path(self._start.file)
        if not entries:
            raise UsageError(f"no config of {space.kernel} could be built, so there is no bundle")
        suite = Suite(
            name=space.kernel,
            path=start.file,
            folder=str(file.parent),
            cases=tuple(self._as_suite_case(space, case) for case in sweep.cases),
        )
        packed = {f"{space.kernel}/{case}": entry for case, entry in entries.items()}
        targets = dict.fromkeys(packed, start.target)
        packing = Packing(kind="selection", commit=start.commit, target=start.target)
        cases = pack_suite(suite, packed, targets, self._objects)
        write_bundle(packing, self._objects, Path(start.pack_to), cases)

    def _as_suite_case(self, space: OpenSpace, case: Case) -> SuiteCase:
        work = KernelWork(
            file=self._start.file,
            kernel=space.kernel,
            arguments=case.arguments,
            config=case.config,
            reference=self._start.request.reference,
            tolerance=self._start.request.check.tolerance or space.tolerance,
        )
        return SuiteCase(
            testcase=space.kernel,
            name=case.id,
            work=work,
            family=space.kernel,
            limits=case.limits,
            where=self._start.file,
        )
