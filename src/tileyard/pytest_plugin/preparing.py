"""Carries out compile steps: many at a time, without a device, each in a process that may die. Kernels are
built as by ``tileyard compile``, elaborated in copies of this process. pytest-xdist's processes share steps.
"""

import asyncio
import fcntl
import functools
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from tileyard.artifacts.manifest import Build
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.errors import InvalidProgramError, TileyardError, UnsupportedError, UserCodeError
from tileyard.base.events import BuildStarted, Event, RunStarted
from tileyard.base.model import Case, Elaborated, KernelWork, Limits, Outcome, Record
from tileyard.base.modes import make_folder, open_file, write_file
from tileyard.base.settings import Settings
from tileyard.engine.sync_checks import LIMIT_S, describe_first
from tileyard.engine.yard import Workplace
from tileyard.pytest_plugin.bodies import Calling, Ready, lower, read_body
from tileyard.pytest_plugin.copies import Copies
from tileyard.pytest_plugin.far_records import BodyStep, FunctionStep, KernelStep, Step, StepResult
from tileyard.pytest_plugin.forked import run_loop
from tileyard.pytest_plugin.tilelang_jit import Reading
from tileyard.service.bench import Bench
from tileyard.service.opened import carry_out
from tileyard.service.runs import Ending, Plan
from tileyard.service.verbs import Verb
from tileyard.targets.registry import make_target
from tileyard.verbs.tune.plan.deciding import Sweep
from tileyard.workers.author import Author
from tileyard.workers.protocol import (
    AuthorReply,
    AuthorRequest,
    CheckSync,
    ElaborateConfig,
    ElaboratedConfig,
    Failed,
    SyncChecked,
)
from tileyard.workers.sync_check import check_kept, check_made, identify_check

S = TypeVar("S")
MOST_AT_A_TIME = 16
"""Maximum number of bodies read in one copy, because a copy takes as long as reading some does."""


class BuiltKernels(Record):
    """How each kernel was built, in the order of the cases."""

    builds: tuple[Build, ...]


class BuildKernels(Verb[BuiltKernels]):
    """Builds kernels that live in the client's process, and runs none."""

    cases: tuple[Case, ...]

    async def open(self, bench: Bench) -> Plan[BuiltKernels]:
        """See ``Verb``."""

        def fold(ending: Ending) -> BuiltKernels:
            return BuiltKernels(builds=tuple(ending.build_of(case, case.id) for case in self.cases))

        return Plan(
            source=Sweep(self.cases),
            fold=fold,
            authors=bench.make_authors(),
            grounds={case.target: () for case in self.cases},
            begun=RunStarted(title="pytest", cases=len(self.cases)),
            workplace=Workplace(reuse=False),
        )


class KernelHolder:
    """The client of such a run, whose process holds the kernels. ``made`` gets each step's answer,
    and a result with its time; ``run`` is the run.
    """

    run: asyncio.Task[BuiltKernels]

    def __init__(self, steps: Iterable[str]) -> None:
        self.made: dict[str, asyncio.Future[tuple[StepResult, AuthorReply]]] = {
            step: asyncio.Future() for step in steps
        }
        self._began: dict[str, float] = {}

    async def ask(self, request: AuthorRequest) -> AuthorReply:
        """The answer for a kernel, as soon as it exists."""
        if not isinstance(request, ElaborateConfig):
            raise AssertionError(f"a run that only builds asked its client {request}")
        _, reply = await self.made[request.kernel]
        return reply

    def tell_event(self, event: Event) -> None:
        """Record the builds that begin."""
        if isinstance(event, BuildStarted):
            self._began[event.case] = time.monotonic()

    def list_results(self) -> list[StepResult]:
        """The results of the steps, once the run is over."""
        builds = self.run.result().builds
        return [self._describe(*one) for one in zip(self.made, builds, strict=True)]

    def _describe(self, step: str, build: Build) -> StepResult:
        result, reply = self.made[step].result()
        at = self._began.get(build.case)
        return msgspec.structs.replace(
            result,
            outcome=build.outcome,
            message=build.message,
            at=result.at if at is None else at,
            seconds=result.seconds if at is None else build.build_s,
            reused=at is None and build.build != "",
            build=build.build,
            rule=reply.elaborated.rule if isinstance(reply, ElaboratedConfig) else None,
        )


class Preparing:
    """A run's compile steps, or a share. ``cores`` are usable; ``folder`` is for builds and logs."""

    def __init__(
        self, settings: Settings, cores: tuple[int, ...], folder: Path, build_limit_s: float
    ) -> None:
        self._settings = msgspec.structs.replace(settings, cores=cores)
        self._folder = folder
        self._limits = Limits(build_s=build_limit_s, elaborate_s=build_limit_s)
        self._objects = ObjectStore(settings.home / "objects")
        self._copies = Copies(folder)

    def run(self, steps: Sequence[Step]) -> list[StepResult]:
        """Carry them out. Raises UsageError of pytest if a target cannot be used at all."""
        if not steps:
            return []
        try:
            return run_loop(self._run(steps))
        except* TileyardError as group:
            error: BaseException = group
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            message = str(error)
        raise pytest.UsageError(message)

    async def _run(self, steps: Sequence[Step]) -> list[StepResult]:
        self._lanes = asyncio.Semaphore(len(self._settings.cores))  # of this loop
        kernels = [step for step in steps if isinstance(step, KernelStep)]
        bodies = [step for step in steps if isinstance(step, BodyStep)]
        functions = [step for step in steps if isinstance(step, FunctionStep)]
        async with asyncio.TaskGroup() as group:
            calling = Calling(self._settings.home, self._folder, self._copies, self._lanes)
            calls = group.create_task(calling.run(functions, self._limits.elaborate_s))
            found = await self._read_bodies(bodies)
            ready = [(result, elaborated) for result, elaborated in found if elaborated is not None]
            client = self._begin_builds(kernels, ready, group) if kernels or ready else None
        # Not within the block: a cancelled run goes on, and ends as if it was over.
        built = [] if client is None else client.list_results()
        compiled = [result for result, elaborated in found if elaborated is None]
        return [*compiled, *built, *calls.result()]

    # ---- kernels ------------------------------------------------------------------------------

    async def _read_bodies(self, steps: Sequence[BodyStep]) -> list[Ready]:
        """The compilations found in tests' bodies, for existing targets. TileLang compiles its own."""
        done: list[Ready] = []
        limit_s = self._limits.elaborate_s + self._limits.build_s
        is_usable = functools.cache(self._is_usable)
        make_reading = functools.cache(Reading)

        def answer(step: BodyStep) -> list[Ready]:
            return read_body(step, make_reading())  # in a copy, where the first step makes it

        async def read(part: Sequence[BodyStep]) -> None:
            async with self._lanes:
                async for _, _, reply in self._copies.ask_all(part, answer, limit_s):
                    if not isinstance(reply, Failed):  # otherwise the test itself will report it
                        done.extend(
                            (result, elaborated)
                            for result, elaborated in reply
                            if elaborated is None or is_usable(result.target)
                        )

        size = max(1, min(MOST_AT_A_TIME, math.ceil(len(steps) / len(self._settings.cores))))
        async with asyncio.TaskGroup() as group:
            for start in range(0, len(steps), size):
                group.create_task(read(steps[start : start + size]))
        return done

    def _is_usable(self, target: str) -> bool:
        """Whether a target that only some test names is usable; if not, that test reports it."""
        try:
            make_target(target, self._settings.plugins).fingerprint()
        except TileyardError:
            return False
        return True

    def _begin_builds(
        self,
        steps: Sequence[KernelStep],
        ready: Sequence[tuple[StepResult, Elaborated]],
        group: asyncio.TaskGroup,
    ) -> KernelHolder:
        """Start the builds of what is elaborated, and of the kernels of steps as soon as they are."""
        targets = {
            **{result.step: result.target for result, _ in ready},
            **{step.id: step.target for step in steps},
        }
        client = KernelHolder(targets)
        for result, elaborated in ready:
            client.made[result.step].set_result((result, ElaboratedConfig(elaborated=elaborated)))
        # Distributed in turn: they are requested in order, and the first one requested is made first.
        count = len(self._settings.cores)
        for start in range(min(count, len(steps))):
            group.create_task(self._elaborate_all(steps[start::count], client))
        cases = tuple(
            Case(
                id=f"{number}",
                work=KernelWork(file="", kernel=step),
                target=target,
                until="built",
                timing=None,
                limits=self._limits,
                expected_s=0.0,
            )
            for number, (step, target) in enumerate(targets.items(), start=1)
        )
        bench = Bench(self._settings, client)
        client.run = group.create_task(carry_out(BuildKernels(cases=cases), bench))
        return client

    async def _elaborate_all(self, steps: Sequence[KernelStep], client: KernelHolder) -> None:
        """Elaborate kernels one after another; an error in one is that kernel's Failed alone."""
        # Here, and not in a copy: what a target imports is imported once.
        names = {step.target for step in steps}
        needs_tir = {name: make_target(name, self._settings.plugins).needs_tir for name in names}

        def answer(step: KernelStep) -> AuthorReply:
            return _elaborate(step, self._objects, with_tir=needs_tir[step.target])

        limit_s = self._limits.elaborate_s
        if any(step.check_sync is not False for step in steps):
            limit_s += self._limits.build_s
        async for step, at, reply in self._copies.ask_all(steps, answer, limit_s):
            result = StepResult(
                step=step.id,
                target=step.target,
                at=at,
                seconds=time.monotonic() - at,
                unchecked=reply.log if isinstance(reply, ElaboratedConfig) else "",
            )
            client.made[step.id].set_result((result, reply))


def _elaborate(step: KernelStep, objects: ObjectStore, *, with_tir: bool) -> AuthorReply:
    if type(step.source).__name__ != "PrimFunc":
        found = step.source
        request = ElaborateConfig(
            kernel=found.name, arguments=step.arguments, config={}, with_tir=with_tir
        )
        author = Author({found.name: found}, objects)
        reply = author.answer(request)
        if step.check_sync is False or not isinstance(reply, ElaboratedConfig):
            return reply
        question = _question(step, found.name)
        program = reply.elaborated.kernel.program
        code = identify_check(found, question, program, reply.elaborated.lines)
        checked = check_kept(objects, code, lambda: author.answer(question))
        return _judge(step, checked, reply)
    try:
        elaborated = lower(step.source, step.out_idx)
    except (UnsupportedError, InvalidProgramError, UserCodeError) as error:
        return Failed(message=str(error), outcome=Outcome.COMPILE_ERROR)
    done = ElaboratedConfig(elaborated=elaborated)
    return done if step.check_sync is False else _judge(step, _check_func(step, objects), done)


def _question(step: KernelStep, kernel: str) -> CheckSync:
    is_unasked = step.check_sync is None
    return CheckSync(
        kernel=kernel,
        arguments=step.arguments,
        config={},
        limit_s=LIMIT_S if is_unasked else 0.0,
        is_unasked=is_unasked,
        until_first=True,
    )


def _check_func(step: KernelStep, objects: ObjectStore) -> SyncChecked | Failed:
    from tileyard.frontend.tilelang import make_kernel

    made = make_kernel(step.source, step.out_idx)
    try:
        return check_made(made, _question(step, made.kernel.name), objects)
    except TileyardError as error:
        return Failed(message=str(error))


def _judge(step: KernelStep, checked: AuthorReply, elaborated: ElaboratedConfig) -> AuthorReply:
    """The elaborated kernel, unless its check found mistakes, or was asked for and failed. Its log:
    why an unasked check was not made.
    """
    if isinstance(checked, SyncChecked):
        if not checked.findings:
            reason = "" if checked.blocks else "; ".join(checked.unchecked)
            return msgspec.structs.replace(elaborated, log=reason)
        checked = Failed(message=describe_first(checked))
    elif isinstance(checked, Failed) and step.check_sync is None and not checked.usage:
        return msgspec.structs.replace(elaborated, log=checked.message)
    if isinstance(checked, Failed):
        message = f"its check: {checked.message}"
        return Failed(message=message, outcome=Outcome.RUNTIME_ERROR)
    raise AssertionError(f"CheckSync was answered with {checked}")


# ---- shares of pytest-xdist's processes --------------------------------------------------------
#
# Every process has the same steps in the same order. Share ``k`` is a file of results; the process that holds
# its lock makes it. A process takes its own share first and then those that nobody has begun; at last it
# waits for those that are being made, and makes those whose maker died.


def prepare_shares(
    steps: Sequence[S],
    folder: Path,
    own: int,
    count: int,
    make: Callable[[Sequence[S]], list[StepResult]],
) -> list[StepResult]:
    """All results, after this process has made its part of them. ``own`` is below ``count``."""
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
    """Hold a lock for the block, unless another has it and not ``is_patient``; yields whether it is held."""
    lock = open_file(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX if is_patient else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
    else:
        yield True
    finally:
        os.close(lock)
