"""Answers for cases of programs: nobody's code is imported, and what needs no device is run by the step host.

One module because the steps of a case share its folder, its log and its keys.
"""

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ParamSpec

import msgspec

from tileyard.artifacts.copying import remove_folder
from tileyard.artifacts.keys import canonical_json, digest_parts
from tileyard.engine.hosting import StepHost
from tileyard.errors import TileyardError, UsageError, WorkerLostError
from tileyard.model import (
    BuildKey,
    Case,
    CommandWork,
    Digest,
    Elaborated,
    GoldenKey,
    Kernel,
    Outcome,
    Step,
    Trial,
)
from tileyard.processes.steps import describe_complaints
from tileyard.targets.command.step_site import StepSite
from tileyard.targets.command.target import BuildCommand
from tileyard.workers.case_folders import DATA
from tileyard.workers.command_protocol import (
    CompareOutputs,
    DigestFiles,
    DoStep,
    PrepareFolder,
    StepDone,
)
from tileyard.workers.file_digests import find_arguments
from tileyard.workers.protocol import CommandRun, ElaboratedConfig, Failed, Golden, Judged
from tileyard.workers.question import AnswerT, Question

P = ParamSpec("P")
WORK, GOLDEN, CHECK = "work", "golden", "check"
SEED = "TILEYARD_SEED"
"""The variable in which steps find their case's seed."""
CASE = "TILEYARD_CASE"
"""The one in which run and check steps find its name."""
NO_TREE = Digest("")
WRONG = 2
"""The exit status by which a check step says that a result is wrong."""


@dataclass(frozen=True, kw_only=True)
class ProgramSite:
    """Where programs are run. ``sites`` say by side where their suite lies and which variables its steps get.

    ``lanes`` golden and check steps run at once, and each may use ``threads`` threads.
    """

    sites: Mapping[str, StepSite]
    lanes: int
    threads: int


def _answering(
    ask: Callable[P, Awaitable[AnswerT | Failed]],
) -> Callable[P, Coroutine[object, object, AnswerT | Failed]]:
    """Have what goes wrong be an answer: of the user's own files the case's failure, else one of the host."""

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

    def __init__(self, site: ProgramSite, home: Path, run: str, host: StepHost) -> None:
        self.lanes = site.lanes
        self._site = site
        self._home = home
        self._run = run
        self._host = host
        self._digests: dict[tuple[str, ...], asyncio.Task[str]] = {}
        self._goldens: dict[str, Digest] = {}
        self._hot: set[str] = set()
        self._late: list[Path] = []
        self._dropped: set[Path] = set()
        self._removing: set[asyncio.Task[None]] = set()
        # Preparing and judging go on side by side, and share the cores that steps may use.
        self._lanes = asyncio.Semaphore(site.lanes)

    def adopt(self, case: Case, tree: Digest) -> str:
        """Take in a golden result that was made elsewhere; the folder of that case."""
        self._goldens[case.key] = tree
        self._note_hot(case)
        return str(self._folder(case.id, case.attempt))

    # ---- folders ---------------------------------------------------------------------------------

    def drop(self, trial: Trial) -> None:
        """Remove the folder of a trial: soon, or at the end where other cases' process began in it.

        A trial is dropped once it is recorded, so a run that is killed leaves folders, and never a case
        without an outcome.
        """
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
        """Wait for what is being removed, and remove the rest. Nothing of the run may go on any more."""
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
        if isinstance(case.work, CommandWork) and case.work.hot is not None:
            self._hot.add(case.key)

    # ---- steps -----------------------------------------------------------------------------------

    @_answering
    async def elaborate(self, case: Case, work: CommandWork) -> ElaboratedConfig | Failed:
        """What is built for a case, and what is run once that is there."""
        self._note_hot(case)
        site = self._site.sites[case.side]
        build = BuildCommand()
        if work.build is not None:
            build = BuildCommand(
                argv=tuple(map(site.generalize, work.build.argv)),
                env={n: site.generalize(text) for n, text in work.build.env.items()},
                cwd=site.generalize(work.build.cwd or site.suite),
                inputs=await self._digest_inputs(work.build, site),
                targets=work.targets,
            )
        own = msgspec.structs.replace(build, targets=(work.target,) if work.target else ())
        kernel = Kernel(name=case.testcase, program=canonical_json(build))
        return ElaboratedConfig(
            elaborated=Elaborated(kernel=kernel),
            command=CommandRun(
                name=case.id.removeprefix(f"{case.testcase}/"),
                run=work.run,
                hot=work.hot,
                suite=site.suite,
                toolchain=site.toolchain,
                folder=str(self._folder(case.id, case.attempt)),
                threads=self._site.threads,
                memory_bytes=case.limits.memory_bytes,
                env=self._case_env(case),
                is_judged=bool(work.check or work.outputs),
                own_build=digest_parts("own build", canonical_json(own)),
            ),
        )

    @_answering
    async def make_golden(
        self, case: Case, work: CommandWork, known: Digest = NO_TREE
    ) -> Golden | Failed:
        """What the golden step makes, or made before; then the case's folder with a copy of it.

        ``known`` is what it has made elsewhere, for a case whose work has none.
        """
        site = self._site.sites[case.side]
        parts = [str(case.seed), *([known] if known else [])]
        tree, flag = known, ""
        if work.golden is not None:
            key = GoldenKey(digest_parts("golden", await self._step_key(work.golden, site), *parts))
            request = self._request(case, work.golden, GOLDEN)
            # Whatever else it were told of the case would have to be in its key.
            env = {**site.env, SEED: str(case.seed)}
            done = await self._do(
                msgspec.structs.replace(request, key=key, env=env, cwd=site.suite)
            )
            if done.message:
                return _failed("golden step", done)
            if done.end is not None:
                flag = describe_complaints(done.end, "golden step ")
            tree = done.tree
            parts.append(key)
        self._goldens[case.key] = tree
        if tree:  # before there is a device; an empty folder is made when the case begins
            await self._host.ask(
                PrepareFolder(folder=str(self._folder(case.id, case.attempt)), golden=tree)
            )
        run = await self._step_key(work.run, site)
        others = (work.check, work.hot.step if work.hot is not None else None)
        parts += [run, *[await self._step_key(step, site) for step in others if step is not None]]
        key = GoldenKey(digest_parts("case", *parts, canonical_json(work.outputs)))
        # Its variables name the checkout where it has modules of its own: nobody has named these as inputs.
        used = digest_parts("used", str(case.seed), tree, run, canonical_json(site.env))
        return Golden(key=key, inputs=(), outputs=(), tree=tree, used=used, flag=flag)

    @_answering
    async def judge(self, case: Case, work: CommandWork, build: BuildKey) -> Judged | Failed:
        """The comparisons that need no program first, then the case's own check step."""
        if work.outputs:
            compare = CompareOutputs(
                work=str(self._folder(case.id, case.attempt) / DATA),
                golden=self._goldens[case.key],
                checks=work.outputs,
            )
            reply = await self._do(compare)
            if work.check is None or reply.outcome is not Outcome.PASSED:
                return reply
        if work.check is None:
            return Judged(outcome=Outcome.PASSED)
        request = msgspec.structs.replace(self._request(case, work.check, CHECK), build=build)
        done = await self._do(request)
        if not done.message:
            flag = describe_complaints(done.end, "check step ") if done.end is not None else ""
            return Judged(outcome=Outcome.PASSED, message=flag)
        if done.end is not None and done.end.code == WRONG:
            message = f"check step: {done.message}"
            return Judged(outcome=Outcome.MISMATCH, message=message)
        return _failed("check step", done)

    # ---- what steps are told -------------------------------------------------------------------

    async def _do(self, request: Question[AnswerT]) -> AnswerT:
        async with self._lanes:
            return await self._host.ask(request)

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
        own = {CASE: case.id, SEED: str(case.seed)}
        return {**self._site.sites[case.side].env, **own}

    async def _step_key(self, step: Step, site: StepSite) -> str:
        """What decides the result of a step; where the suite lies does not."""
        inputs = await self._digest_inputs(step, site)
        told = canonical_json((step.argv, step.env, step.cwd))
        return canonical_json((site.generalize(told), inputs))

    async def _digest_inputs(self, step: Step, site: StepSite) -> str:
        """The content of what a step names as its inputs, and of the files among its arguments."""
        folder = site.suite
        patterns = tuple(dict.fromkeys((*step.inputs, *find_arguments(step, Path(folder)))))
        if not patterns:
            return site.tree
        asked = (site.tree, folder, *patterns)
        if asked not in self._digests:
            self._digests[asked] = asyncio.create_task(self._digest_files(site, patterns))
        try:
            return await asyncio.shield(self._digests[asked])
        except TileyardError:  # what failed for one case is asked again for the next
            self._digests.pop(asked, None)
            raise

    async def _digest_files(self, site: StepSite, patterns: tuple[str, ...]) -> str:
        request = DigestFiles(folder=site.suite, patterns=patterns)
        reply = await self._host.ask(request)
        return digest_parts(reply.digest, site.tree)


def _failed(what: str, done: StepDone) -> Failed:
    outcome = Outcome.RUNTIME_ERROR
    if done.end is not None and (done.end.timed_out or done.end.lost):
        outcome = Outcome.TIMEOUT if done.end.timed_out else Outcome.CRASHED
    return Failed(message=f"{what}: {done.message}", outcome=outcome)


def name_run(run: str, attempt: int) -> str:
    """The folder of a run's logs and work; further attempts have their own, which no case's name can be."""
    return run if attempt == 1 else f"{run}.{attempt}"


def name_log(run: str, case: Case) -> str:
    """The log of a case, below the home: all its steps write there."""
    return f"logs/{name_run(run, case.attempt)}/{case.id}.log"


def _remove(folder: Path) -> None:
    """Remove a folder; what other users' processes have left in it waits for ``tileyard cache gc``."""
    with contextlib.suppress(OSError):
        remove_folder(folder)


def _remove_empty(folder: Path, root: Path) -> None:
    """Remove a folder below ``root`` and those above it, as far as they are empty."""
    with contextlib.suppress(OSError):
        while folder != root:
            folder.rmdir()
            folder = folder.parent
