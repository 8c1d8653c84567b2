"""Carries compile steps out: many at a time, with no device, each in a process that may die.

This process is the author: a kernel is elaborated in a copy of it, and then built by the compile
workers that ``tileyard tune`` uses, under the same keys. A function runs in a copy.
"""

import asyncio
import math
import pickle
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, assert_never

import msgspec

from tileyard.artifacts.objects import ObjectStore
from tileyard.engine.compilers import CompilePool
from tileyard.engine.yard import Yard
from tileyard.errors import TileyardError
from tileyard.frontend.blame import call_by_name
from tileyard.model import Limits, Outcome
from tileyard.modes import make_folder, write_file
from tileyard.pytest_plugin.builds import Builds, Ready, Wanted
from tileyard.pytest_plugin.copied import Teller
from tileyard.pytest_plugin.elaborating import CopyAuthor, describe_death
from tileyard.pytest_plugin.forked import Forked, follow
from tileyard.pytest_plugin.records import Answered, StepResult
from tileyard.pytest_plugin.steps import BodyStep, FunctionStep, KernelStep, Step
from tileyard.settings import Settings
from tileyard.targets.registry import make_target

if TYPE_CHECKING:
    from tileyard.store.trials import TrialStore

S = TypeVar("S")
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
        by_target: dict[str, Wanted] = {}
        bodies: list[BodyStep] = []
        functions: list[FunctionStep] = []
        for step in steps:
            match step:
                case KernelStep():
                    by_target.setdefault(step.target, Wanted()).kernels.append(step)
                case BodyStep():
                    bodies.append(step)
                case FunctionStep():
                    functions.append(step)
                case _:
                    assert_never(step)
        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(self._call(step, lanes)) for step in functions]
            results, found = await self._read_bodies(bodies, build_limit_s, lanes)
            wanted = by_target | {
                target: Wanted(kernels=by_target.get(target, Wanted()).kernels, ready=ready)
                for target, ready in found.items()
            }
            for target, work in wanted.items():
                results += await self._build_all(target, work, build_limit_s, lanes)
        return [*results, *(call.result() for call in calls)]

    # ---- kernels ------------------------------------------------------------------------------

    async def _read_bodies(
        self, steps: Sequence[BodyStep], build_limit_s: float, lanes: asyncio.Semaphore
    ) -> tuple[list[StepResult], dict[str, list[Ready]]]:
        """What tests compile in their bodies: what TileLang has compiled, and what is left to build.

        The latter by the target they name, where there is such a one.
        """
        done: list[StepResult] = []
        found: dict[str, list[Ready]] = {}
        limit_s = Limits().elaborate_s + build_limit_s

        async def read(part: Sequence[BodyStep]) -> None:
            async with lanes:
                async for result, elaborated in self._author.read_bodies(part, limit_s):
                    if elaborated is None:
                        done.append(result)
                    else:
                        found.setdefault(result.target, []).append((result, elaborated))

        async with asyncio.TaskGroup() as group:
            for part in self._split(steps):
                group.create_task(read(part))
        return done, {t: ready for t, ready in found.items() if self._is_usable(t)}

    def _is_usable(self, target: str) -> bool:
        """Whether a target that only some test names is one; else that test is to tell."""
        try:
            make_target(target, self._settings.plugins).fingerprint()
        except TileyardError:
            return False
        return True

    async def _build_all(
        self, target: str, work: Wanted, build_limit_s: float, lanes: asyncio.Semaphore
    ) -> list[StepResult]:
        """Build for one target: a worker for each core, or for each kernel if they are fewer."""
        cores = self._cores[: len(work.kernels) + len(work.ready)]
        pool = CompilePool(self._yard(target), cores)
        try:
            info = await pool.describe()
            builds = Builds(self._objects, pool, info, Limits(build_s=build_limit_s))
            async with asyncio.TaskGroup() as group:
                for result, elaborated in work.ready:
                    builds.take(result, elaborated, group)
                for part in self._split(work.kernels):
                    group.create_task(builds.prepare(part, self._author, lanes, group))
        finally:
            await pool.close()
        return builds.results

    def _split(self, steps: Sequence[S]) -> list[Sequence[S]]:
        """Steps in groups for one copy each: at least one group for each core."""
        size = max(1, min(MOST_AT_A_TIME, math.ceil(len(steps) / len(self._cores))))
        return [steps[start : start + size] for start in range(0, len(steps), size)]

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
            make_folder(folder)
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


def _call_function(step: FunctionStep, folder: Path, pickled: Path) -> str:
    """In the copy: call it and keep what it returns; why that failed, or nothing."""
    what = getattr(step.function, "__name__", "the compile step")
    try:
        result = call_by_name(step.function, {**step.values, "out": folder}, what)
    except TileyardError as error:
        return f"{what} failed: {error}"
    try:
        write_file(pickled, pickle.dumps(result))
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        return f"{what} returned what cannot be kept: {error}"
    return ""
