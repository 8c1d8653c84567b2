"""Carries compile steps out: many at a time, with no device, each in a process that may die.

This process is the author: a kernel is elaborated in a copy of it, and then built by the compile
workers that ``tileyard tune`` uses, under the same keys. A function runs in a copy.
"""

import asyncio
import contextlib
import math
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
from tileyard.errors import TileyardError
from tileyard.frontend.calls import call_by_name
from tileyard.model import Elaborated, Limits, Outcome
from tileyard.pytest_plugin.copied import Teller
from tileyard.pytest_plugin.declared import FunctionStep, KernelStep, Step
from tileyard.pytest_plugin.elaborating import CopyAuthor, describe_death
from tileyard.pytest_plugin.forked import Forked, follow
from tileyard.pytest_plugin.records import Answered, StepResult
from tileyard.settings import Settings
from tileyard.workers.protocol import (
    BuildKernel,
    ElaboratedConfig,
    Failed,
    TargetInfo,
)

if TYPE_CHECKING:
    from tileyard.store.trials import TrialStore

MOST_AT_A_TIME = 16
"""How many kernels are elaborated in one copy, since a copy takes as long as some kernels do."""


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

    def run(self, steps: Sequence[Step], build_limit_s: float) -> list[StepResult]:
        """Carry them out. Raises ToolMissingError where a target cannot be used at all."""
        return asyncio.run(self._run(steps, build_limit_s)) if steps else []

    async def _run(self, steps: Sequence[Step], build_limit_s: float) -> list[StepResult]:
        lanes = asyncio.Semaphore(len(self._cores))
        by_target: dict[str, list[KernelStep]] = {}
        functions: list[FunctionStep] = []
        for step in steps:
            match step:
                case KernelStep():
                    by_target.setdefault(step.target, []).append(step)
                case FunctionStep():
                    functions.append(step)
        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(self._call(step, lanes)) for step in functions]
            results: list[StepResult] = []
            for target, kernels in by_target.items():
                results += await self._build_all(target, kernels, build_limit_s, lanes)
        return [*results, *(call.result() for call in calls)]

    # ---- kernels ------------------------------------------------------------------------------

    async def _build_all(
        self,
        target: str,
        steps: Sequence[KernelStep],
        build_limit_s: float,
        lanes: asyncio.Semaphore,
    ) -> list[StepResult]:
        """Build for one target: a worker for each core, or for each kernel if they are fewer."""
        cores = self._cores[: len(steps)]
        pool = CompilePool(self._yard(target), cores)
        try:
            info = await pool.describe()
            builds = Builds(self._objects, pool, info, Limits(build_s=build_limit_s))
            chunk = min(MOST_AT_A_TIME, math.ceil(len(steps) / len(self._cores)))
            async with asyncio.TaskGroup() as group:
                for start in range(0, len(steps), chunk):
                    part = steps[start : start + chunk]
                    group.create_task(builds.prepare(part, self._author, lanes, group))
        finally:
            await pool.close()
        return builds.results

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

    async def _call(self, step: FunctionStep, lanes: asyncio.Semaphore) -> StepResult:
        """Call a function of the user's in a copy of this process, in a directory of its own."""
        folder = self._folder / "built" / f"{zlib.crc32(step.id.encode()):08x}"
        pickled = folder.with_suffix(".pickle")

        def work(teller: Teller) -> None:
            teller.tell(Answered(reply=_call_function(step, folder, pickled)))

        async with lanes:
            at = time.monotonic()
            folder.mkdir(parents=True, exist_ok=True)
            copy = Forked(work, step.limit_s, folder.with_suffix(".log"))
            answers = [m.reply async for m in follow(copy) if isinstance(m, Answered)]
        result = StepResult(
            step=step.id,
            at=at,
            seconds=time.monotonic() - at,
            folder=str(folder),
            pickled=str(pickled),
        )
        if not answers:
            failed = describe_death(copy, "its compile step", Outcome.COMPILE_ERROR)
            return msgspec.structs.replace(result, outcome=failed.outcome, message=failed.message)
        if answers[0]:
            return msgspec.structs.replace(
                result, outcome=Outcome.COMPILE_ERROR, message=str(answers[0])
            )
        return result


class Builds:
    """Builds kernels of one target on compile workers. ``results`` grow as they are known."""

    def __init__(
        self, objects: ObjectStore, pool: CompilePool, info: TargetInfo, limits: Limits
    ) -> None:
        self.results: list[StepResult] = []
        self._objects = objects
        self._pool = pool
        self._info = info
        self._limits = limits
        self._free: asyncio.Queue[int] = asyncio.Queue()
        for worker in range(len(pool.cores)):
            self._free.put_nowait(worker)

    async def prepare(
        self,
        steps: Sequence[KernelStep],
        author: CopyAuthor,
        lanes: asyncio.Semaphore,
        group: asyncio.TaskGroup,
    ) -> None:
        """Elaborate some kernels, and have each built as soon as that is done."""
        replies = author.elaborate(steps, self._limits.elaborate_s, with_tir=self._info.needs_tir)
        async with lanes, contextlib.aclosing(replies):
            async for result, reply in replies:
                if isinstance(reply, Failed):
                    failed = {"outcome": reply.outcome, "message": reply.message}
                    self.results.append(msgspec.structs.replace(result, **failed))
                elif isinstance(reply, ElaboratedConfig):
                    self._take(result, reply.elaborated, group)
                else:
                    raise AssertionError(f"an author answered an elaboration with {reply}")

    def _take(self, result: StepResult, elaborated: Elaborated, group: asyncio.TaskGroup) -> None:
        """Build what is not there yet."""
        key = build_key(elaborated.kernel, result.target, self._info.fingerprint, {})
        result = msgspec.structs.replace(result, build=key)
        if find_artifact(key, self._objects) is not None:
            self.results.append(msgspec.structs.replace(result, reused=True))
        else:
            group.create_task(self._build(result, elaborated))

    async def _build(self, result: StepResult, elaborated: Elaborated) -> None:
        wanted = BuildKernel(
            case=result.step, build=result.build, elaborated=elaborated, options={}
        )
        worker = await self._free.get()
        at = time.monotonic()
        try:
            async for built in self._pool.build(worker, [wanted], [self._limits.build_s]):
                result = msgspec.structs.replace(
                    result, at=at, outcome=built.outcome, message=built.message
                )
        finally:
            self._free.put_nowait(worker)
        self.results.append(msgspec.structs.replace(result, seconds=time.monotonic() - at))


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
