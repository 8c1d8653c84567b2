"""The author of a suite: knows its cases, and has golden and check steps run with no device.

Cases that are kernels are asked of the author of their file; for cases of programs nobody's code is
imported at all.
"""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from tileyard.artifacts.keys import canonical_json, digest_parts
from tileyard.engine.hosting import StepHost
from tileyard.errors import TileyardError, UsageError
from tileyard.model import (
    BuildKey,
    Digest,
    Elaborated,
    GoldenKey,
    Kernel,
    Outcome,
    Trial,
    Value,
)
from tileyard.processes.steps import describe_complaints
from tileyard.suite.builds import build_of, find_targets
from tileyard.suite.inputs import find_arguments
from tileyard.suite.kernel_files import FileAuthors, MakeAuthor
from tileyard.suite.records import CommandWork, KernelWork, SuiteCase, name_attempt
from tileyard.suite.site import SuiteSite
from tileyard.targets.command.records import CommandRun, Step
from tileyard.targets.command.target import BuildCommand
from tileyard.workers.case_folders import DATA
from tileyard.workers.command_protocol import (
    CompareOutputs,
    DigestFiles,
    DoStep,
    FilesDigested,
    FolderReady,
    OutputsCompared,
    PrepareFolder,
    StepDone,
)
from tileyard.workers.protocol import (
    AuthorReply,
    AuthorRequest,
    ElaborateConfig,
    ElaboratedConfig,
    Failed,
    Golden,
    Judged,
    JudgeOutputs,
    MakeGolden,
)

CASE, ATTEMPT = "case", "attempt"
"""The arguments of an engine's case: which of the testcase it is, and the number of a further attempt."""
WORK, GOLDEN, CHECK = "work", "golden", "check"
SEED = "TILEYARD_SEED"
"""The variable in which steps find their case's seed."""
WRONG = 2
"""The exit status by which a check step says that a result is wrong."""


class SuiteAuthor:
    """Answers for the cases of one run. ``make_author`` gives the author of a file of kernels."""

    def __init__(
        self,
        cases: Sequence[SuiteCase],
        site: SuiteSite,
        host: StepHost,
        make_author: MakeAuthor,
    ) -> None:
        self.cores = site.cores
        self.lanes = site.lanes
        self._cases = {(case.testcase, case.name): case for case in cases}
        self._site = site
        self._host = host
        self._files = FileAuthors(make_author)
        self._digests: dict[tuple[str, ...], asyncio.Task[str]] = {}
        self._targets = find_targets(cases)
        self._goldens: dict[Path, Digest] = {}
        # Preparing and judging go on side by side, and share the cores that steps may use.
        self._lanes = asyncio.Semaphore(site.lanes)

    async def begin(self) -> None:
        """Nothing is started before it is needed."""

    async def close(self) -> None:
        """End the authors of files; the host is its owner's to end."""
        await self._files.close()

    def adopt(self, testcase: str, arguments: Mapping[str, Value], tree: Digest) -> str:
        """Take in a golden result that was made elsewhere; the folder of that case."""
        case = self._cases[testcase, str(arguments[CASE])]
        folder = self._case_folder(case, arguments)
        self._goldens[folder] = tree
        return str(folder)

    def find_folder(self, trial: Trial) -> Path | None:
        """Where the programs of a trial worked; None for kernels, which have no folder."""
        case = self._cases[trial.kernel, str(trial.arguments[CASE])]
        is_kernel = isinstance(case.work, KernelWork)
        return None if is_kernel else self._case_folder(case, trial.arguments)

    def is_hot(self, trial: Trial) -> bool:
        """Whether one process may have run the trial's case and others."""
        work = self._cases[trial.kernel, str(trial.arguments[CASE])].work
        return isinstance(work, CommandWork) and work.hot is not None

    async def ask(self, request: AuthorRequest, limit_s: float) -> AuthorReply:
        """Answer for one case."""
        if not isinstance(request, ElaborateConfig | MakeGolden | JudgeOutputs):
            raise AssertionError(f"the author of a suite was asked {request}")
        case = self._cases[request.kernel, str(request.arguments[CASE])]
        try:
            match case.work:
                case KernelWork() as work:
                    return await self._files.ask(request, work, limit_s)
                case CommandWork() as work:
                    return await self._answer(request, case, work)
        except UsageError as error:
            return Failed(message=str(error), outcome=Outcome.RUNTIME_ERROR)
        except TileyardError as error:
            return Failed(message=str(error), outcome=Outcome.INFRA_ERROR)

    # ---- programs --------------------------------------------------------------------------------

    async def _answer(
        self,
        request: ElaborateConfig | MakeGolden | JudgeOutputs,
        case: SuiteCase,
        work: CommandWork,
    ) -> AuthorReply:
        folder = self._case_folder(case, request.arguments)
        match request:
            case ElaborateConfig():
                return await self._elaborate(case, work, folder)
            case MakeGolden():
                return await self._make_golden(case, work, folder)
            case JudgeOutputs(build=build):
                return await self._judge(case, work, folder, build)

    async def _elaborate(
        self, case: SuiteCase, work: CommandWork, folder: Path
    ) -> ElaboratedConfig | Failed:
        build = BuildCommand()
        if work.build is not None:
            build = BuildCommand(
                argv=tuple(map(self._site.generalize, work.build.argv)),
                env={n: self._site.generalize(text) for n, text in work.build.env.items()},
                cwd=self._site.generalize(work.build.cwd or str(self._site.folder)),
                inputs=await self._digest_inputs(work.build),
                targets=self._targets[build_of(work)],
            )
        own = msgspec.structs.replace(build, targets=(work.target,) if work.target else ())
        kernel = Kernel(name=case.testcase, program=canonical_json(build))
        return ElaboratedConfig(
            elaborated=Elaborated(kernel=kernel),
            command=CommandRun(
                name=case.name,
                run=work.run,
                hot=work.hot,
                folder=str(folder),
                threads=self._site.threads,
                memory_bytes=case.limits.memory_bytes,
                env=self._case_env(case),
                is_judged=bool(work.check or work.outputs),
                own_build=digest_parts("own build", canonical_json(own)),
            ),
        )

    async def _make_golden(
        self, case: SuiteCase, work: CommandWork, folder: Path
    ) -> Golden | Failed:
        """What the golden step makes, or made before; then the case's folder with a copy of it."""
        parts = [str(case.seed)]
        tree, flag = Digest(""), ""
        if work.golden is not None:
            inputs = await self._digest_inputs(work.golden)
            key = GoldenKey(digest_parts("golden", self._step_key(work.golden, inputs), *parts))
            request = self._request(case, work.golden, folder, GOLDEN)
            env = {SEED: str(case.seed)}  # whatever else it were told would have to be in its key
            done = await self._do(
                msgspec.structs.replace(request, key=key, env=env, cwd=str(self._site.folder))
            )
            if done.message:
                return _failed("golden step", done)
            if done.end is not None:
                flag = describe_complaints(done.end, "golden step ")
            tree = done.tree
            parts.append(key)
        self._goldens[folder] = tree
        if tree:  # before there is a device; an empty folder is made when the case begins
            ready = await self._host.ask(PrepareFolder(folder=str(folder), golden=tree))
            if not isinstance(ready, FolderReady):
                raise AssertionError(f"a step host answered a request for a folder with {ready}")
        steps = (work.run, work.check, work.hot.step if work.hot is not None else None)
        parts += [self._step_key(s, await self._digest_inputs(s)) for s in steps if s is not None]
        key = GoldenKey(digest_parts("case", *parts, canonical_json(work.outputs)))
        return Golden(key=key, inputs=(), outputs=(), tree=tree, flag=flag)

    async def _judge(
        self, case: SuiteCase, work: CommandWork, folder: Path, build: BuildKey
    ) -> Judged | Failed:
        """The comparisons that need no program first, then the case's own check step."""
        if work.outputs:
            compare = CompareOutputs(
                work=str(folder / DATA), golden=self._goldens[folder], checks=work.outputs
            )
            async with self._lanes:
                reply = await self._host.ask(compare)
            if not isinstance(reply, OutputsCompared):
                raise AssertionError(f"a step host answered a comparison with {reply}")
            if work.check is None or reply.outcome is not Outcome.PASSED:
                return Judged(outcome=reply.outcome, message=reply.message, mismatch=reply.mismatch)
        if work.check is None:
            return Judged(outcome=Outcome.PASSED)
        request = msgspec.structs.replace(
            self._request(case, work.check, folder, CHECK), build=build
        )
        done = await self._do(request)
        if not done.message:
            flag = describe_complaints(done.end, "check step ") if done.end is not None else ""
            return Judged(outcome=Outcome.PASSED, message=flag)
        if done.end is not None and done.end.code == WRONG:
            message = f"check step: {done.message}"
            return Judged(outcome=Outcome.MISMATCH, message=message)
        return _failed("check step", done)

    # ---- what steps are told -------------------------------------------------------------------

    async def _do(self, request: DoStep) -> StepDone:
        async with self._lanes:
            done = await self._host.ask(request)
        if not isinstance(done, StepDone):
            raise AssertionError(f"a step host answered a step with {done}")
        return done

    def _request(self, case: SuiteCase, step: Step, folder: Path, kind: str) -> DoStep:
        data = str(folder / DATA)
        places = {"threads": str(self._site.threads)}
        if folder in self._goldens:
            places["work"] = data
        return DoStep(
            step=step,
            places=places,
            env=self._case_env(case),
            cwd=data,
            log=str(self._case_log(folder)),
            title=kind,
            limit_s=step.limit_s or case.limits.golden_s,
            golden=self._goldens.get(folder, Digest("")),
        )

    def _case_env(self, case: SuiteCase) -> dict[str, str]:
        return {"TILEYARD_CASE": case.id, SEED: str(case.seed)}

    def _case_folder(self, case: SuiteCase, arguments: Mapping[str, Value]) -> Path:
        """Absolute, since the far side of a queue has another home; each attempt has its own."""
        name = name_attempt(case.name, int(arguments.get(ATTEMPT, 1)))
        return self._site.home / WORK / self._site.run / case.testcase / name

    def _case_log(self, folder: Path) -> Path:
        """All steps of a case tell in one log, that of the engine's case."""
        name = folder.relative_to(self._site.home / WORK / self._site.run)
        return self._site.home / f"logs/{self._site.run}/{name}.log"

    def _step_key(self, step: Step, inputs: str) -> str:
        """What decides the result of a step; where the suite lies does not."""
        told = canonical_json((step.argv, step.env, step.cwd))
        return canonical_json((self._site.generalize(told), inputs))

    async def _digest_inputs(self, step: Step) -> str:
        """The content of what a step names as its inputs, and of the files among its arguments."""
        folder = self._site.folder
        patterns = tuple(dict.fromkeys((*step.inputs, *find_arguments(step, folder))))
        if not patterns:
            return self._site.toolchain
        if patterns not in self._digests:
            self._digests[patterns] = asyncio.create_task(self._digest_files(patterns))
        return await asyncio.shield(self._digests[patterns])

    async def _digest_files(self, patterns: tuple[str, ...]) -> str:
        request = DigestFiles(folder=str(self._site.folder), patterns=patterns)
        reply = await self._host.ask(request)
        if not isinstance(reply, FilesDigested):
            raise AssertionError(f"a step host answered a question for a digest with {reply}")
        return digest_parts(reply.digest, self._site.toolchain)


def _failed(what: str, done: StepDone) -> Failed:
    timed_out = done.end is not None and done.end.timed_out
    outcome = Outcome.TIMEOUT if timed_out else Outcome.RUNTIME_ERROR
    return Failed(message=f"{what}: {done.message}", outcome=outcome)
