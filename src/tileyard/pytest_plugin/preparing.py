"""Carries compile steps out: many at a time, with no device, each in a process that may die.

This process is the author: a kernel is elaborated in a copy of it, and then built by the compile
workers that ``tileyard tune`` uses, under the same keys. A function runs in a copy.
"""

import asyncio
import pickle
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tileyard.artifacts.keys import build_key
from tileyard.artifacts.manifest import find_artifact
from tileyard.artifacts.objects import ObjectStore
from tileyard.engine.compilers import CompilePool
from tileyard.engine.yard import Yard
from tileyard.errors import InvalidProgramError, TileyardError, UnsupportedError
from tileyard.frontend.calls import call_by_name
from tileyard.ir.text import print_program
from tileyard.model import Elaborated, Kernel, Limits, Outcome
from tileyard.pytest_plugin.declared import FunctionStep, KernelStep, Step
from tileyard.pytest_plugin.forked import Forked, Teller, finish
from tileyard.pytest_plugin.records import Answered, StepResult
from tileyard.settings import Settings
from tileyard.workers.author import Author
from tileyard.workers.protocol import (
    AuthorReply,
    AuthorRequest,
    BuildKernel,
    ElaborateConfig,
    ElaboratedConfig,
    Failed,
    TargetInfo,
)

if TYPE_CHECKING:
    from tileyard.store.trials import TrialStore

RESULT_FILE = "result.pickle"


class CopyAuthor:
    """The author that the engine's rooms know, for kernels of this process: asked in copies of it."""

    def __init__(self, cores: tuple[int, ...], objects: ObjectStore, folder: Path) -> None:
        self.cores = cores
        self.lanes = len(cores)
        self._objects = objects
        self._folder = folder
        self._number = 0

    async def begin(self) -> None:
        """Nothing has to be started."""

    async def ask(self, request: AuthorRequest, limit_s: float) -> AuthorReply:
        """Nobody but ``elaborate`` has questions to it: a step's kernel has no name of its own."""
        raise AssertionError(f"a test run asked for {request}")

    async def close(self) -> None:
        """Nothing was started."""

    async def elaborate(self, step: KernelStep, limit_s: float, *, with_tir: bool) -> AuthorReply:
        """Elaborate one kernel; a crash, a hang or an exception of the user's code is a Failed."""

        def work(teller: Teller) -> None:
            teller.tell(Answered(reply=self._elaborate(step, with_tir=with_tir)))

        self._number += 1
        copy = Forked(work, limit_s, self._folder / f"elaborate-{self._number}.log")
        for message in await finish(copy):
            if isinstance(message, Answered):
                reply: AuthorReply = message.reply
                return reply
        return _describe_death(copy, "elaborating it", Outcome.COMPILE_ERROR)

    def _elaborate(self, step: KernelStep, *, with_tir: bool) -> AuthorReply:
        if type(step.source).__name__ != "PrimFunc":
            found = step.source
            author = Author({found.name: found}, self._objects)
            return author.answer(
                ElaborateConfig(
                    kernel=found.name, arguments=step.arguments, config={}, with_tir=with_tir
                )
            )
        # TVM, which whoever made a PrimFunc has paid for already.
        from tilelang import tvm

        from tileyard.frontend.tilelang import lower_prim_func

        try:
            lowered = lower_prim_func(step.source, step.out_idx)
        except (UnsupportedError, InvalidProgramError) as error:
            return Failed(message=str(error), outcome=Outcome.COMPILE_ERROR)
        kernel = Kernel(
            name=lowered.program.name,
            program=print_program(lowered.program),
            tir=str(tvm.ir.save_json(step.source)) if with_tir else "",
        )
        return ElaboratedConfig(elaborated=Elaborated(kernel=kernel, lines=lowered.lines))


class Preparing:
    """The compile steps of a run, or of one process's share of them.

    ``cores`` are those that may be used, and ``folder`` is where functions build and logs are.
    """

    def __init__(
        self, settings: Settings, store: "TrialStore | None", cores: tuple[int, ...], folder: Path
    ) -> None:
        self._settings = settings
        self._store = store
        self._cores = cores
        self._folder = folder
        self._objects = ObjectStore(settings.home / "objects")
        self._author = CopyAuthor(cores, self._objects, folder)
        self._lanes = asyncio.Semaphore(len(cores))

    def run(self, steps: Sequence[Step], build_limit_s: float) -> list[StepResult]:
        """Carry them out. Raises ToolMissingError where a target cannot be used at all."""
        return asyncio.run(self._run(steps, build_limit_s)) if steps else []

    async def _run(self, steps: Sequence[Step], build_limit_s: float) -> list[StepResult]:
        by_target: dict[str, list[KernelStep]] = {}
        functions: list[FunctionStep] = []
        for step in steps:
            match step:
                case KernelStep():
                    by_target.setdefault(step.target, []).append(step)
                case FunctionStep():
                    functions.append(step)
        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(self._call(step)) for step in functions]
            results: list[StepResult] = []
            for target, kernels in by_target.items():
                results += await self._build_all(target, kernels, build_limit_s)
        return [*results, *(call.result() for call in calls)]

    # ---- kernels ------------------------------------------------------------------------------

    async def _build_all(
        self, target: str, steps: Sequence[KernelStep], build_limit_s: float
    ) -> list[StepResult]:
        """Build for one target: a worker for each core, or for each kernel if they are fewer."""
        cores = self._cores[: len(steps)]
        pool = CompilePool(self._yard(target), cores)
        try:
            info = await pool.describe()
            free: asyncio.Queue[int] = asyncio.Queue()
            for worker in range(len(cores)):
                free.put_nowait(worker)
            builds = Builds(self._objects, self._author, pool, info)
            limits = Limits(build_s=build_limit_s)
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(builds.build(step, self._lanes, free, limits))
                    for step in steps
                ]
        finally:
            await pool.close()
        return [task.result() for task in tasks]

    def _yard(self, target: str) -> Yard:
        return Yard(
            settings=self._settings,
            store=self._store,  # type: ignore[arg-type]  # compile workers record nothing
            objects=self._objects,
            author=self._author,
            target=target,
            devices=(),
        )

    # ---- functions ----------------------------------------------------------------------------

    async def _call(self, step: FunctionStep) -> StepResult:
        """Call a function of the user's in a copy of this process, in a directory of its own."""
        folder = self._folder / "built" / f"{zlib.crc32(step.id.encode()):08x}"
        pickled = folder.with_suffix(".pickle")

        def work(teller: Teller) -> None:
            teller.tell(Answered(reply=_call_function(step, folder, pickled)))

        async with self._lanes:
            at = time.monotonic()
            folder.mkdir(parents=True, exist_ok=True)
            copy = Forked(work, step.limit_s, folder.with_suffix(".log"))
            messages = await finish(copy)
        answers = [message.reply for message in messages if isinstance(message, Answered)]
        result = StepResult(
            step=step.id,
            at=at,
            seconds=time.monotonic() - at,
            folder=str(folder),
            pickled=str(pickled),
        )
        if not answers:
            failed = _describe_death(copy, "its compile step", Outcome.COMPILE_ERROR)
            return msgspec.structs.replace(result, outcome=failed.outcome, message=failed.message)
        if answers[0]:
            return msgspec.structs.replace(
                result, outcome=Outcome.COMPILE_ERROR, message=str(answers[0])
            )
        return result


class Builds:
    """Builds kernels of one target on compile workers."""

    def __init__(
        self, objects: ObjectStore, author: CopyAuthor, pool: CompilePool, info: TargetInfo
    ) -> None:
        self._objects = objects
        self._author = author
        self._pool = pool
        self._info = info

    async def build(
        self,
        step: KernelStep,
        lanes: asyncio.Semaphore,
        free: asyncio.Queue[int],
        limits: Limits,
    ) -> StepResult:
        """Elaborate, look up, and build what is not there yet."""
        async with lanes:
            began = time.monotonic()
            reply = await self._author.elaborate(
                step, limits.elaborate_s, with_tir=self._info.needs_tir
            )
        result = StepResult(step=step.id, at=began, target=step.target)
        if isinstance(reply, Failed):
            return msgspec.structs.replace(
                result,
                outcome=reply.outcome,
                message=reply.message,
                seconds=time.monotonic() - began,
            )
        if not isinstance(reply, ElaboratedConfig):
            raise AssertionError(f"an author answered an elaboration with {reply}")
        kernel = reply.elaborated.kernel
        key = build_key(kernel, step.target, self._info.fingerprint, {})
        result = msgspec.structs.replace(result, build=key)
        if find_artifact(key, self._objects) is not None:
            return msgspec.structs.replace(result, reused=True, seconds=time.monotonic() - began)
        wanted = BuildKernel(case=step.id, build=key, elaborated=reply.elaborated, options={})
        worker = await free.get()
        try:
            at = time.monotonic()
            async for built in self._pool.build(worker, [wanted], [limits.build_s]):
                result = msgspec.structs.replace(
                    result,
                    at=at,
                    seconds=time.monotonic() - at,
                    outcome=built.outcome,
                    message=built.message,
                )
        finally:
            free.put_nowait(worker)
        return result


def _call_function(step: FunctionStep, folder: Path, pickled: Path) -> str:
    """In the copy: call it and keep what it returns; why that failed, or nothing."""
    what = getattr(step.function, "__name__", "the compile step")
    try:
        result = call_by_name(step.function, {**step.values, "out": folder}, what)
    except TileyardError as error:
        return f"{what} failed: {error}"
    try:
        pickled.write_bytes(pickle.dumps(result))
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        return f"{what} returned what cannot be kept: {error}"
    return ""


def _describe_death(copy: Forked, what: str, crashed: Outcome) -> Failed:
    """What a copy that gave no answer means."""
    end = copy.end
    if end is None:
        raise AssertionError("a copy has no end")
    tail = "".join(f"\n{text}" for text in (end.stack, end.tail) if text)
    outcome = Outcome.TIMEOUT if end.timed_out else crashed
    return Failed(message=f"the process {what} {end.describe(copy.limit_s)}{tail}", outcome=outcome)
