"""Carries compile steps out: many at a time, with no device, each in a process that may die.

This process is the author: a kernel is elaborated in a copy of it, and then built by the compile
workers that ``tileyard tune`` uses, under the same keys. A function runs in a copy. Under pytest-xdist
the steps are shared out among its processes.

One module because each part is one stage of the way from a step to its result.
"""

import asyncio
import contextlib
import fcntl
import functools
import math
import os
import pickle
import time
import zlib
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from tileyard.artifacts.keys import build_key
from tileyard.artifacts.manifest import find_artifact
from tileyard.artifacts.objects import ObjectStore
from tileyard.engine.authors import Author as AskedAuthor
from tileyard.engine.authors import Authors
from tileyard.engine.compilers import CompilePool
from tileyard.engine.yard import Yard
from tileyard.errors import InvalidProgramError, TileyardError, UnsupportedError
from tileyard.frontend.blame import call_by_name
from tileyard.model import BuildKey, Elaborated, Limits, Outcome, Side
from tileyard.modes import make_folder, open_file, write_file
from tileyard.pytest_plugin.bodies import Ready, lower, read_body
from tileyard.pytest_plugin.forked import Forked, Teller, follow
from tileyard.pytest_plugin.records import (
    Answered,
    BodyStep,
    FunctionStep,
    KernelStep,
    Step,
    StepResult,
)
from tileyard.pytest_plugin.tilelang_jit import Reading
from tileyard.settings import Settings
from tileyard.targets.registry import make_target
from tileyard.workers.author import Author
from tileyard.workers.protocol import (
    AuthorReply,
    BuildKernel,
    ElaborateConfig,
    ElaboratedConfig,
    Failed,
    TargetInfo,
)

Make = Callable[[Sequence[Step]], list[StepResult]]
S = TypeVar("S")
MOST_AT_A_TIME = 16
"""How many kernels are elaborated in one copy, since a copy takes as long as some kernels do."""


class CopyAuthor:
    """Author of the kernels of this process: asked in copies of it. ``folder`` gets their logs."""

    def __init__(self, objects: ObjectStore, folder: Path) -> None:
        self._objects = objects
        self._folder = folder
        self._number = 0

    async def elaborate(
        self, steps: Sequence[KernelStep], limit_s: float, *, with_tir: bool
    ) -> AsyncGenerator[tuple[StepResult, AuthorReply], None]:
        """Elaborate kernels one after another; whatever goes wrong with one is its Failed alone.

        With each answer comes a result that says when it was begun and how long it took.
        """

        answer = functools.partial(self._elaborate, with_tir=with_tir)
        async for step, at, reply in self._ask_all(steps, answer, limit_s):
            result = StepResult(
                step=step.id, target=step.target, at=at, seconds=time.monotonic() - at
            )
            yield result, reply

    async def read_bodies(
        self, steps: Sequence[BodyStep], limit_s: float
    ) -> AsyncGenerator[Ready, None]:
        """Elaborate what tests compile in their bodies, as far as that is found.

        What TileLang compiles itself it has compiled, into its own cache: nothing is left to build.
        """
        make_reading = functools.cache(Reading)

        def answer(step: BodyStep) -> list[Ready]:
            return read_body(step, make_reading())  # in a copy, where the first step makes it

        async for _, _, reply in self._ask_all(steps, answer, limit_s):
            if not isinstance(reply, Failed):  # else the test itself will tell
                for ready in reply:
                    yield ready

    async def _ask_all(
        self, steps: Sequence[S], answer: Callable[[S], object], limit_s: float
    ) -> AsyncGenerator[tuple[S, float, Any], None]:
        """The answers for all steps, made in copies; each with when it was begun."""
        left = list(steps)
        while left:
            at = time.monotonic()
            todo = tuple(left)

            def work(teller: Teller, todo: tuple[S, ...] = todo) -> None:
                for step in todo:
                    teller.tell(Answered(reply=answer(step)))

            self._number += 1
            copy = Forked(work, limit_s, self._folder / f"elaborate-{self._number}.log")
            async with contextlib.aclosing(follow(copy)) as messages:
                async for message in messages:
                    if isinstance(message, Answered):
                        copy.begin_anew()
                        yield left.pop(0), at, message.reply
                        at = time.monotonic()
            if left:
                yield left.pop(0), at, describe_death(copy, "elaborating it")

    def _elaborate(self, step: KernelStep, *, with_tir: bool) -> AuthorReply:
        if type(step.source).__name__ != "PrimFunc":
            found = step.source
            author = Author({found.name: found}, self._objects)
            return author.answer(
                ElaborateConfig(
                    kernel=found.name, arguments=step.arguments, config={}, with_tir=with_tir
                )
            )
        try:
            elaborated = lower(step.source, step.out_idx)
        except (UnsupportedError, InvalidProgramError) as error:
            return Failed(message=str(error), outcome=Outcome.COMPILE_ERROR)
        return ElaboratedConfig(elaborated=elaborated)


def describe_death(copy: Forked, what: str) -> Failed:
    """What a copy that gave no answer to a compile step means."""
    end = copy.end
    if end is None:
        raise AssertionError("a copy has no end")
    tail = "".join(f"\n{text}" for text in (end.stack, end.tail) if text)
    outcome = Outcome.TIMEOUT if end.timed_out else Outcome.COMPILE_ERROR
    return Failed(message=f"the process {what} {end.describe(copy.limit_s)}{tail}", outcome=outcome)


@dataclass(kw_only=True)
class Wanted:
    """What is to be built for one target: kernels, and what is elaborated already."""

    kernels: list[KernelStep] = field(default_factory=list)
    ready: list[tuple[StepResult, Elaborated]] = field(default_factory=list)


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
        self._first: dict[BuildKey, asyncio.Task[StepResult]] = {}
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
                    self.take(result, reply.elaborated, group)
                else:
                    raise AssertionError(f"an author answered an elaboration with {reply}")

    def take(self, result: StepResult, elaborated: Elaborated, group: asyncio.TaskGroup) -> None:
        """Build what is not there yet, once however many ask for it."""
        key = build_key(elaborated.kernel, result.target, self._info.fingerprint, {})
        result = msgspec.structs.replace(result, build=key)
        if key not in self._first and find_artifact(key, self._objects) is not None:
            self.results.append(msgspec.structs.replace(result, reused=True))
        elif key in self._first:
            group.create_task(self._await_first(result))
        else:
            self._first[key] = group.create_task(self._build(result, elaborated))

    async def _await_first(self, result: StepResult) -> None:
        first = await self._first[result.build]
        self.results.append(
            msgspec.structs.replace(
                result, reused=True, outcome=first.outcome, message=first.message
            )
        )

    async def _build(self, result: StepResult, elaborated: Elaborated) -> StepResult:
        wanted = BuildKernel(
            case=result.step, build=result.build, elaborated=elaborated, options={}
        )
        worker = await self._free.get()
        at = time.monotonic()
        process = (("", result.target), worker)
        try:
            async for built in self._pool.build(process, [wanted], [self._limits.build_s]):
                result = msgspec.structs.replace(
                    result, at=at, outcome=built.outcome, message=built.message
                )
        finally:
            self._free.put_nowait(worker)
        result = msgspec.structs.replace(result, seconds=time.monotonic() - at)
        self.results.append(result)
        return result


class Preparing:
    """The compile steps of a run, or of one process's share of them.

    ``cores`` are those that may be used, and ``folder`` is where functions build and logs are.
    """

    def __init__(
        self, settings: Settings, cores: tuple[int, ...], folder: Path, build_limit_s: float
    ) -> None:
        self._settings = settings
        self._cores = cores
        self._folder = folder
        self._limits = Limits(build_s=build_limit_s)
        self._objects = ObjectStore(settings.home / "objects")
        self._author = CopyAuthor(self._objects, folder)

    def run(self, steps: Sequence[Step]) -> list[StepResult]:
        """Carry them out. Raises UsageError of pytest where a target cannot be used at all."""
        if not steps:
            return []
        try:
            return asyncio.run(self._run(steps))
        except* TileyardError as group:
            error: BaseException = group
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            message = str(error)
        raise pytest.UsageError(message)

    async def _run(self, steps: Sequence[Step]) -> list[StepResult]:
        self._lanes = asyncio.Semaphore(len(self._cores))  # of this loop
        wanted: defaultdict[str, Wanted] = defaultdict(Wanted)
        for step in steps:
            if isinstance(step, KernelStep):
                wanted[step.target].kernels.append(step)
        bodies = [step for step in steps if isinstance(step, BodyStep)]
        functions = [step for step in steps if isinstance(step, FunctionStep)]
        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(self._call(step)) for step in functions]
            results = await self._read_bodies(bodies, wanted)
            for target, work in wanted.items():
                results += await self._build_all(target, work)
        return [*results, *(call.result() for call in calls)]

    # ---- kernels ------------------------------------------------------------------------------

    async def _read_bodies(
        self, steps: Sequence[BodyStep], wanted: defaultdict[str, Wanted]
    ) -> list[StepResult]:
        """What TileLang has compiled of what tests compile in their bodies.

        What is left to build becomes ``wanted`` of the target that the test names, where there is
        such a one.
        """
        done: list[StepResult] = []
        limit_s = self._limits.elaborate_s + self._limits.build_s
        is_usable = functools.cache(self._is_usable)

        async def read(part: Sequence[BodyStep]) -> None:
            async with self._lanes:
                async for result, elaborated in self._author.read_bodies(part, limit_s):
                    if elaborated is None:
                        done.append(result)
                    elif is_usable(result.target):
                        wanted[result.target].ready.append((result, elaborated))

        async with asyncio.TaskGroup() as group:
            for part in self._split(steps):
                group.create_task(read(part))
        return done

    def _is_usable(self, target: str) -> bool:
        """Whether a target that only some test names is one; else that test is to tell."""
        try:
            make_target(target, self._settings.plugins).fingerprint()
        except TileyardError:
            return False
        return True

    async def _build_all(self, target: str, work: Wanted) -> list[StepResult]:
        """Build for one target: a worker for each core, or for each kernel if they are fewer."""
        cores = self._cores[: len(work.kernels) + len(work.ready)]
        yard = Yard(
            settings=self._settings,
            store=None,  # type: ignore[arg-type]  # compile workers record nothing
            objects=self._objects,
            authors=Authors((Side(),), cores, _refuse),
            grounds={target: ()},
        )
        pool = CompilePool(yard, cores)
        try:
            info = await pool.describe(("", target))
            builds = Builds(self._objects, pool, info, self._limits)
            async with asyncio.TaskGroup() as group:
                for result, elaborated in work.ready:
                    builds.take(result, elaborated, group)
                for part in self._split(work.kernels):
                    group.create_task(builds.prepare(part, self._author, self._lanes, group))
        finally:
            await pool.close()
        return builds.results

    def _split(self, steps: Sequence[S]) -> list[Sequence[S]]:
        """Steps in groups for one copy each: at least one group for each core."""
        size = max(1, min(MOST_AT_A_TIME, math.ceil(len(steps) / len(self._cores))))
        return [steps[start : start + size] for start in range(0, len(steps), size)]

    # ---- functions ----------------------------------------------------------------------------

    async def _call(self, step: FunctionStep) -> StepResult:
        """Call a function of the user's in a copy of this process, in a directory of its own."""
        folder = self._folder / "built" / f"{zlib.crc32(step.id.encode()):08x}"
        pickled = folder.with_suffix(".pickle")

        async with self._lanes:
            at = time.monotonic()
            make_folder(folder)
            copy = Forked(
                lambda teller: teller.tell(Answered(reply=_call_function(step, folder, pickled))),
                step.limit_s,
                folder.with_suffix(".log"),
            )
            answers = [m.reply async for m in follow(copy) if isinstance(m, Answered)]
        result = StepResult(
            step=step.id,
            at=at,
            seconds=time.monotonic() - at,
            folder=str(folder),
            pickled=str(pickled),
        )
        if not answers:
            failed = describe_death(copy, "its compile step")
            return msgspec.structs.replace(result, outcome=failed.outcome, message=failed.message)
        outcome = Outcome.COMPILE_ERROR if answers[0] else Outcome.PASSED
        return msgspec.structs.replace(result, outcome=outcome, message=str(answers[0]))


def _refuse(side: Side, file: str) -> AskedAuthor:
    raise AssertionError(f"compile workers ask no author of {file}")


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


# ---- shares of pytest-xdist's processes --------------------------------------------------------
#
# Every process has the same steps in the same order. Share ``k`` is a file of results; who holds its
# lock makes it. A process takes its own share first and then those that nobody has begun; at last it
# waits for those that are being made, and makes those whose maker died.


def prepare_shares(
    steps: Sequence[Step], folder: Path, own: int, count: int, make: Make
) -> list[StepResult]:
    """All results, after this process has made what was its to make. ``own`` is below ``count``."""
    make_folder(folder)
    order = [(own + offset) % count for offset in range(count)]
    for is_patient in (False, True):
        for number in order:
            path = folder / f"share-{number}.json"
            with _locked(path.with_suffix(".lock"), is_patient=is_patient) as is_ours:
                if is_ours and not path.exists():
                    made = make(steps[number::count])
                    draft = path.with_suffix(".draft")
                    write_file(draft, msgspec.json.encode(made))
                    draft.replace(path)
    return list(read_shares(folder))


def read_shares(folder: Path) -> Iterator[StepResult]:
    """The results of all shares that were made."""
    for path in sorted(folder.glob("share-*.json")):
        yield from msgspec.json.decode(path.read_bytes(), type=list[StepResult])


@contextmanager
def _locked(path: Path, *, is_patient: bool) -> Iterator[bool]:
    """Hold a lock for the block, unless another has it and we are not ``is_patient``; says which."""
    lock = open_file(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX if is_patient else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
    else:
        yield True
    finally:
        os.close(lock)
