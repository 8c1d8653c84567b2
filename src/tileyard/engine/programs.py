"""Answers for cases of programs: no user code is imported; the step host runs all that needs no device."""

import asyncio
import contextlib
import functools
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ParamSpec

import msgspec

from tileyard.artifacts.copying import remove_folder
from tileyard.artifacts.footprint import USES, Footprint
from tileyard.artifacts.objects import canonical_json, digest_parts
from tileyard.artifacts.toolchains import open_toolchain
from tileyard.base.errors import TileyardError, UsageError, WorkerLostError
from tileyard.base.events import StepKind
from tileyard.base.model import (
    Batch,
    BuildKey,
    BuildPart,
    Case,
    CommandWork,
    Device,
    Digest,
    Elaborated,
    GoldenKey,
    HotRun,
    Kernel,
    Outcome,
    Step,
    Trial,
)
from tileyard.engine.hosting import StepHost
from tileyard.engine.program_builds import ProgramBuilds
from tileyard.engine.proofs import (
    NO_BUILD,
    NO_TREE,
    StepGrounds,
    list_late_steps,
    put_ground,
    uses_build,
)
from tileyard.processes.steps import describe_complaints
from tileyard.targets.command.given import StepSite
from tileyard.targets.command.target import BuildCommand
from tileyard.workers.command_protocol import (
    CheckBatch,
    CompareOutputs,
    DoStep,
    FindGolden,
    PrepareFolder,
    StepDone,
)
from tileyard.workers.command_runs import DATA
from tileyard.workers.protocol import (
    AnswerT,
    CaseRan,
    CommandRun,
    ElaboratedConfig,
    Failed,
    Golden,
    Judged,
    Question,
    RunBatch,
    RunEntry,
)

NO_DEVICE = Device(name="", kind="", identity="")
P = ParamSpec("P")
WORK = "work"
GOLDEN: StepKind = "golden"
CHECK: StepKind = "check"
Tell = Callable[[Case, StepKind, float], None]
CASE = "TILEYARD_CASE"
"""The variable that gives run and check steps the name of their case."""
NO_KEY = GoldenKey("")
WRONG = 2
"""The exit status with which a check step reports a wrong result."""


@dataclass(frozen=True)
class _Ready:
    case: Case
    entry: RunEntry
    ended: asyncio.Future[CaseRan | None]


class HotChecks:
    """The hot checks of one run. Each process runs within ``lane``, and may use ``threads`` threads."""

    def __init__(
        self, host: StepHost, lane: Callable[[], AbstractAsyncContextManager[None]], threads: int
    ) -> None:
        self._host = host
        self._lane = lane
        self._threads = threads
        self._ready: dict[str, list[_Ready]] = {}
        self._running: set[asyncio.Task[None]] = set()

    async def check(self, case: Case, entry: RunEntry) -> CaseRan | None:
        """How the check of a case ended; None if the host could not do it this way."""
        ready = _Ready(case, entry, asyncio.get_running_loop().create_future())
        hot = entry.command.hot if entry.command is not None else None
        alike = canonical_json((case.side, case.testcase, hot, entry.build))
        if alike in self._ready:
            self._ready[alike].append(ready)
        else:
            self._ready[alike] = [ready]
            task = asyncio.create_task(self._run(alike))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        return await ready.ended

    async def _run(self, alike: str) -> None:
        while self._ready[alike]:
            async with self._lane():
                group, self._ready[alike] = self._ready[alike], []
                await self._run_group(group)
        del self._ready[alike]

    async def _run_group(self, group: Sequence[_Ready]) -> None:
        left = {ready.case.key: ready.ended for ready in group if not ready.ended.done()}
        batch = RunBatch(
            batch=Batch(id="checks", cases=tuple(ready.case for ready in group)),
            entries=tuple(ready.entry for ready in group),
            plugins={},
            device=NO_DEVICE,
        )
        try:
            async for reply in self._host.follow(CheckBatch(run=batch, threads=self._threads)):
                if isinstance(reply, CaseRan) and not left[reply.case].done():
                    left[reply.case].set_result(reply)
        except TileyardError:  # each alone shows for which of them the host failed
            pass
        finally:
            for ended in left.values():
                if not ended.done():
                    ended.set_result(None)


UNCLEAR, SAYS_WRONG = 1, f"exit status {WRONG} says that a result is wrong"
"""The exit status of a script that crashed, or that says so in its own way; and a hint."""


@dataclass(frozen=True, kw_only=True)
class ProgramSite:
    """Where programs are run. ``sites`` give, by side, the place of its suite and the variables of
    its steps. ``lanes`` golden and check steps run at once, each on ``threads`` threads. ``doubts``
    are reasons why nothing that runs there is proven; ``targets`` are needed, by build step as
    canonical JSON. Unless ``proves``, nothing is proven and the use of late steps is not examined.
    """

    sites: Mapping[str, StepSite]
    lanes: int
    threads: int
    identities: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    targets: Mapping[str, Mapping[str, BuildPart]] = field(default_factory=dict)
    proves: bool = True


def place_toolchain(bundle: Path, commit: str, home: Path) -> StepSite:
    """The place of a toolchain's bundle, unpacked. Errors are those of ``open_toolchain``."""
    found = open_toolchain(bundle, commit, home)
    whole = found.environment(os.environ)
    added = {name: text for name, text in whole.items() if os.environ.get(name) != text}
    return StepSite(toolchain=str(found.folder), tree=found.tree, env=added)


def _tell_nobody(case: Case, kind: StepKind, seconds: float) -> None:
    """Do nothing."""


def _answering(
    ask: Callable[P, Awaitable[AnswerT | Failed]],
) -> Callable[P, Coroutine[object, object, AnswerT | Failed]]:
    """Turn errors into answers: an error of the user's own files fails the case, any other is the host's."""

    @functools.wraps(ask)
    async def answered(*args: P.args, **kwargs: P.kwargs) -> AnswerT | Failed:
        try:
            return await ask(*args, **kwargs)
        except UsageError as error:
            return Failed(message=str(error), outcome=Outcome.RUNTIME_ERROR)
        except TileyardError as error:
            is_final = isinstance(error, WorkerLostError)
            return Failed(message=str(error), outcome=Outcome.INFRA_ERROR, is_final=is_final)

    return answered


class Programs:
    """Answers for the cases of programs of one run, whose folders are below ``home``."""

    def __init__(
        self, site: ProgramSite, home: Path, run: str, host: StepHost, tell: Tell = _tell_nobody
    ) -> None:
        """``tell`` receives the duration of each step that ran on a lane."""
        self._tell = tell
        self.lanes = site.lanes
        self._site = site
        self._home = home
        self._run = run
        self._host = host
        self._grounds = StepGrounds(host, site.threads)
        self._builds: dict[str, Footprint] = {}
        self._goldens: dict[str, Digest] = {}
        # Golden steps that run, or have failed: cases that share one wait for it without a lane.
        self._making: dict[tuple[str, str, int], tuple[Case, asyncio.Task[StepDone]]] = {}
        self.builds = ProgramBuilds(site.targets, self._grounds)
        self._hot: set[str] = set()
        self._late: list[Path] = []
        self._dropped: set[Path] = set()
        self._removing: set[asyncio.Task[None]] = set()
        # Preparing and judging run at the same time, and share the cores that steps may use.
        self._lanes = asyncio.Semaphore(site.lanes)
        self._places = asyncio.Semaphore(site.lanes)
        self._hot_checks = HotChecks(host, self._lane, site.threads)

    def share_cores(self, slots: int) -> asyncio.Semaphore:
        """The places for all programs on lanes and on this number of slots: first come, first served."""
        self._places = asyncio.Semaphore(max(slots, self.lanes))
        return self._places

    def adopt(self, case: Case, tree: Digest) -> str:
        """Take over a golden result that was made elsewhere; return the folder of the case."""
        self._goldens[case.key] = tree
        self._note_hot(case)
        return str(self._folder(case.id, case.attempt))

    # ---- folders ---------------------------------------------------------------------------------

    def drop(self, trial: Trial) -> None:
        """Remove a recorded trial's folder: soon, or, if another case's process began in it, at the end."""
        if trial.kernel:  # kernels have no folder
            return
        folder = self._folder(trial.case, trial.attempt)
        self._dropped.add(folder.parent)
        if trial.key in self._hot:
            self._late.append(folder)
            return
        task = asyncio.create_task(asyncio.to_thread(_remove, folder))
        self._removing.add(task)
        task.add_done_callback(self._removing.discard)

    async def close(self) -> None:
        """Wait until running removals end, and remove the rest. Nothing of the run may still be active."""
        await asyncio.gather(*self._removing)
        await asyncio.to_thread(self._clear)

    def _clear(self) -> None:
        for folder in self._late:
            _remove(folder)
        for folder in self._dropped:
            _remove_empty(folder, self._home / WORK)

    def _folder(self, case: str, attempt: int) -> Path:
        """Absolute, since the far side of a queue has another home; each attempt has its own."""
        return self._home / WORK / name_run(self._run, attempt) / case

    def _note_hot(self, case: Case) -> None:
        work = case.work
        if isinstance(work, CommandWork) and (work.hot is not None or work.check_hot is not None):
            self._hot.add(case.key)

    # ---- steps -----------------------------------------------------------------------------------

    @_answering
    async def elaborate(
        self, case: Case, work: CommandWork, is_built: Callable[[str], bool] = lambda _: False
    ) -> ElaboratedConfig | Failed:
        """The build of a case, and what runs after it. ``is_built``: whether a program's build exists."""
        self._note_hot(case)
        site = self._site.sites[case.side]
        build = BuildCommand()
        if work.build is not None:
            ground = Footprint()
            await self._grounds.add(ground, "build", work.build, site)
            await self._grounds.add_uses(ground, "build", (work.build, site))
            self._builds[case.key] = ground
            uses = ground.parts["build uses"]
            build = await self.builds.plan(work, work.build, site, uses, is_built)
            ground.parts["build inputs"] = build.inputs
        kernel = Kernel(name=case.testcase, program=canonical_json(build))
        return ElaboratedConfig(
            elaborated=Elaborated(kernel=kernel),
            command=msgspec.structs.replace(
                self._command(case, work, work.run, work.hot),
                memory_bytes=case.limits.memory_bytes,
                is_judged=bool(work.check or work.outputs),
                own_build=digest_parts("own build", kernel.program),
            ),
        )

    def _command(self, case: Case, work: CommandWork, step: Step, hot: HotRun | None) -> CommandRun:
        site = self._site.sites[case.side]
        return CommandRun(
            name=case.id.removeprefix(f"{case.testcase}/").removesuffix(work.variant),
            run=step,
            hot=hot,
            suite=site.suite,
            toolchain=site.toolchain,
            folder=str(self._folder(case.id, case.attempt)),
            env=self._case_env(case),
        )

    @_answering
    async def make_golden(
        self, case: Case, work: CommandWork, known: Digest = NO_TREE
    ) -> Golden | Failed:
        """Make or find the result of the golden step, and make the case's folder with a copy.
        ``known`` is the result made elsewhere, for a case whose work has no golden step.
        """
        site, ground = self._site.sites[case.side], Footprint()
        self._goldens.pop(case.key, None)  # from an attempt with a damaged result
        tree, flag = known, ""
        if work.golden is not None:
            await self._grounds.add(ground, GOLDEN, work.golden, site)
            await self._grounds.add_uses(ground, GOLDEN, (work.golden, site))
            key = GoldenKey(ground.key("golden"))
            first, done = await self._make_tree(case, work.golden, key)
            if done.message:
                seen = f"made for {first.id}: see {name_log(self._run, first)}"
                return _failed("golden step", done, "" if first.id == case.id else seen)
            if done.end is not None and first.id == case.id:
                flag = describe_complaints(done.end, "golden step ")
            tree = done.tree
        elif known:
            ground.parts["golden result"] = known
        self._goldens[case.key] = tree
        if tree:  # before a device is held; an empty folder is made when the case begins
            folder = str(self._folder(case.id, case.attempt))
            await self._host.ask(PrepareFolder(folder=folder, golden=tree, part=work.part))
        late = list_late_steps(work)
        for title, step in late.items():
            await self._grounds.add(ground, title, step, site)
            if self._site.proves and not uses_build(step):
                await self._grounds.add_uses(
                    ground, title, (step, site), (tree, work.part, NO_BUILD)
                )
        held = str(work.devices) if work.devices != 1 else ""
        named = {"golden part": work.part.path, "variant": work.variant, "devices held": held}
        ground.parts.update({name: digest_parts(text) for name, text in named.items() if text})
        ground.parts["outputs"] = digest_parts(canonical_json(work.outputs))
        ground.parts["devices"] = digest_parts(*self._site.identities)
        build = self._builds.get(case.key, Footprint())
        ground.parts.update(build.parts)
        ground.doubt(*build.doubts, *self._site.doubts)
        own = {n: d for n, d in ground.parts.items() if n.startswith("run ") and n != f"run{USES}"}
        # Its variables name the checkout if it has modules of its own: these are not among the named inputs.
        used = digest_parts("used", tree, work.part.path, canonical_json((own, site.env)))
        golden = Golden(
            key=NO_KEY, inputs=(), outputs=(), tree=tree, part=work.part, used=used, flag=flag
        )
        is_partial = not self._site.proves or any(map(uses_build, late.values()))
        return put_ground(golden, ground, is_partial=is_partial)

    async def look_at_built(
        self, case: Case, work: CommandWork, golden: Golden, build: BuildKey
    ) -> Golden:
        """A golden result with what else its case rests on, now that it is built. Raises TileyardError."""
        if not self._site.proves:
            return golden
        site, ground = self._site.sites[case.side], Footprint()
        ground.add(golden.footprint)
        for title, step in list_late_steps(work).items():
            if uses_build(step):
                made = (golden.tree, golden.part, build)
                await self._grounds.add_uses(ground, title, (step, site), made)
        return put_ground(golden, ground, is_partial=False)

    async def _make_tree(self, case: Case, step: Step, key: GoldenKey) -> tuple[Case, StepDone]:
        """The result of a golden step, and the case it ran for. One that failed runs again per attempt."""
        asked = (case.side, key, case.attempt)
        if asked not in self._making:
            site = self._site.sites[case.side]
            # Anything else that the step received of the case would have to be in its key.
            request = msgspec.structs.replace(
                self._request(case, step, GOLDEN), key=key, env=site.env, cwd=site.suite
            )
            self._making[asked] = (case, asyncio.create_task(self._find_or_make(case, request)))
        first, making = self._making[asked]
        try:
            done = await asyncio.shield(making)
        except TileyardError:
            self._making.pop(asked, None)
            raise
        if not done.message:  # the host finds it from now on
            self._making.pop(asked, None)
        return first, done

    async def _find_or_make(self, case: Case, request: DoStep) -> StepDone:
        """The result of a golden step. A known one takes no lane: devices would wait for check steps."""
        known = await self._host.ask(FindGolden(key=request.key))
        return known if known.tree else await self._do(case, GOLDEN, request)

    @_answering
    async def judge(self, case: Case, work: CommandWork, build: BuildKey) -> Judged | Failed:
        """Judge a case: first the comparisons that need no program, then the case's own check step."""
        if work.outputs:
            compare = CompareOutputs(
                work=str(self._folder(case.id, case.attempt) / DATA),
                golden=self._goldens[case.key],
                part=work.part,
                checks=work.outputs,
            )
            reply = await self._do(case, CHECK, compare)
            if work.check is None or reply.outcome is not Outcome.PASSED:
                return reply
        if work.check is None:
            return Judged(outcome=Outcome.PASSED)
        if work.check_hot is not None:
            verdict = await self._check_hot(case, work, work.check, build)
            if verdict is not None:
                return verdict
        request = msgspec.structs.replace(
            self._request(case, work.check, CHECK), build=build, part=work.part
        )
        done = await self._do(case, CHECK, request)
        if not done.message:
            flag = describe_complaints(done.end, "check step ") if done.end is not None else ""
            return Judged(outcome=Outcome.PASSED, message=flag)
        if done.end is not None and done.end.code == WRONG:
            message = f"check step: {done.message}"
            return Judged(outcome=Outcome.MISMATCH, message=message)
        if done.end is not None and done.end.code == UNCLEAR:
            done = msgspec.structs.replace(done, message=f"{done.message} ({SAYS_WRONG})")
        return _failed("check step", done)

    async def _check_hot(
        self, case: Case, work: CommandWork, step: Step, build: BuildKey
    ) -> Judged | Failed | None:
        """The verdict of a process that checks several cases; None if the case has to be checked alone."""
        tree = self._goldens.get(case.key, NO_TREE)
        limits = msgspec.structs.replace(
            case.limits, run_s=step.limit_s or case.limits.golden_s
        )  # a case is limited from its begin, as in a hot run
        entry = RunEntry(
            case=case.key,
            build=build,
            golden=Golden(key=NO_KEY, inputs=(), outputs=(), tree=tree, part=work.part),
            specs=(),
            scalars=(),
            log=name_log(self._run, case),
            command=self._command(case, work, step, work.check_hot),
        )
        ran = await self._hot_checks.check(msgspec.structs.replace(case, limits=limits), entry)
        if ran is None:
            return None
        self._tell(case, CHECK, ran.seconds)
        if ran.outcome is Outcome.PASSED:
            return Judged(outcome=ran.outcome)
        message = f"check step: {ran.message}"
        if ran.outcome is Outcome.MISMATCH:
            return Judged(outcome=ran.outcome, message=message)
        return Failed(message=message, outcome=ran.outcome)

    # ---- what steps receive -------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _lane(self) -> AsyncIterator[None]:
        async with self._lanes, self._places:
            yield

    async def _do(self, case: Case, kind: StepKind, request: Question[AnswerT]) -> AnswerT:
        async with self._lane():
            began_s = asyncio.get_running_loop().time()
            reply = await self._host.ask(request)
            seconds = asyncio.get_running_loop().time() - began_s
        if not isinstance(reply, StepDone) or reply.end is not None:
            self._tell(case, kind, seconds)
        return reply

    def _request(self, case: Case, step: Step, kind: str) -> DoStep:
        data = str(self._folder(case.id, case.attempt) / DATA)
        places = {"threads": str(self._site.threads)}
        if toolchain := self._site.sites[case.side].toolchain:
            places["toolchain"] = toolchain
        if case.key in self._goldens:
            places["work"] = data
        return DoStep(
            step=step,
            places=places,
            env=self._case_env(case),
            cwd=data,
            log=str(self._home / name_log(self._run, case)),
            title=kind,
            limit_s=step.limit_s or case.limits.golden_s,
            golden=self._goldens.get(case.key, Digest("")),
        )

    def _case_env(self, case: Case) -> dict[str, str]:
        return {**self._site.sites[case.side].env, CASE: case.id}


def _failed(what: str, done: StepDone, log: str = "") -> Failed:
    outcome = Outcome.RUNTIME_ERROR
    if done.end is not None and (done.end.timed_out or done.end.lost):
        outcome = Outcome.TIMEOUT if done.end.timed_out else Outcome.CRASHED
    return Failed(message=f"{what}: {done.message}", outcome=outcome, log=log)


def name_run(run: str, attempt: int) -> str:
    """The name of the folder of a run's logs and work; an attempt's name can be no case's name."""
    return run if attempt == 1 else f"{run}.{attempt}"


def name_log(run: str, case: Case) -> str:
    """The log of a case, below the home: all its steps write to it."""
    return f"logs/{name_run(run, case.attempt)}/{case.id}.log"


def _remove(folder: Path) -> None:
    """Files of other users' processes in it are left for ``tileyard cache gc``."""
    with contextlib.suppress(OSError):
        remove_folder(folder)


def _remove_empty(folder: Path, root: Path) -> None:
    """Remove a folder below ``root`` and its parents, as long as they are empty."""
    with contextlib.suppress(OSError):
        while folder != root:
            folder.rmdir()
            folder = folder.parent
